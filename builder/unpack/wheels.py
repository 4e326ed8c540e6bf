"""Unpacks wheels into entries, in the installation scheme of the image's Python.

The wheel format: packaging.python.org/en/latest/specifications/binary-distribution-format. Nothing is run, nothing
is byte-compiled: `.pyc` files differ from one compilation to the next.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .bounds import Budget
from .entry import CHUNK, Entry, UnpackError, clean_path, damaged, from_bytes, inflater

INSTALLER = b"builder\n"
_LARGEST_SCRIPT, _LARGEST_RECORD, _LARGEST_TEXT = 32 << 20, 8 << 20, 1 << 20
"""Bytes of a script, of RECORD (the longest of a known wheel has 2 MB), and of METADATA and entry_points.txt."""
_LARGEST_TABLE = 16 << 20
"""Bytes of the table of a zip, which zipfile reads into memory; about a hundred for a file."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those of wheels on indexes."""
_GAP = re.compile(r"[^\S\n]{100}")
"""White space within a line of entry_points.txt: the time of configparser is quadratic in it."""


@dataclass(frozen=True)
class Scheme:
    """Where the parts of a wheel go: folders relative to the root, and the interpreter that scripts name."""

    site: str
    scripts: str = "usr/local/bin"
    data: str = "usr/local"
    headers: str = "usr/local/include"
    interpreter: str = "/usr/bin/python3"


def install(path: Path, label: str, scheme: Scheme, budget: Budget) -> list[Entry]:
    """A wheel as an installed distribution. `label` is the wheel's own file name; `path` may have any name.

    Raises UnpackError, also while contents are read.
    """
    with damaged(label):
        return _install(_open(path, label, budget), label, scheme, budget)


def _install(archive: zipfile.ZipFile, label: str, scheme: Scheme, budget: Budget) -> list[Entry]:
    info_dir = _info_dir(archive, label)
    recorded = _recorded(archive, info_dir, label)
    entries: list[Entry] = []
    rows: list[tuple[str, str, str]] = []

    def add(entry: Entry, digest: str, size: str) -> None:
        entries.append(entry)
        rows.append((posixpath.relpath("/" + entry.path, "/" + scheme.site), digest, size))

    def add_made(entry: Entry, data: bytes) -> None:
        add(entry, record_hash((data,)), str(len(data)))

    for info in archive.infolist():
        if info.is_dir() or info.filename in (f"{info_dir}/RECORD", f"{info_dir}/INSTALLER"):
            continue
        if info.filename in (f"{info_dir}/RECORD.jws", f"{info_dir}/RECORD.p7s"):
            continue
        target, script = _target(info.filename, scheme, label)
        if script:
            budget.take(label, "bytes in memory", info.file_size)
            data = _shebang(_small(archive, info, label, _LARGEST_SCRIPT), scheme)
            add_made(from_bytes(target, data, 0o755, label), data)
        else:
            entry = _member(archive, info, target, label)
            # Some wheels have files that their record does not list.
            add(entry, recorded.get(info.filename) or _hash_of(entry), str(info.file_size))
    for name, reference in _entry_points(archive, info_dir, label):
        data = _script(reference, scheme, label)
        add_made(from_bytes(f"{scheme.scripts}/{name}", data, 0o755, label), data)
    add_made(from_bytes(f"{scheme.site}/{info_dir}/INSTALLER", INSTALLER, owner=label), INSTALLER)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(sorted([*rows, (f"{info_dir}/RECORD", "", "")]))
    entries.append(from_bytes(f"{scheme.site}/{info_dir}/RECORD", text.getvalue().encode(), owner=label))
    return entries


def read_metadata(path: Path, label: str, budget: Budget) -> str:
    """The METADATA of a wheel. label: the wheel's own file name. Raises UnpackError."""
    with damaged(label), _open(path, label, budget) as archive:
        name = f"{_info_dir(archive, label)}/METADATA"
        if name not in archive.namelist():
            raise UnpackError(f"{label}: no METADATA", id="wheel-metadata-missing")
        return _small(archive, archive.getinfo(name), label, _LARGEST_TEXT).decode("utf-8")


def _info_dir(archive: zipfile.ZipFile, label: str) -> str:
    names = [info.filename for info in archive.infolist()]
    roots = {name.split("/", 1)[0] for name in names if name.split("/", 1)[0].endswith(".dist-info")}
    if len(roots) != 1:
        raise UnpackError(f"{label}: needs exactly one .dist-info folder, has {len(roots)}", id="wheel-dist-info-count")
    return roots.pop()


def extract(path: Path, label: str, strip: str, into: str, budget: Budget) -> list[Entry]:
    """The files below `strip` of a wheel, put below `into`, without the wheel's metadata. Raises UnpackError."""
    with damaged(label):
        archive = _open(path, label, budget)
    prefix = strip.rstrip("/") + "/"
    return [
        _member(archive, info, f"{clean_path(into, label)}/{_path(info.filename[len(prefix) :], label)}", label)
        for info in archive.infolist()
        if info.filename.startswith(prefix) and not info.is_dir()
    ]


def _open(path: Path, label: str, budget: Budget) -> zipfile.ZipFile:
    try:
        with path.open("rb") as file:
            end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
        if end and end[zipfile._ECD_SIZE] > _LARGEST_TABLE:  # type: ignore[attr-defined]
            raise UnpackError(f"{label}: its table of files is too large", id="wheel-table-too-large")
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise UnpackError(f"{label}: not a wheel: {error}", id="wheel-invalid") from error
    files = archive.infolist()
    if other := [info.filename for info in files if info.compress_type not in _COMPRESSIONS]:
        # zipfile inflates a megabyte of bzip2 or LZMA at once, which can be many gigabytes.
        raise UnpackError(f"{label}: {other[0][:200]!r} is not compressed with deflate", id="wheel-compression-unknown")
    budget.take(label, "files", len(files))
    # A member is read up to this size, and its checksum is compared.
    budget.take(label, "bytes", sum(info.file_size for info in files))
    return archive


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: str, label: str) -> Entry:
    unix = info.external_attr >> 16
    if (unix & 0o170000) == 0o120000:
        raise UnpackError(
            f"{label}: {info.filename} is a symbolic link, which wheels cannot hold", id="wheel-member-link"
        )
    mode = 0o755 if unix & 0o111 else 0o644
    return Entry(target, "file", mode, info.file_size, read=lambda: _read(archive, info, label), owner=label)


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str) -> Iterator[bytes]:
    with damaged(f"{label}: {info.filename}"), archive.open(info) as file:
        if info.compress_type == zipfile.ZIP_DEFLATED:
            file._decompressor = inflater.decompressobj(-15)  # type: ignore[attr-defined]
        while chunk := file.read(CHUNK):
            yield chunk


def _small(archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str, most: int) -> bytes:
    """The content of a member that is read in one piece; most: its largest size in bytes."""
    if info.file_size > most:
        raise UnpackError(f"{label}: {info.filename} has more than {most >> 20} MB", id="wheel-member-too-large")
    # Not `archive.read`, which inflates all that there is, whatever the size in the table says.
    return b"".join(_read(archive, info, label))


def _recorded(archive: zipfile.ZipFile, info_dir: str, label: str) -> dict[str, str]:
    try:
        text = _small(archive, archive.getinfo(f"{info_dir}/RECORD"), label, _LARGEST_RECORD).decode("utf-8")
    except KeyError:
        raise UnpackError(f"{label}: no RECORD", id="wheel-record-missing") from None
    names = set(archive.namelist())
    return {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) >= 3 and row[0] in names}


def _path(name: str, label: str) -> str:
    path = clean_path(name, label)
    if not path:
        raise UnpackError(f"{label}: {name!r} is the name of no file", id="wheel-name-empty")
    return path


def _target(name: str, scheme: Scheme, label: str) -> tuple[str, bool]:
    path = _path(name, label)
    first, _, rest = path.partition("/")
    if not first.endswith(".data") or "/" not in rest:
        return f"{scheme.site}/{path}", False
    kind, _, rest = rest.partition("/")
    folder = {
        "purelib": scheme.site,
        "platlib": scheme.site,
        "scripts": scheme.scripts,
        "data": scheme.data,
        "headers": f"{scheme.headers}/{first.partition('-')[0]}",
    }.get(kind)
    if folder is None:
        raise UnpackError(f"{label}: unknown kind of data folder in {name}", id="wheel-data-unknown")
    return f"{folder}/{rest}", kind == "scripts"


def _shebang(data: bytes, scheme: Scheme) -> bytes:
    line, newline, rest = data.partition(b"\n")
    if line.startswith(b"#!python"):
        return b"#!" + scheme.interpreter.encode() + newline + rest
    return data


def _entry_points(archive: zipfile.ZipFile, info_dir: str, label: str) -> list[tuple[str, str]]:
    try:
        member = archive.getinfo(f"{info_dir}/entry_points.txt")
        text = _small(archive, member, label, _LARGEST_TEXT).decode("utf-8")
    except KeyError:
        return []
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    try:
        if _GAP.search(text):
            raise configparser.Error("a gap of a hundred spaces")
        parser.read_string(text)
    except configparser.Error as error:
        raise UnpackError(f"{label}: unreadable entry_points.txt: {error}", id="wheel-entry-points-invalid") from error
    found = []
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            found += [(_path(name, label), reference) for name, reference in parser.items(section)]
    return sorted(found)


def _script(reference: str, scheme: Scheme, label: str) -> bytes:
    module, _, attribute = reference.partition("[")[0].strip().partition(":")
    names = attribute.strip().split(".")
    if not all(part.isidentifier() for part in [*module.strip().split("."), *names]):
        raise UnpackError(f"{label}: unusable entry point {reference[:200]!r}", id="wheel-entry-point-invalid")
    return (
        f"#!{scheme.interpreter}\n"
        "import sys\n"
        f"from {module.strip()} import {names[0]}\n"
        'if __name__ == "__main__":\n'
        f"    sys.exit({'.'.join(names)}())\n"
    ).encode()


def record_hash(chunks: Iterable[bytes]) -> str:
    """The hash of a file's content in the form of RECORD."""
    seen = hashlib.sha256()
    for chunk in chunks:
        seen.update(chunk)
    return "sha256=" + base64.urlsafe_b64encode(seen.digest()).rstrip(b"=").decode()


def _hash_of(entry: Entry) -> str:
    assert entry.read is not None
    return record_hash(entry.read())
