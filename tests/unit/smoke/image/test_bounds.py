"""Small hostile images end a test in seconds, with little memory: every reader has a bound."""

from __future__ import annotations

import gzip
import json
import signal
import struct
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from builder.digest import Digest
from builder.errors import InvalidError
from builder.smoke.image import index, tree
from builder.smoke.image.opened import open_image
from builder.smoke.image.secrets import find_in_text, find_in_variable, find_secrets
from builder.smoke.static.run import run_static
from tests.support.cli import Cli
from tests.support.errors import fails
from tests.support.images import Member, elf, layout, ld_cache, link, program, tar
from tests.support.limits import ends
from tests.support.nightly import NIGHTLY, nightly, nightly_but

N = 1 << 20
TEXTS = {
    "a key without an end": b"-----BEGIN PRIVATE KEY-----" + b"\"'" * N + b"!",
    "a key of separators": b"-----BEGIN PRIVATE KEY-----\n" + b"A\"'" * 40 + b"\\n" * N + b"!",
    "keys": b"-----BEGIN PRIVATE KEY-----\n" * (N // 28),
    "a name without a value": b"a" * N,
    "an address without a password": b"a" * N + b"://" + b"b" * N,
    "addresses": b"a://:" * (N // 5),
    "an OpenAI key without its middle": b"sk-" * (N // 3) + b"T3BlbkFJ",
    "lines": b"\n" * N,
    "passwords": b'"auth"' + b" " * N,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_is_searched_in_time_that_is_linear_in_it(text: bytes) -> None:
    def work() -> None:
        for path in ("x", "root/.docker/config.json", "root/.pypirc", "root/.netrc", "srv/.env", "etc/pip.conf"):
            list(find_secrets(path, text))
        list(find_in_text(text.decode()))
        list(find_in_variable("A_TOKEN", text.decode()))

    ends(work)


def checked(where: Path, files: dict[str, Any], **settings: Any) -> Callable[[], object]:
    image = layout(where / "image", [files], **settings)

    def work() -> None:
        assert run_static(image, None, []).results

    return work


def _overlapping_versions() -> bytes:
    """A section of needed versions whose entries lie on each other."""
    data = elf(versions={"libc.so.6": ["GLIBC_2.34"]}, more=bytes(N))
    place = data.index(struct.pack("<HHIII", 1, 1, 1, 16, 0))
    entry = struct.pack("<HHIII", 1, 0xFFFF, 1, 0, 1)
    section = data.index(struct.pack("<Q", 32) + struct.pack("<II", 1, 1))
    body = entry + bytes(16)
    whole = data[:place] + body + data[place + 32 :]
    return whole[: section + 12] + struct.pack("<I", 0xFFFFFFFF) + whole[section + 16 :]


def _names_without_end() -> bytes:
    """Many needed libraries, each name of them megabytes long."""
    return elf(needed=["a" * (2 * N)] * 20 + ["b"] * 20_000)


LIBRARIES = {
    "overlapping versions": _overlapping_versions,
    "padding instead of GPU code": lambda: elf(gpu=bytes(64 * N)),
    "names without end": _names_without_end,
    "folders without end": lambda: elf(needed=["libc.so.6"], rpath=":".join(["/usr/lib"] * 100_000)),
}


@pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)
def test_a_library_is_read_in_time(tmp_path: Path, make: Callable[[], bytes]) -> None:
    ends(checked(tmp_path, {"usr/lib/libx.so": make()}))


def test_the_loaders_files_are_read_in_time(tmp_path: Path) -> None:
    cache = ld_cache({f"lib{number}.so": "/usr/lib/x" for number in range(100_000)}).replace(b"\0lib", b"xlib")
    files = {
        "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n" * 10_000,
        **{f"etc/ld.so.conf.d/{number}.conf": b"include /etc/ld.so.conf.d/*.conf\n" * 100 for number in range(100)},
        "etc/ld.so.cache": cache,
        **{f"opt/lib{number}.so": elf(versions={"libc.so.6": ["GLIBC_2.17"]}) for number in range(20)},
    }
    ends(checked(tmp_path, files))


def test_links_are_followed_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link leads to a thousand others. The limit is reached after 14 s, and a tenth of it soon."""
    if not NIGHTLY:
        monkeypatch.setattr(tree, "_MOST_WORK", tree._MOST_WORK // 10)
    chain = {f"opt/{number}": link(("d/../" * 800) + str(number + 1)) for number in range(39)}
    files = {**chain, "opt/d/x": b"", "opt/39": b"", **{f"srv/{number}": link("/opt/0") for number in range(800)}}
    image = layout(tmp_path / "image", [files], Entrypoint=["/opt/loop"])

    def work() -> None:
        from builder.model.check import Check

        with fails(InvalidError, "image-links-too-many"):
            run_static(image, None, [Check(id="links", tier="static", kind="no-dangling-links")])

    ends(work)


@pytest.mark.parametrize("entry", ["/opt/a", "/opt/self", "tool", "/opt/deep/tool"])
def test_a_link_cycle_at_the_entrypoint_ends(tmp_path: Path, entry: str) -> None:
    files = {
        "opt/a": link("b"),
        "opt/b": link("a"),
        "opt/self": link("self"),
        "opt/deep": link("deep/deep"),
        "usr/bin/tool": link("/usr/bin/tool"),
        "usr/bin/script": program(b"#!"),
    }
    ends(checked(tmp_path, files, Entrypoint=[entry], Env=["PATH=/usr/bin"]))


def test_a_script_that_names_no_interpreter_fails(tmp_path: Path) -> None:
    image = layout(tmp_path / "image", [{"usr/bin/script": program(b"#!")}], Entrypoint=["/usr/bin/script"])
    (result,) = [item for item in run_static(image, None, []).results if item.kind == "starts"]
    assert result.status == "fail"


def test_deep_paths_below_whiteouts_are_merged_in_time(tmp_path: Path) -> None:
    deep = "a/" * 1500
    files = {f"opt/{deep}{number}": Member() for number in range(800)}
    image = layout(tmp_path / "image", [tar(files, parents=False), {"srv/.wh.x": b""}, {"srv/.wh.y": b""}])
    ends(lambda: run_static(image, None, []))


def test_an_image_of_too_many_layers_is_refused(tmp_path: Path) -> None:
    image = layout(tmp_path, [{"opt/a": b""}])
    opened = open_image(image)
    manifest = {**opened.manifest, "layers": [opened.manifest["layers"][0]] * 4000}
    data = json.dumps(manifest, separators=(",", ":")).encode()
    (image / Digest.of(data).path).write_bytes(data)
    with fails(InvalidError, "image-layers-too-many"):
        open_image(image, Digest.of(data))


def test_a_configuration_of_many_variables_is_read_in_time(tmp_path: Path) -> None:
    names = [f"V{number}=1" for number in range(15_000)]
    ends(checked(tmp_path, {"opt/a": b""}, Env=names))


def test_a_configuration_of_too_many_variables_is_refused(tmp_path: Path) -> None:
    with fails(InvalidError, "config-not-json"):
        checked(tmp_path, {"opt/a": b""}, Env=[f"V{number}=1" for number in range(200_000)])()


def _long_names(count: int = 33_000 if NIGHTLY else 4_200) -> bytes:
    """The members of empty files with names of 4000 characters."""
    info = tarfile.TarInfo("././@LongLink")
    info.size, info.type = 4001, tarfile.GNUTYPE_LONGNAME
    before, after = info.tobuf(tarfile.GNU_FORMAT), tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT)
    names = (str(number).zfill(8).encode() + (b"/" + b"a" * 248) * 16 + b"/aaaaaaa" for number in range(count))
    return b"".join(before + name.ljust(4096, b"\0") + after for name in names) + bytes(1024)


BOMBS = {
    "entries": (_long_names, "layer-entries-too-many"),
    "bytes": (lambda: tar({"opt/a": bytes(300 << 20)}), "layer-too-large"),
    "bytes after the end": (lambda: tar({"opt/a": b""}) + bytes(300 << 20), "layer-too-large"),
}


@pytest.mark.parametrize(("make", "id"), BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("how", nightly_but(["zstd", "gzip"], "zstd"))
def test_a_small_blob_that_is_large_unpacked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes], id: str, how: str
) -> None:
    if not NIGHTLY:
        monkeypatch.setattr(index, "_MEMORY", index._MEMORY // 8)
    data = make()
    packed = zstandard.ZstdCompressor(1).compress(data) if how == "zstd" else gzip.compress(data, 9)
    del data
    image = layout(tmp_path, [packed], how="plain")
    with fails(InvalidError, id):
        run_static(image, None, [])


@pytest.mark.parametrize(
    ("make", "id"),
    [
        pytest.param(lambda: _long_names(15_000), "layer-entries-too-many", marks=nightly),
        (lambda: tar({"opt/a": bytes(250 << 20)}), "layer-too-large"),
    ],
    ids=["entries", "bytes"],
)
def test_layers_that_are_large_together_are_refused(tmp_path: Path, make: Callable[[], bytes], id: str) -> None:
    packed = zstandard.ZstdCompressor(1).compress(make())
    image = layout(tmp_path, [packed] * 5, how="plain")
    with fails(InvalidError, id):
        run_static(image, None, [])


def test_sigterm_ends_a_test_within_two_seconds(cli: Cli) -> None:
    text = b"".join(b"-----BEGIN PRIVATE KEY-----\n" * 37_000 for _ in range(100))
    layout(cli.folder / "image", [{f"opt/{number}": text} for number in range(8)])
    process = cli.start("test", "oci:image")
    # The search for secrets runs in threads of its own: the signal arrives while compiled code reads.
    while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    # Two seconds on a machine that does nothing else.
    assert (process.returncode, time.monotonic() - start < 6) == (143, True), err
