"""Layer blobs: the same bytes from the same entries, whatever the machine, the user, the locale or the threads."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from builder.digest import Digest
from builder.errors import EngineError
from builder.oci import layerblob as layers
from builder.oci.format import MEDIA_TYPES, MTIME
from builder.oci.layerblob import write_layer
from builder.store.records import LayerRecord
from builder.store.store import Store
from builder.unpack.entry import Entry, directory, from_bytes, symlink
from builder.unpack.spool import index
from builder.unpack.tree import normalise
from tests.support.errors import fails
from tests.support.project import ROOT
from tests.support.tars import File, Folder, Hard, Link, tar

UNDECODABLE = b"usr/share/caf\xe9".decode("utf-8", "surrogateescape")
MEMBERS = {
    "usr/bin/tool": File(b"#!/bin/sh\n" * 100, 0o755),
    "usr/bin/alias": Hard("usr/bin/tool"),
    "usr/lib/link": Link("../bin/tool"),
    "usr/share/empty": Folder(0o755),
    "usr/share/" + "long/" * 60 + "name": b"deep",
    "usr/share/käse": b"\0" * 5000,
    UNDECODABLE: b"bytes",
    "etc/secret": File(b"s", 0o600),
}
# What these members came to when the format was fixed. Another value here means another digest of every image.
GOLDEN = {
    "tar": "9a653a7730bf68814db898b88ddebcefa56adccb648b894158187c63be994d17",
    "zstd": "dfc039ef3fb6bb718b065d301d62504a633a3835b61e83ed2a3594fcd536104a",
    "gzip": "199433386afef305741be069592ca069601f063d1a81675eca19f12d77fce262",
}


def entries(folder: Path) -> list[Entry]:
    path = folder / "golden.tar"
    # As dpkg-deb writes it: the names' bytes, without a word on their encoding.
    path.write_bytes(tar(MEMBERS, format=tarfile.GNU_FORMAT))
    return normalise(index(str(path), "golden"), is_root=False)


def written(store: Store, found: list[Entry], compression: str = "none", threads: int = 1) -> LayerRecord:
    return write_layer(store, found, compression=compression, threads=threads)


def unpacked(store: Store, record: LayerRecord) -> bytes:
    data = store.read(record.digest)
    if "zstd" in record.media_type:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return gzip.decompress(data) if "gzip" in record.media_type else data


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_golden_digests(store: Store, tmp_path: Path, compression: str) -> None:
    if compression == "gzip" and "ng" in zlib.ZLIB_RUNTIME_VERSION:
        pytest.skip("this Python's zlib is zlib-ng")
    record = written(store, entries(tmp_path), compression)
    assert record.diff_id == f"sha256:{GOLDEN['tar']}"
    assert record.digest == f"sha256:{GOLDEN['tar' if compression == 'none' else compression]}"


SCRIPT = """
import os, sys
os.umask(int(sys.argv[3], 8))
from pathlib import Path
from builder.store.store import Store
from tests.unit.oci import test_layer
found = test_layer.entries(Path(sys.argv[1]))
record = test_layer.written(Store(Path(sys.argv[2])), found, "zstd")
print(record.digest.hex)
"""

MACHINES = [
    {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "umask": "077"},
    {"TZ": "America/New_York", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", "USER": "nobody", "umask": "000"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "1", "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1", "umask": "027"},
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine["LC_ALL"])
def test_time_zone_locale_umask_and_user_do_not_matter(tmp_path: Path, machine: dict[str, str]) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **machine}
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-c", SCRIPT, tmp_path / "work", tmp_path / "store", environ.pop("umask")]
    said = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, check=True).stdout
    assert said.strip() == GOLDEN["zstd"]


def big(count: int) -> bytes:
    noise = random.Random(1)
    return b"".join(noise.randbytes(1 << 14) * 4 for _ in range(count))


@pytest.mark.parametrize(("compression", "count"), [("zstd", 400), ("gzip", 60)])
def test_threads_and_chunks_do_not_matter(store: Store, compression: str, count: int) -> None:
    # zstd gives each thread a piece of several megabytes.
    data = big(count)
    noise = random.Random(2)

    def in_pieces() -> Iterator[bytes]:
        start = 0
        while start < len(data):
            size = noise.choice([1, 511, 70_000, 3_000_000])
            yield data[start : start + size]
            start += size

    whole = [from_bytes("usr/big", data)]
    pieces = [Entry("usr/big", "file", 0o644, len(data), read=in_pieces)]
    digests = {written(store, whole, compression, threads).digest for threads in (1, 2, 4)}
    digests |= {written(store, pieces, compression, threads).digest for threads in (1, 4)}
    assert len(digests) == 1


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_the_record_describes_the_blob(store: Store, tmp_path: Path, compression: str) -> None:
    found = entries(tmp_path)
    record = written(store, found, compression)
    plain = unpacked(store, record)
    assert record.size == store.blob(record.digest).stat().st_size
    assert record.tar_size == len(plain)
    assert record.diff_id == Digest.of(plain)
    assert record.media_type == MEDIA_TYPES[compression]
    assert record.entries == len(found)


def test_members_have_one_time_one_owner_and_their_modes(store: Store, tmp_path: Path) -> None:
    plain = unpacked(store, written(store, entries(tmp_path)))
    with tarfile.open(fileobj=io.BytesIO(plain), encoding="utf-8", errors="surrogateescape") as archive:
        members = {member.name: member for member in archive}
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members.values()} == {(MTIME, 0, 0, "", "")}
        assert {m.mode for m in members.values() if m.isdir()} == {0o755}
        assert members["usr/bin/alias"].isreg()
        assert (members["usr/bin/tool"].type, members["usr/bin/tool"].linkname) == (tarfile.LNKTYPE, "usr/bin/alias")
        assert members["etc/secret"].mode == 0o600
        assert members["usr/lib/link"].linkname == "../bin/tool"
        content = {name: archive.extractfile(m).read() for name, m in members.items() if m.isreg()}  # type: ignore[union-attr]
    assert content["usr/share/käse"] == b"\0" * 5000
    assert content[UNDECODABLE] == b"bytes"
    assert content["usr/share/" + "long/" * 60 + "name"] == b"deep"
    assert len(plain) % tarfile.RECORDSIZE == 0


@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not installed")
def test_other_readers_see_the_same_names(store: Store, tmp_path: Path) -> None:
    record = written(store, entries(tmp_path))
    (tmp_path / "out").mkdir()
    command = [
        "tar",
        "--extract",
        "--no-same-owner",
        "--file",
        store.blob(record.digest),
        "--directory",
        tmp_path / "out",
    ]
    subprocess.run(command, check=True)
    names = {os.fsencode(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert b"usr/share/caf\xe9" in names
    assert "usr/share/käse".encode() in names
    assert len(names) == record.entries


def test_files_of_more_than_8_gib_have_a_header(store: Store) -> None:
    huge = Entry("usr/huge", "file", 0o644, 9 << 30)
    with tarfile.open(fileobj=io.BytesIO(layers._header(huge) + b"\0" * 1024)) as archive:
        header = archive.next()
    assert header is not None
    assert header.size == 9 << 30


def test_the_listing_names_every_entry_in_order(store: Store, tmp_path: Path) -> None:
    found = entries(tmp_path)
    rows = [json.loads(line) for line in store.read(written(store, found).listing).splitlines()]
    assert rows == [[entry.path, entry.kind, entry.mode, entry.size, entry.link] for entry in found]


def left(store: Store) -> list[str]:
    return [path.name for path in (*store.tmp.iterdir(), *(store.root / "blobs/sha256").iterdir())]


@pytest.mark.parametrize("size", [0, 4, 6, 5000])
def test_a_file_of_another_size_than_announced_stops_it(store: Store, size: int) -> None:
    wrong = Entry("usr/a", "file", 0o644, size, read=lambda: iter((b"12345",)), owner="somebody")
    with fails(EngineError, "entry-size-mismatch"):
        written(store, [directory("usr"), wrong], "zstd")
    assert left(store) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_an_error_leaves_no_file(store: Store, error: type[BaseException]) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * (3 << 20)
        raise error

    with pytest.raises(error):
        written(store, [from_bytes("usr/a", b"a"), Entry("usr/b", "file", 0o644, 4 << 20, read=broken)], "zstd")
    assert left(store) == []


def test_progress_sums_to_the_tar_size(store: Store) -> None:
    seen: list[int] = []
    found = [from_bytes(f"usr/{n}", b"x" * (1 << 20)) for n in range(5)]
    record = write_layer(store, found, progress=seen.append)
    assert sum(seen) == record.tar_size
    assert len(seen) > 3


def test_another_libzstd_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstandard, "ZSTD_VERSION", (1, 4, 9))
    with fails(EngineError, "libzstd-version") as caught:
        written(store, [symlink("usr/a", "b")], "zstd")
    assert "zstandard==" in caught.value.next
    assert left(store) == []


def test_another_zlib_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "1.3.1.zlib-ng")
    with fails(EngineError, "zlib-ng"):
        written(store, [symlink("usr/a", "b")], "gzip")
