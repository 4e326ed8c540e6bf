"""Layers merged to the view that a container has."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import InvalidError, PinError
from builder.smoke.image import index
from builder.smoke.image.layerstream import member_path
from builder.smoke.image.opened import open_image
from builder.smoke.image.tree import ImageTree, PathNotFound
from tests.support.errors import fails
from tests.support.images import Files, Member, elf, folder, hard, layout, link, tar


def tree_of(where: Path, *layers: Files | bytes, keep: tuple[str, ...] = (), how: str = "zstd") -> ImageTree:
    kept = where / "kept"
    kept.mkdir(parents=True)
    return ImageTree.of_image(open_image(layout(where / "image", layers, how=how)), kept, keep)


@pytest.mark.parametrize("how", ["zstd", "gzip", "plain"])
def test_later_layers_win(tmp_path: Path, how: str) -> None:
    tree = tree_of(tmp_path, {"etc/a": b"old", "etc/b": b"b"}, {"etc/a": Member(b"new", 0o600)}, how=how)
    assert tree.read("/etc/a") == b"new"
    assert tree.read("etc/b") == b"b"
    entry = tree.stat("/etc/a")
    assert (entry.layer, entry.mode, entry.size) == (1, 0o600, 3)
    assert [layer.number for layer in tree.layers] == [0, 1]


def test_whiteouts(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {"opt/a/x": b"1", "opt/a/y": b"1", "opt/b/x": b"1", "opt/bb": b"1", "opt/c/d/x": b"1"},
        {"opt/a/.wh.x": b"", "opt/.wh.b": b"", "opt/c/.wh..wh..opq": b"", "opt/c/new": b"2"},
    )
    assert sorted(path for path, _ in tree.below("/opt")) == [
        "opt",
        "opt/a",
        "opt/a/y",
        "opt/bb",
        "opt/c",
        "opt/c/new",
    ]


def test_file_over_folder_and_back(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"a/b/c": b"1", "x": b"1"}, {"a": b"file", "x/y": b"2"})
    assert "a/b/c" not in tree.entries
    assert tree.read("a") == b"file"
    assert tree.read("x/y") == b"2"


def test_links(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {
            "lib": link("usr/lib"),
            "usr/lib/x.so.1": b"x",
            "usr/lib/x.so": link("x.so.1"),
            "opt/up": link("../../../../usr/lib/x.so"),
            "opt/abs": link("/lib/x.so"),
            "opt/loop": link("loop"),
            "opt/gone": link("/nowhere/x"),
            "opt/through": link("/usr/lib/x.so.1/more"),
        },
    )
    assert tree.resolve("/lib/x.so") == "usr/lib/x.so.1"
    # The parent of the root is the root: nothing leads to the host.
    assert tree.resolve("opt/up") == "usr/lib/x.so.1"
    assert tree.read("/opt/abs") == b"x"
    assert tree.resolve("/") == ""
    for path, why in (("loop", "loop"), ("gone", "no /nowhere"), ("through", "no directory"), ("none", "not in")):
        with pytest.raises(PathNotFound, match=why):
            tree.resolve(f"/opt/{path}")
    with pytest.raises(PathNotFound, match="it is a dir"):
        tree.open("/usr/lib")


def test_a_folder_hides_the_link_below_it(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"lib": link("usr/lib"), "usr/lib/a": b"a"}, {"lib/b": b"b"})
    assert tree.get("lib").kind == "dir"  # type: ignore[union-attr]
    with pytest.raises(PathNotFound):
        tree.resolve("/lib/a")


@pytest.mark.parametrize("below", [link("usr/lib"), b"a file"])
@pytest.mark.parametrize("name", ["lib/b", "lib/c/b", "lib/.wh.a", "lib/c/.wh.a", "lib/.wh..wh..opq"])
def test_a_layer_cannot_reach_through_a_link_or_file_of_a_lower_one(tmp_path: Path, below: Any, name: str) -> None:
    lower = {"lib": below, "usr/lib/a": b"a"}
    with fails(InvalidError, "layer-ambiguous"):
        tree_of(tmp_path, lower, tar({name: b""}, parents=False))
    # With a member for the folder, the folder takes the place of the link or file.
    assert tree_of(tmp_path / "folder", lower, tar({name: b""})).stat("lib").kind == "dir"


def test_hard_links_share_content(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"a": Member(elf(), 0o755), "b": hard("a", 0o755)}, {"a": b"other"})
    assert tree.read("b") == elf()
    assert tree.stat("b").machine == 183
    assert tree.read("a") == b"other"


def test_wanted_files_are_kept_in_one_pass(tmp_path: Path) -> None:
    big = bytes(range(256)) * 9000
    tree = tree_of(tmp_path, {"opt/x.so.1": big, "opt/y": b"y"}, keep=("/opt/x.so*",))
    assert list(tree.layers[0].kept) == ["opt/x.so.1"]
    with tree.open("/opt/x.so.1") as file:
        file.seek(-256, 2)
        assert file.read() == bytes(range(256))
    # Not asked for in advance: a second pass brings it.
    assert tree.read("opt/y") == b"y"


def test_large_layers_are_read_by_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers: list[Files] = [{"opt/x.so": elf(needed=["a"]), "opt/y": b"y"}, {"opt/y": b"z" * 9000, "opt/l": link("y")}]
    here = tree_of(tmp_path / "threads", *layers, keep=("/opt/y",))
    monkeypatch.setattr(index, "_FOR_PROCESSES", 0)
    # Threads that other tests left running would send the layers to threads.
    monkeypatch.setattr(index.threading, "active_count", lambda: 1)
    pids = multiprocessing.get_context("fork").Value("i", 0)
    monkeypatch.setattr(
        index, "member_path", lambda name: (pids.__setattr__("value", os.getpid()), member_path(name))[1]
    )
    there = tree_of(tmp_path / "processes", *layers, keep=("/opt/y",))
    assert pids.value not in (0, os.getpid())
    assert there.entries == here.entries
    assert there.read("/opt/l") == here.read("/opt/l") == b"z" * 9000


def test_long_names_and_sizes_of_a_block(tmp_path: Path) -> None:
    path = "usr/" + "/".join("d" * 60 for _ in range(5)) + "/" + "ü" * 120
    tree = tree_of(tmp_path, {path: b"z" * 512, "b": b"z" * 1024, "c": b""})
    assert tree.read(path) == b"z" * 512
    assert tree.stat("b").size == 1024
    assert tree.match("usr/*ü") == [path]


def test_layers_that_are_absent(tmp_path: Path) -> None:
    where = layout(tmp_path / "image", [{"base": b"1"}, {"ours": b"2"}])
    image = open_image(where)
    image.layers[0].path.unlink()
    tree = ImageTree.of_image(open_image(where), tmp_path)
    assert [blob.digest for blob in tree.absent] == [image.layers[0].digest]
    assert tree.read("ours") == b"2"


def test_damaged_layers(tmp_path: Path) -> None:
    for number, (how, change) in enumerate((("zstd", 40), ("gzip", 40), ("plain", 150))):
        where = layout(tmp_path / str(number), [{"a": b"1" * 5000, "b": b"2"}], how=how)
        blob = open_image(where).layers[0].path
        data = bytearray(blob.read_bytes())
        data[len(data) // 2 if how != "plain" else change] ^= 0xFF
        blob.write_bytes(data[: len(data) // 2 + 8].ljust(len(data), b"\xff") if how != "plain" else data)
        with fails(InvalidError, "layer-unreadable"):
            ImageTree.of_image(open_image(where), tmp_path)


def test_a_path_outside_the_image_is_invalid(tmp_path: Path) -> None:
    with fails(InvalidError, "layer-path-outside"):
        tree_of(tmp_path, tar({"a/../../etc/passwd": b""}, parents=False))


def test_a_broken_hard_link_is_invalid(tmp_path: Path) -> None:
    with fails(InvalidError, "layer-hard-link-broken"):
        tree_of(tmp_path, tar({"a": hard("none")}))


def test_empty_layer(tmp_path: Path) -> None:
    out = io.BytesIO()
    tarfile.open(fileobj=out, mode="w").close()
    assert not tree_of(tmp_path, out.getvalue()).entries


def test_the_image_of_an_index(tmp_path: Path) -> None:
    where = layout(tmp_path, [{"a": b""}])
    index = json.loads((where / "index.json").read_text())
    arm = index["manifests"][0]
    layout(where, [{"a": b"x"}], architecture="amd64")
    amd = json.loads((where / "index.json").read_text())["manifests"][0]
    described = [
        {**arm, "platform": {"os": "linux", "architecture": "arm64"}},
        {**amd, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    (where / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": described}))
    assert open_image(where).digest == arm["digest"]
    assert open_image(where, Digest(amd["digest"])).config["architecture"] == "amd64"
    (where / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [arm, amd]}))
    with fails(PinError, "platform-missing"):
        open_image(where)
    # podman prefers the exact variant, docker the first that fits.
    described[1]["platform"] = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    (where / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": described}))
    with fails(PinError, "platform-ambiguous"):
        open_image(where)
    with fails(InvalidError, "blob-missing"):
        open_image(where, Digest.from_hex("0" * 64))
    path = where / "blobs" / "sha256" / arm["digest"][7:]
    path.write_bytes(path.read_bytes() + b" ")
    with fails(InvalidError, "blob-damaged"):
        open_image(where, Digest(arm["digest"]))


def test_folders_keep_owner_and_mode(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"srv": folder(0o700, 5), "srv/a": b""}, {"srv/b": b""})
    assert (tree.stat("srv").mode, tree.stat("srv").uid) == (0o755, 0)
