"""The rules that every layer's tree follows, whoever made its files."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.unpack.entry import Entry, UnpackError, clean_path, content, directory, from_bytes, symlink
from builder.unpack.place import PLACED, placed
from builder.unpack.spool import index
from builder.unpack.tree import normalise
from tests.support.errors import fails
from tests.support.tars import File, Folder, Hard, Link, Members, Node, tar


def file(path: str, data: bytes = b"x", mode: int = 0o644, owner: str = "one") -> Entry:
    return from_bytes(path, data, mode, owner)


def hardlink(path: str, target: str) -> Entry:
    return Entry(path, "hardlink", 0o644, link=target, owner="one")


def paths(entries: list[Entry]) -> list[tuple[str, str, int]]:
    return [(entry.path, entry.kind, entry.mode) for entry in entries]


def from_tar(folder: Path, members: Members, is_root: bool = False) -> list[Entry]:
    path = folder / "layer.tar"
    path.write_bytes(tar(members))
    return normalise(index(str(path), "layer"), is_root=is_root)


def test_entries_are_sorted_by_bytes_and_every_parent_is_there() -> None:
    made = normalise([file("usr/b/ä"), file("usr/b/z"), file("usr/B"), file("etc/x", mode=0o600)], is_root=False)
    assert paths(made) == [
        ("etc", "dir", 0o755),
        ("etc/x", "file", 0o600),
        ("usr", "dir", 0o755),
        ("usr/B", "file", 0o644),
        ("usr/b", "dir", 0o755),
        ("usr/b/z", "file", 0o644),
        ("usr/b/ä", "file", 0o644),
    ]


@given(st.permutations(range(6)))
def test_the_order_of_what_comes_in_does_not_matter(order: list[int]) -> None:
    entries = [
        file("usr/a"),
        hardlink("usr/0", "usr/a"),
        symlink("usr/l", "a"),
        directory("usr", 0o700),
        directory("opt/d", 0o711),
        file("opt/d/x"),
    ]
    straight = normalise(entries, is_root=False)
    assert paths(normalise([entries[number] for number in order], is_root=False)) == paths(straight)


def test_a_folder_that_holds_something_is_0755_because_the_base_may_have_it() -> None:
    made = normalise([directory("opt", 0o700), directory("opt/a", 0o700), file("opt/a/b")], is_root=False)
    assert paths(made)[:2] == [("opt", "dir", 0o755), ("opt/a", "dir", 0o755)]


def test_a_root_keeps_its_folders_modes() -> None:
    made = normalise([directory("tmp", 0o1777), directory("root", 0o700), file("root/x")], is_root=True)
    assert paths(made) == [("root", "dir", 0o700), ("root/x", "file", 0o644), ("tmp", "dir", 0o1777)]


FORBIDDEN = [
    "bin",
    "sbin",
    "lib",
    "lib64",
    "tmp",
    "root",
    "home",
    "run",
    "var",
    "proc",
    "sys",
    "dev",
    "boot",
    "mnt",
    "x",
]


@pytest.mark.parametrize("top", FORBIDDEN)
def test_a_layer_may_not_place_files_where_bases_differ(top: str) -> None:
    with fails(UnpackError, "layer-path-forbidden"):
        normalise([file(f"{top}/x")], is_root=False)
    assert normalise([file(f"{top}/x")], is_root=True)


@pytest.mark.parametrize("top", ["usr", "opt", "etc", "srv"])
def test_a_layer_may_place_files_below_usr_opt_etc_and_srv_but_not_in_their_place(top: str) -> None:
    assert normalise([file(f"{top}/x")], is_root=False)
    for entry in (file(top), symlink(top, "elsewhere")):
        with fails(UnpackError, "layer-path-forbidden"):
            normalise([entry], is_root=False)


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755])
def test_set_id_bits_come_with_a_root_only(mode: int) -> None:
    for entry in (file("usr/bin/x", mode=mode), directory("usr/x", mode)):
        with fails(UnpackError, "layer-mode-forbidden"):
            normalise([entry], is_root=False)
        assert normalise([entry], is_root=True)[-1].mode == mode


def test_a_name_that_no_file_system_holds_is_refused() -> None:
    assert normalise([file(f"usr/{'x' * 255}")], is_root=False)
    for name in ("x" * 256, "é" * 128, f"{'x' * 256}/y"):
        with fails(UnpackError, "layer-name-too-long"):
            normalise([file(f"usr/{name}")], is_root=False)


@pytest.mark.parametrize("path", ["usr/.wh.x", "usr/.wh..wh..opq", "usr/.wh.d/x", ".wh.etc"])
def test_whiteouts_are_refused_everywhere(path: str) -> None:
    for is_root in (False, True):
        with fails(UnpackError, "layer-whiteout"):
            normalise([file(path)], is_root=is_root)
    assert normalise([file("usr/a.wh.b")], is_root=False)


@pytest.mark.parametrize(
    "other", [file("usr/a", b"y", owner="two"), symlink("usr/a", "b", "two"), directory("usr/a", owner="two")]
)
def test_one_path_cannot_come_from_two(other: Entry) -> None:
    with fails(UnpackError, "layer-path-twice"):
        normalise([file("usr/a"), other], is_root=False)


def test_even_equal_files_are_refused_unless_they_are_shared() -> None:
    twice = [file("usr/a", b"first"), file("usr/a", b"second", owner="two")]
    with fails(UnpackError, "layer-path-twice"):
        normalise(twice, is_root=False)
    made = normalise(twice, is_root=False, shared=frozenset({"usr/a"}))
    assert content(made[-1]) == b"first"


def test_folders_and_equal_links_may_come_twice() -> None:
    entries = [directory("usr/a"), symlink("usr/l", "a")]
    assert len(normalise([*entries, *entries], is_root=False)) == 3


def test_what_a_layer_places_wins_over_what_its_packages_bring() -> None:
    own = placed({"path": "usr/a", "content": "own"})
    assert own.owner == PLACED
    assert content(normalise([file("usr/a"), own], is_root=False)[-1]) == b"own"


@pytest.mark.parametrize("below", [file("usr/a"), symlink("usr/a", "b"), hardlink("usr/a", "usr/f")])
def test_nothing_lies_below_a_file_or_link(below: Entry) -> None:
    with fails(UnpackError, "layer-path-below-file"):
        normalise([below, file("usr/f"), file("usr/a/b/c")], is_root=False)


def test_of_hard_links_the_first_name_is_the_file() -> None:
    made = normalise(
        [file("usr/m", b"data", 0o755), hardlink("usr/z", "usr/m"), hardlink("usr/a", "usr/z")], is_root=False
    )
    kinds = {entry.path: (entry.kind, entry.link, entry.mode) for entry in made[1:]}
    assert kinds == {
        "usr/a": ("file", "", 0o755),
        "usr/m": ("hardlink", "usr/a", 0o755),
        "usr/z": ("hardlink", "usr/a", 0o755),
    }
    assert content(made[1]) == b"data"


@pytest.mark.parametrize(
    "links",
    [
        [hardlink("usr/a", "usr/gone")],
        [hardlink("usr/a", "usr/d"), directory("usr/d")],
        [hardlink("usr/a", "usr/l"), symlink("usr/l", "x")],
        [hardlink("usr/a", "usr/b"), hardlink("usr/b", "usr/a")],
        [hardlink("usr/a", "usr/a")],
    ],
)
def test_a_hard_link_to_no_file_is_refused(links: list[Entry]) -> None:
    with fails(UnpackError, "layer-hardlink-dangling"):
        normalise(links, is_root=False)


def test_an_engines_tar_comes_out_in_order(tmp_path: Path) -> None:
    members = {
        "./": Folder(0o700),
        "./usr/": Folder(0o700),
        "./usr/b": File(b"b", 0o755),
        "./usr/a": Hard("./usr/b"),
        "/opt//x/./y": "y",
        "usr/link": Link("../opt"),
    }
    made = from_tar(tmp_path, members)
    assert [(entry.path, entry.kind) for entry in made] == [
        *(("opt", "dir"), ("opt/x", "dir"), ("opt/x/y", "file")),
        *(("usr", "dir"), ("usr/a", "file"), ("usr/b", "hardlink"), ("usr/link", "symlink")),
    ]
    assert content(made[4]) == b"b"


KINDS = [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_root", [False, True])
def test_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes, is_root: bool) -> None:
    with fails(UnpackError, "layer-member-special"):
        from_tar(tmp_path, {"usr/x": Node(kind)}, is_root)


@pytest.mark.parametrize("name", ["../x", "usr/../../x", "usr/.."])
def test_a_name_that_leaves_the_tree_is_refused(tmp_path: Path, name: str) -> None:
    with fails(UnpackError, "member-path-unsafe"):
        from_tar(tmp_path, {name: "x"})


def test_a_tar_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    whole = tar({f"usr/{n}": random.Random(n).randbytes(5000) for n in range(3)})
    for keep in (100, 700, 6000, len(whole) - 11000):
        (tmp_path / "layer.tar").write_bytes(whole[:keep])
        with pytest.raises(UnpackError) as caught:
            index(str(tmp_path / "layer.tar"), "layer")
        assert caught.value.id in ("archive-damaged", "archive-truncated")


@given(st.text())
def test_a_clean_path_stays_in_the_tree(name: str) -> None:
    try:
        path = clean_path(name, "x")
    except UnpackError:
        return
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(path.split("/")) or path == ""
