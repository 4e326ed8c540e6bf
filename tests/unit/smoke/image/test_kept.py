"""The copies of files that checks read: bounded for each file and in sum, and removed after a test that was killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builder.smoke.image import kept
from builder.smoke.image.opened import open_image
from builder.smoke.image.tree import ImageTree, PathNotFound
from builder.store.store import Store
from tests.support.cli import Cli
from tests.support.hostile import killed_at
from tests.support.images import gb10, layout

MB = 1 << 20


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def spoiled(size: int) -> bytes:
    """Bytes that no compressor makes smaller."""
    return random.Random(size).randbytes(size)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For the copies; with bounds of 1 and 3 MB instead of 128 and 512."""
    monkeypatch.setattr(kept, "MOST_OF_ONE", MB)
    monkeypatch.setattr(kept, "MOST_OF_ALL", 3 * MB)
    monkeypatch.setattr(kept, "_RECOUNT", MB // 4)
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies"


def test_a_file_that_is_too_large_is_not_copied(folder: Path, tmp_path: Path) -> None:
    files = {"etc/large": spoiled(MB + 1), "etc/small": b"small"}
    image = open_image(layout(tmp_path / "image", [files]))
    tree = ImageTree.of_image(image, folder, ["etc/*"])
    assert used(folder) == 5
    assert tree.read("/etc/small") == b"small"
    with pytest.raises(PathNotFound, match="small enough to be read: it has 1048577 bytes"):
        tree.open("/etc/large")
    assert used(folder) == 5


def test_the_copies_of_all_layers_have_a_bound_together(folder: Path, tmp_path: Path) -> None:
    layers = [{f"etc/{layer}/{number}": spoiled(200_000) for number in range(10)} for layer in range(4)]
    tree = ImageTree.of_image(open_image(layout(tmp_path / "image", layers)), folder, ["etc/*"])
    assert 2 * MB < used(folder) <= 4 * MB  # up to a quarter of a megabyte more for each reader
    for layer in tree.layers:
        layer.kept.clear()
    before = used(folder)
    with pytest.raises(PathNotFound, match="small enough"):
        for layer in range(4):
            for number in range(10):
                tree.open(f"etc/{layer}/{number}")
    assert used(folder) <= before + MB


def test_copies_of_a_killed_test_are_removed_by_the_next_command(cli: Cli) -> None:
    layout(cli.folder / "image", gb10())
    cli.write()

    def test() -> None:
        cli("test", "oci:image")

    assert killed_at(0, test, ("shutil.rmtree",))
    tmp = cli.folder / "store/tmp"
    (left,) = tmp.iterdir()
    assert left.is_dir()
    Store(cli.folder / "store")
    assert list(tmp.iterdir()) == []
    cli("test", "oci:image")
    assert list(tmp.iterdir()) == []
