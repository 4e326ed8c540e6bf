"""What is extracted from a file while its layer is read: ELF tables, GPU code, secrets."""

from __future__ import annotations

import contextlib
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from builder.errors import InvalidError
from builder.smoke.elf.dynamic import Dynamic, read_dynamic
from builder.smoke.elf.fatbin import inspect
from builder.smoke.elf.object import AARCH64, Read, machine_of, reader, sections
from builder.smoke.image.layerstream import LayerStream
from builder.smoke.image.secrets import find_secrets, suspicious_name
from builder.smoke.image.textscan import Limit, is_packed, pieces

_IN_MEMORY = 4 << 20
_UNPACKS = threading.Lock()
_RATIO = 4
"""Bytes that compressed files may unpack to for each of theirs, besides those that every layer may unpack."""
_HEAD = 128
"""bytes: the kernel reads as many of a script's first line."""


@dataclass(frozen=True, slots=True)
class ElfObject:
    """An ELF file for aarch64.

    code: pieces of GPU code by target. ptx: the newest version of PTX in it, (0, 0) without. problem: why it cannot be
    read, "" when it can.
    """

    dynamic: Dynamic | None
    code: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    ptx: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ScanOptions:
    """What to extract: the tables of ELF files, secrets in files, digests of blob and files."""

    elf: bool = False
    secrets: bool = False
    hash: bool = False
    files: bool = False


class MemberScanner:
    """ScanOptions into the members of one layer. Raises InvalidError when the layer ends early."""

    def __init__(self, options: ScanOptions, folder: Path) -> None:
        self.secrets: list[tuple[str, str]] = []
        self.options = options
        self.folder = folder
        self._scratch: BinaryIO | None = None
        self.limit = Limit()
        self.script = b""
        """The first line of the file that was scanned last, when it begins with `#!`; without that."""

    def scan(self, stream: LayerStream, member: tarfile.TarInfo, path: str) -> tuple[int | None, ElfObject | None]:
        """The e_machine of a regular file (None: no ELF file), and its tables when it is for aarch64."""
        elf, secrets = self.options.elf, self.options.secrets
        head = stream.head(member, _HEAD)
        self.script = _script(head)
        machine = machine_of(head)
        if machine == AARCH64 and elf:
            return machine, self._object(stream, member, head)
        if secrets and machine is None:
            end = stream.stream.tell() - len(head) + member.size
            self._search(path, head, lambda size: stream.stream.read(min(size, end - stream.stream.tell())))
        return machine, None

    def scan_copy(self, file: BinaryIO, path: str) -> tuple[int | None, ElfObject | None]:
        """`scan` for a file that was copied to disk."""
        head = file.read(_HEAD)
        self.script = _script(head)
        machine = machine_of(head)
        if machine == AARCH64 and self.options.elf:
            return machine, read_object(reader(file))
        if self.options.secrets and machine is None:
            self._search(path, head, file.read)
        return machine, None

    def _search(self, path: str, head: bytes, read: Callable[[int], bytes]) -> None:
        found: dict[str, None] = {}

        def compressed(size: int) -> bytes:
            data = read(size)
            self.limit.left += _RATIO * len(data)
            return data

        packed = is_packed(head)
        # Files inside each other need up to 64 MiB each.
        with _UNPACKS if packed else contextlib.nullcontext():
            for piece in pieces(head, compressed if packed else read, self.limit, binary=suspicious_name(path)):
                found |= dict.fromkeys(find_secrets(path, piece))
        if self.limit.left <= 0:
            raise InvalidError(
                "the compressed files of a layer unpack to too many bytes", id="layer-too-large", where=path
            )
        self.secrets += [(path, what) for what in found]

    def close(self) -> None:
        """Close the scratch file."""
        if self._scratch is not None:
            self._scratch.close()

    def _object(self, stream: LayerStream, member: tarfile.TarInfo, head: bytes) -> ElfObject:
        if member.size <= _IN_MEMORY:
            data = head + stream.stream.read(member.size - len(head))
            return read_object(lambda offset, size: data[offset : offset + size])
        # One scratch file for all libraries: the tables of an ELF file lie at both ends, so it must be seekable.
        if self._scratch is None:
            self._scratch = TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 (closed by close)
        scratch, end = self._scratch, member.size
        scratch.seek(0)
        scratch.write(head)
        stream.stream.copy(member.size - len(head), scratch.write)

        def read(offset: int, size: int) -> bytes:
            scratch.seek(offset)
            return scratch.read(max(0, min(size, end - offset)))

        return read_object(read)


def _script(head: bytes) -> bytes:
    return head[2:].partition(b"\n")[0] if head.startswith(b"#!") else b""


def read_object(read: Read) -> ElfObject:
    """Read an ELF file for aarch64; a damaged one gets a `problem`."""
    try:
        rows = sections(read)
        code, ptx = inspect(read, rows)
        return ElfObject(read_dynamic(read, rows), dict(code), ptx=ptx)
    except ValueError as error:
        return ElfObject(None, {}, str(error))
