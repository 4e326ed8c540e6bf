"""The loader's choice, by glibc's rules."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from builder.smoke.image.opened import open_image
from builder.smoke.image.tree import ImageTree, PathNotFound
from builder.smoke.static.loader import LibraryMatch, Loader
from tests.support.images import Files, elf, layout, ld_cache, link

LIB = elf()


def loader(where: Path, files: Files, **env: str) -> Loader:
    return Loader(ImageTree.of_image(open_image(layout(where / "image", [files])), where), env)


def test_rpath_comes_before_library_path(tmp_path: Path) -> None:
    files = {
        "app/lib/main.so": elf(needed=["libx.so"], rpath="$ORIGIN/../near"),
        "app/near/libx.so": LIB,
        "env/libx.so": LIB,
    }
    found = loader(tmp_path, files, LD_LIBRARY_PATH="/env").find("libx.so", "/app/lib/main.so")
    assert found == LibraryMatch("/app/lib/../near/libx.so", "/app/near/libx.so", "DT_RPATH of /app/lib/main.so")


def test_library_path_comes_before_runpath(tmp_path: Path) -> None:
    files = {
        "app/main.so": elf(runpath="${ORIGIN}/near"),
        "app/near/libx.so": LIB,
        "env/libx.so": LIB,
    }
    assert loader(tmp_path, files, LD_LIBRARY_PATH="/none:/env").find("libx.so", "/app/main.so").real == "/env/libx.so"
    files = {**files, "env/libx.so": elf(machine=62)}
    # A library of another machine is passed over.
    found = loader(tmp_path / "b", files, LD_LIBRARY_PATH="/env").find("libx.so", "/app/main.so")
    assert found.why == "DT_RUNPATH of /app/main.so"


def test_parents_rpath_counts_unless_the_object_has_a_runpath(tmp_path: Path) -> None:
    files = {
        "app/a.so": elf(rpath="/parent"),
        "app/b.so": elf(),
        "app/c.so": elf(runpath="/own"),
        "parent/libx.so": LIB,
        "own/libx.so": LIB,
    }
    asked = loader(tmp_path, files)
    assert asked.find("libx.so", "/app/b.so", ["/app/a.so"]).real == "/parent/libx.so"
    assert asked.find("libx.so", "/app/c.so", ["/app/a.so"]).real == "/own/libx.so"
    with pytest.raises(PathNotFound, match=r"libx\.so is not in the image where the loader looks"):
        asked.find("libx.so", "/app/b.so")


def test_cache_then_configuration_then_default_folders(tmp_path: Path) -> None:
    files: dict[str, bytes] = {"app/b.so": elf(), "usr/lib/libx.so": LIB}
    assert loader(tmp_path / "1", files).find("libx.so", "/app/b.so").why == "default folder"
    files |= {
        "etc/ld.so.conf": b"# all\ninclude ld.so.conf.d/*.conf\n/last\n",
        "etc/ld.so.conf.d/x.conf": b"/conf # here\n",
        "conf/libx.so": LIB,
        "last/libx.so": LIB,
    }
    asked = loader(tmp_path / "2", files)
    assert asked.configured() == ["/conf", "/last"]
    assert asked.find("libx.so", "/app/b.so").real == "/conf/libx.so"
    files |= {
        "etc/ld.so.cache": ld_cache({"liby.so": "/y/liby.so", "libx.so": "/cached/libx.so"}),
        "cached/libx.so": LIB,
    }
    found = loader(tmp_path / "3", files).find("libx.so", "/app/b.so")
    assert found == LibraryMatch("/cached/libx.so", "/cached/libx.so", "ld.so.cache")


def test_preload_and_paths(tmp_path: Path) -> None:
    files = {
        "app/a.so": elf(rpath="/r"),
        "r/libx.so": LIB,
        "pre/libx.so": link("libx.so.2"),
        "pre/libx.so.2": LIB,
    }
    found = loader(tmp_path, files, LD_PRELOAD="/none/libx.so:/pre/libx.so").find("libx.so", "/app/a.so")
    assert (found.real, found.why) == ("/pre/libx.so.2", "LD_PRELOAD")
    assert loader(tmp_path / "b", files).find("/pre/libx.so", "/app/a.so").real == "/pre/libx.so.2"


def test_the_table_of_a_cache_is_the_one_that_glibc_reads(tmp_path: Path) -> None:
    """Behind an old table, whose length its header says: another one may be in it."""
    decoy, real = (ld_cache({"libx.so": f"/{name}/libx.so"}) for name in ("decoy", "real"))
    count = -(-len(decoy) // 12)
    old = b"ld.so-1.7.0\0" + struct.pack("<I", count) + decoy.ljust(12 * count, b"\0")
    for number, data in enumerate((real, old.ljust(-(-len(old) // 8) * 8, b"\0") + real)):
        found = loader(tmp_path / str(number), {"app/a.so": LIB, "etc/ld.so.cache": data}).cached("libx.so")
        assert found == ["/real/libx.so"]


def test_a_cache_whose_rows_share_one_long_text(tmp_path: Path) -> None:
    """400 kB of rows would be 40 MB of names; 16 MB, 3 GB."""
    count = 16_000
    key = 48 + 24 * count
    rows = struct.pack("<IIIIQ", 0x0A03, key, key, 0, 0) * count
    data = b"glibc-ld.so.cache1.1" + struct.pack("<II20x", count, 0) + rows + b"/" * 2500 + b"\0"
    with pytest.raises(ValueError, match="again and again"):
        loader(tmp_path, {"etc/ld.so.cache": data}).cached("x")
