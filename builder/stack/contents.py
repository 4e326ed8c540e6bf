"""The files in wheels, from the tables at their ends, which are read by range: a stack has 4 GB, its tables 30 MB."""

from __future__ import annotations

import io
import lzma
import re
import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builder.inputs.candidates import Candidate, file_address
from builder.inputs.fetch import new_session
from builder.inputs.transfer import TIMEOUT, Reason, TransferError, check_status, transfer_errors
from builder.model.inputs import from_wheel
from builder.model.lock import Wheel
from builder.parallel import each

if TYPE_CHECKING:
    import requests

_BLOCK = 1 << 18
"""Bytes of one request: the table of most wheels is shorter."""
_MOST = 32 << 20
"""Bytes read of one wheel: the largest known table has 2 MB."""
_BUILD_ONLY = ("build_backend.py", "conftest.py", "setup.py")
"""Files that nothing imports once a wheel is built; some wheels contain theirs by mistake."""
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_LONGEST_METADATA = 1 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, EOFError, OSError, RuntimeError)
_TEXTS = re.compile(r"(licen[cs]e|copying|notice|readme|authors|changelog)[^/]*", re.IGNORECASE)


@dataclass(frozen=True)
class Contents:
    """The installed files of a wheel, by path below the site folder: checksum and size."""

    name: str
    files: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Overlap:
    """What follows from files that several wheels contain.

    shared: paths, with the distributions that contain them. leave_out: distributions all of whose files another one
    contains, with the reason. unlike: shared paths whose contents differ.
    """

    shared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    leave_out: dict[str, str] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()


def read_contents(wheels: Sequence[Wheel], index: str) -> tuple[list[Contents], list[str]]:
    """The contents of wheels in the package index, and the names of those that cannot be read by range."""
    with new_session() as session:
        found = each(lambda wheel: _contents(session, wheel, index), wheels, TransferError)
    read = [item for item in found if isinstance(item, Contents)]
    return read, [wheel.name for wheel, item in zip(wheels, found, strict=True) if not isinstance(item, Contents)]


def read_requires(wheel: Wheel, index: str) -> tuple[str, ...]:
    """What a wheel in the package index requires (Requires-Dist); empty when it cannot be read by range."""
    try:
        with new_session() as session, _opened(session, wheel, index) as archive:
            named = (item for item in archive.infolist() if _METADATA.fullmatch(item.filename))
            text = archive.open(next(named)).read(_LONGEST_METADATA).decode("utf-8", "replace")
    except (TransferError, StopIteration, *_BROKEN):
        return ()
    return tuple(re.findall(r"(?m)^Requires-Dist: *(.*?)\r?$", text.partition("\n\n")[0]))


def overlap(contents: Iterable[Contents]) -> Overlap:
    """Which files several wheels contain, and what to do about it."""
    contents = list(contents)
    owners: dict[str, list[Contents]] = defaultdict(list)
    for item in contents:
        for path in item.files:
            owners[path].append(item)
    pairs = {(one.name, other.name) for held in owners.values() if len(held) > 1 for one in held for other in held}
    by_name = {item.name: item for item in contents}
    left: dict[str, str] = {}
    for name, other in sorted(pairs):
        if name == other or name in left or other in left:
            continue
        mine, theirs = by_name[name].files, by_name[other].files
        missing = [path for path in mine.keys() - theirs.keys() if not _TEXTS.fullmatch(path.rpartition("/")[2])]
        if missing or (mine.keys() >= theirs.keys() and name < other and _is_special(name)):
            continue
        unlike = sum(mine[path] != theirs[path] for path in mine.keys() & theirs.keys())
        left[name] = f"{other} contains the same {len(mine.keys() & theirs.keys())} files, {unlike} of them changed"
    shared: dict[str, tuple[str, ...]] = {}
    unlike_paths = []
    for path, held in sorted(owners.items()):
        names = tuple(sorted(item.name for item in held if item.name not in left))
        if len(names) > 1:
            shared[path] = names
            if path not in _BUILD_ONLY and len({item.files[path] for item in held if item.name not in left}) > 1:
                unlike_paths.append(path)
    return Overlap(shared, left, tuple(unlike_paths))


def foreign_modules(contents: Contents, python: str) -> list[str]:
    """Compiled modules that exist for other versions of CPython only: their names up to the first dot."""
    wanted = "cpython-" + python.replace(".", "")
    tags: dict[str, set[str]] = defaultdict(set)
    for path in contents.files:
        folder, _, file = path.rpartition("/")
        stem, *rest = file.split(".")
        if file.endswith(".so"):
            tags[f"{folder}/{stem}"].add(rest[0].rpartition("-aarch64")[0] if rest[0].startswith("cpython-") else "")
    return sorted(name for name, known in tags.items() if "" not in known and wanted not in known)


def _is_special(name: str) -> bool:
    """Whether a distribution is a build for one CUDA: of two with the same files it is the one to keep."""
    return re.search(r"-cu[0-9]+$", name) is not None


def _contents(session: requests.Session, wheel: Wheel, index: str) -> Contents:
    try:
        with _opened(session, wheel, index) as archive:
            members = archive.infolist()
            files = {path: (item.CRC, item.file_size) for item in members if (path := _installed(item.filename))}
    except _BROKEN as error:
        raise TransferError(Reason.WRONG, f"not a wheel: {error}") from error
    return Contents(wheel.name, files)


def _opened(session: requests.Session, wheel: Wheel, index: str) -> zipfile.ZipFile:
    url = file_address(session, Candidate("index", index, wheel.name), from_wheel(wheel))
    return zipfile.ZipFile(io.BufferedReader(_Remote(session, url, wheel.size), _BLOCK))


def _installed(name: str) -> str | None:
    """Where a member is installed below the site folder; None for folders, metadata and files of other places."""
    first, _, rest = name.partition("/")
    if name.endswith("/") or first.endswith(".dist-info"):
        return None
    if first.endswith(".data"):
        scheme, _, path = rest.partition("/")
        return path if scheme in ("purelib", "platlib") and path else None
    return name


class _Remote(io.RawIOBase):
    """A file on a server, read by range."""

    def __init__(self, session: requests.Session, url: str, size: int) -> None:
        self._session, self._url, self._size = session, url, size
        self._at = self._read = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise ValueError("a position before the file")
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), self._size - self._at)
        if count <= 0:
            return 0
        self._read += count
        if self._read > _MOST:
            raise TransferError(Reason.WRONG, "its table is too large")
        view[:count] = self._request(self._at, count)
        self._at += count
        return count

    def _request(self, start: int, count: int) -> bytes:
        headers = {"Range": f"bytes={start}-{start + count - 1}", "Accept-Encoding": "identity"}
        with transfer_errors(), self._session.get(self._url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            check_status(answer)
            if answer.status_code != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise TransferError(Reason.REFUSED, "the server does not send parts of files")
            data: bytes = answer.raw.read(count, decode_content=False)
        if len(data) != count:
            raise TransferError(Reason.TRANSIENT, "the connection broke")
        return data
