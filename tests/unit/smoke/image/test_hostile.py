"""Malicious images: each is refused with an error that names it, without using up memory or reading a pipe."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from builder.digest import Digest
from builder.errors import BuilderError, InvalidError, UsageError
from builder.smoke.image.index import LayerIndex, index_layer
from builder.smoke.image.opened import LayerBlob, open_image
from builder.smoke.report import Report, Result
from builder.smoke.results import keep_results, read_results
from builder.smoke.static.run import run_static
from tests.support.errors import fails
from tests.support.images import Member, hard, layout, link, tar
from tests.support.oddtars import AMBIGUOUS
from tests.support.oddtars import LAYERS as ODD_LAYERS


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _long(path: Path) -> None:
    path.write_bytes(b" " * (5 << 20))


@pytest.mark.parametrize(
    ("make", "id"),
    [
        (_pipe, "blob-missing"),
        (_endless, "blob-missing"),
        (_folder, "blob-missing"),
        (_long, "manifest-too-large"),
    ],
)
def test_only_a_small_file_is_read(tmp_path: Path, make: Callable[[Path], None], id: str) -> None:
    layout(tmp_path, [{"a": b""}])
    make(tmp_path / "index.json")
    with fails(InvalidError, id):
        open_image(tmp_path)


def test_a_folder_that_is_not_a_layout_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop/index.json").symlink_to("index.json")
    for path in (tmp_path, tmp_path / "file", tmp_path / "nowhere", tmp_path / "loop"):
        with fails(UsageError, "layout-missing"):
            open_image(path)


def checked(where: Path, layer: bytes) -> Report:
    return run_static(layout(where, [layer], how="plain"), None, [])


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def _bomb(head: bytes, size: int) -> bytes:
    """A small blob that unpacks to `size` zero bytes behind `head`."""
    packer = zstandard.ZstdCompressor(1).compressobj()
    chunk = bytes(1 << 22)
    parts = [packer.compress(head), *(packer.compress(chunk) for _ in range(size // len(chunk))), packer.flush()]
    return b"".join(parts)


def _pax(records: bytes) -> bytes:
    return _header("x", len(records), tarfile.XHDTYPE) + records + b"\0" * (-len(records) % 512)


LAYERS: dict[str, tuple[bytes, str]] = {
    "a name of gigabytes": (_bomb(_header("x", 1 << 30, tarfile.GNUTYPE_LONGNAME), 1 << 27), "layer-ambiguous"),
    "an extended header of gigabytes": (_bomb(_header("x", 1 << 30, tarfile.XHDTYPE), 1 << 27), "layer-ambiguous"),
    "headers without end": (_pax(b"14 path=abcde\n") * 3000 + _header("a", 0) + bytes(1024), "layer-ambiguous"),
    "a name too long": (
        _pax(b"10009 path=" + b"a/" * 4998 + b"b\n") + _header("a", 0) + bytes(1024),
        "layer-path-long",
    ),
    "cut gzip": (gzip.compress(_header("a", 0) + bytes(1024))[:-10], "layer-unreadable"),
    "junk": (b"\x28\xb5\x2f\xfd" + b"junk" * 50, "layer-unreadable"),
    "nothing": (b"", "layer-unreadable"),
}


@pytest.mark.parametrize(("layer", "id"), LAYERS.values(), ids=LAYERS)
def test_a_layer_that_cannot_be_read_is_invalid(tmp_path: Path, layer: bytes, id: str) -> None:
    with fails(InvalidError, id):
        checked(tmp_path, layer)


@pytest.mark.parametrize(
    ("files", "id"),
    [
        ({"../../etc/x": b""}, "layer-path-outside"),
        ({"usr/h": hard("../../etc/passwd")}, "layer-path-outside"),
        ({"usr/h": hard("/etc/shadow")}, "layer-hard-link-broken"),
        ({"usr/a": b"", ".": hard("usr/a")}, "layer-ambiguous"),
    ],
)
def test_a_path_outside_the_image_is_invalid(tmp_path: Path, files: dict[str, Any], id: str) -> None:
    with fails(InvalidError, id):
        run_static(layout(tmp_path, [files]), None, [])


def test_a_deep_path_is_read(tmp_path: Path) -> None:
    deep = "d/" * 1900 + "f"
    report = run_static(layout(tmp_path, [{deep: Member(b"x", 0o666)}]), None, [])
    assert next(result for result in report.results if result.id == "image-no-world-writable").status == "fail"


def test_names_are_printed_without_control_characters_and_kept_unchanged(tmp_path: Path) -> None:
    name = "usr/\x1b]0;x\x07\x9b31m\u202e\udcff"
    report = run_static(layout(tmp_path / "image", [{name: Member(b"x", 0o6777)}]), None, [])
    for text in (report.as_table(width=200), report.as_junit()):
        assert not set(text) & set("\x1b\x07\x9b\u202e\udcff")
    kept = keep_results(report, tmp_path / "results")
    assert not set(kept.read_text("utf-8")) & set("\x1b\x07\x9b\u202e")
    again = read_results(tmp_path / "results", report.digest)
    assert again is not None
    assert [result.message for result in again.results] == [result.message for result in report.results]
    assert any("\udcff" in result.message for result in again.results)


def test_links_that_form_a_loop_or_lead_out_stay_inside(tmp_path: Path) -> None:
    files = {"usr/a": link("b"), "usr/b": link("a"), "usr/out": link("/../../etc")}
    report = run_static(layout(tmp_path, [files]), None, [])
    assert report.results


def test_a_report_of_any_text_is_xml(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    text = "".join(map(chr, [*range(0x20), 0x7F, 0x9B, 0x202E, 0xD800, 0xFFFE, 0xFFFF])) + "<&\"'>]]>"
    report = Report(Digest("sha256:" + "a" * 64), [Result("a", "b", "static", "fail", text)])
    found = ElementTree.fromstring(report.as_junit()).find(".//failure")
    assert found is not None and (found.text or "").endswith("<&\"'>]]>")


def test_random_bytes_are_an_image_or_a_builder_error(tmp_path: Path) -> None:
    import random

    chance = random.Random(7)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(4):
            archive.addfile(tarfile.TarInfo(f"usr/lib/{number}"), io.BytesIO(b""))
    whole = out.getvalue()[:4096]
    for number in range(150):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            report = checked(tmp_path / str(number), bytes(data))
        except BuilderError:
            continue
        assert report.results


@pytest.mark.parametrize("layer", [*AMBIGUOUS.values(), *ODD_LAYERS.values()], ids=[*AMBIGUOUS, *ODD_LAYERS])
@pytest.mark.parametrize("how", ["plain", "gzip", "zstd"])
def test_a_layer_that_engines_unpack_to_other_files_is_refused(tmp_path: Path, layer: bytes, how: str) -> None:
    with fails(InvalidError, "layer-ambiguous"):
        run_static(layout(tmp_path, [layer], how=how), None, [])


def test_members_of_gzip_are_one_stream_with_nothing_after_it(tmp_path: Path) -> None:
    whole = tar({"usr/a": b"1" * 100_000, "usr/b": b"2"})
    first, second = gzip.compress(whole[:5000]), gzip.compress(whole[5000:])
    assert {"usr/a", "usr/b"} <= index_of(tmp_path / "1", first + second).entries.keys()
    assert {"usr/a", "usr/b"} <= index_of(tmp_path / "2", first + gzip.compress(b"") * 300 + second).entries.keys()
    for number, blob in enumerate((first + second + bytes(100), first + second + b"junk", first, first + second[:-4])):
        with fails(InvalidError, "layer-unreadable"):
            index_of(tmp_path / f"bad-{number}", blob)


def index_of(where: Path, blob: bytes) -> LayerIndex:
    """The index of a layer given as its blob."""
    where.mkdir()
    (where / "blob").write_bytes(blob)
    return index_layer(LayerBlob(Digest.of(blob), len(blob), where / "blob"), 0, re.compile(r"(?!)"), where)


@pytest.mark.parametrize("path", ["opt/" + "x" * 256, "opt/" + "ü" * 128 + "/a", "a/" * 2100])
def test_a_path_that_no_engine_can_unpack_is_refused(tmp_path: Path, path: str) -> None:
    image = layout(tmp_path, [tar({path.rstrip("/"): b""}, parents=False)])
    with fails(InvalidError, "layer-path-long"):
        run_static(image, None, [])
    short = layout(tmp_path / "short", [{"opt/" + "x" * 255: b"", "opt/" + "ü" * 127: b""}])
    assert run_static(short, None, []).results
