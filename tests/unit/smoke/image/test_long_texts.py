"""Long paths, links, patterns and settings of a small image: a test ends in seconds, with little memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError
from builder.smoke.image import index, merge
from builder.smoke.static.run import run_static
from tests.support.errors import fails
from tests.support.images import Member, elf, layout, ld_cache, link, tar
from tests.support.limits import ends
from tests.support.nightly import nightly_but
from tests.support.oddtars import END, file, long_name, pax

MEMORY = 1 << 30
LONG = 300_000
DEEP = "a/" * 1900
USUAL = ("folders of PATH", "brackets in the command", "brackets in ld.so.conf", "a long link", "a deep folder of PATH")
"""Images of every run; the others take longest and are in the nightly job."""
TORCH = "torch/lib/libtorch_cuda.so"


def _copies() -> dict[str, Any]:
    """A library is needed thousands of times, and thousands of files have its name."""
    files: dict[str, Any] = {f"srv/{number}/libx.so": b"" for number in range(20_000)}
    many = elf(needed=["libx.so"] * 4000)
    libraries = {f"opt/x-packages/vllm/_C{number}.so": many for number in range(40)}
    return {**files, **libraries, "usr/lib/libx.so": elf(), "opt/lib/libx.so": elf()}


IMAGES: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "folders of PATH": lambda: (
        {f"000/{number}": b"" for number in range(10_000)},
        {"Env": ["PATH=" + ":".join(f"{number:06}" for number in range(LONG))], "Entrypoint": ["x"]},
    ),
    "brackets in the command": lambda: ({"usr/x": b""}, {"Entrypoint": ["/" + "[" * LONG]}),
    "brackets in ld.so.conf": lambda: ({"etc/ld.so.conf": b"include " + b"[" * LONG + b"\n", TORCH: elf()}, {}),
    "volumes": lambda: (
        {f"usr/{number}": b"" for number in range(20_000)},
        {"Volumes": {f"/v{number}": {} for number in range(19_000)}},
    ),
    "copies of a library": lambda: (_copies(), {"Env": ["LD_LIBRARY_PATH=/opt/lib"]}),
    "the folder of a library": lambda: (
        {f"opt/{DEEP}{TORCH}": elf(needed=[f"l{number}" for number in range(200)], rpath="$ORIGIN" * 585)},
        {},
    ),
    "a long link": lambda: (
        {
            "l": link("/" * 900_000 + "usr"),
            "etc/ld.so.cache": ld_cache({f"lib{number}.so": "/l/x" for number in range(20_000)}),
        },
        {},
    ),
    "a deep folder of PATH": lambda: ({"usr/x": b""}, {"Env": ["PATH=" + "/a" * LONG]}),
}


@pytest.mark.parametrize("name", nightly_but(IMAGES, *USUAL))
def test_it_is_tested_in_time(tmp_path: Path, name: str) -> None:
    files, settings = IMAGES[name]()
    image = layout(tmp_path, [files], **settings)

    def work() -> None:
        assert run_static(image, None, []).results

    ends(work, MEMORY)


def _deep_folders() -> bytes:
    """Each file is in two thousand folders of its own."""
    names = (f"{number}/{DEEP}x".encode() for number in range(1000))
    return b"".join(long_name(name) + file(b"x", b"") for name in names) + END


def _attributes() -> bytes:
    records = pax({f"SCHILY.xattr.user.{number}": "" for number in range(30_000)})
    return b"".join(records + file(b"usr/%d" % number, b"") for number in range(20)) + END


@pytest.mark.parametrize("make", [_deep_folders, _attributes])
def test_what_a_member_brings_besides_its_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes]
) -> None:
    monkeypatch.setattr(index, "_MEMORY", index._MEMORY // 8)
    image = layout(tmp_path, [make()])

    def work() -> None:
        with fails(InvalidError, "layer-entries-too-many"):
            run_static(image, None, [])

    ends(work, MEMORY)


def test_layers_that_remove_files_of_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All entries below are looked at for each of them."""
    monkeypatch.setattr(merge, "_MOST_DROPS", 20_000)
    large = tar({f"usr/{number}": b"" for number in range(1000)})
    small = [{f"usr/.wh.{number}": Member()} for number in range(30)]
    with fails(InvalidError, "layer-entries-too-many"):
        run_static(layout(tmp_path / "many", [large, *small]), None, [])
    assert run_static(layout(tmp_path / "few", [large, *small[:10]]), None, []).results


@pytest.mark.parametrize(
    ("folder", "name", "count"),
    [("lib/python3.1/", "", 13_000), ("aarch64/", "x/libx.so.", 4000), ("apt/auth.conf.d/", "\nx/", 4000)],
    ids=["library", "processors", "passwords"],
)
def test_paths_of_one_folder_again_and_again(folder: str, name: str, count: int, tmp_path: Path) -> None:
    """A layer of forty kilobytes took up to 109 s: each folder of a path was looked at again and again."""
    deep = "usr/" + folder * (4000 // len(folder)) + name
    image = layout(tmp_path, [{"etc/x": b""}, tar({f"{deep}{number}": b"" for number in range(count)}, parents=False)])
    ends(lambda: run_static(image, None, []))
