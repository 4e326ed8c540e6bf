"""Trees of strangers are removed whole: unreadable, deep, with links to the outside; what is outside stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builder.store.removal import remove
from tests.support.hostile import Outside, as_plain_user, plain_folder


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o200, 0o400, 0o500, 0o700])
def test_a_plain_user_removes_folders_of_any_mode(mode: int) -> None:
    with plain_folder() as folder:

        def work() -> None:
            for depth in ("a", "a/b", "a/b/c", "a/d"):
                (folder / depth).mkdir()
                (folder / depth / "file").touch(0o000)
            for depth in ("a/b/c", "a/b", "a/d", "a"):
                (folder / depth).chmod(mode)
            remove(folder / "a")

        as_plain_user(work)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", [0o000, 0o755])
def test_a_tree_may_be_deeper_than_any_path_or_recursion(mode: int) -> None:
    with plain_folder() as folder:

        def work() -> None:
            (folder / "a").mkdir()
            os.chdir(folder / "a")
            for _ in range(1100):
                Path("deep").mkdir()
                Path("file").touch()
                os.chdir("deep")
            for _ in range(1100):
                os.chdir("..")
                Path("deep").chmod(mode)
            remove(folder / "a")

        as_plain_user(work)
        assert list(folder.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = Outside(tmp_path)
    kept = tmp_path / "kept"
    (kept / "below").mkdir(parents=True)
    kept.chmod(0o500)
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for name in ("one", "sub/two"):
        (tree / name).symlink_to(kept)
    for kind in ("pipe", "link", "link to nothing"):
        outside.put(kind, tree / "sub" / kind)
    remove(tree)
    assert not tree.exists()
    assert ((kept / "below").is_dir(), kept.stat().st_mode & 0o777) == (True, 0o500)
    outside.assert_unchanged()
    (tmp_path / "alias").symlink_to(kept)
    remove(tmp_path / "alias")
    assert ((kept / "below").is_dir(), os.path.lexists(tmp_path / "alias")) == (True, False)


def test_what_is_mounted_in_a_tree_stays(tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    (kept / "below").mkdir(parents=True)
    for mount in (tree / "mount", tree / "sub/mount"):
        mount.mkdir(parents=True)
        if subprocess.run(["mount", "--bind", str(kept), str(mount)], check=False, capture_output=True).returncode:
            pytest.skip("nothing may be mounted here")
    try:
        remove(tree)
        assert (kept / "below").is_dir()
    finally:
        for mount in tree.rglob("mount"):
            subprocess.run(["umount", "--lazy", str(mount)], check=False)
        subprocess.run(["umount", "--lazy", str(tree / "mount")], check=False, capture_output=True)


def test_what_does_not_exist_needs_no_removal(tmp_path: Path) -> None:
    remove(tmp_path / "nothing")
