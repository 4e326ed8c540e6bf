"""What is extracted from a file while its layer is read: ELF tables, GPU code, secrets."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from builder.smoke.elf.dynamic import Dynamic, read_dynamic
from builder.smoke.elf.fatbin import inventory
from builder.smoke.elf.object import AARCH64, Read, machine_of, reader, sections
from builder.smoke.image.layerstream import LayerStream
from builder.smoke.image.secrets import find_secrets, suspicious_name

_IN_MEMORY = 4 << 20
_TEXT = 2 << 20
"""bytes; larger files are not searched for secrets."""


@dataclass(frozen=True, slots=True)
class ElfObject:
    """An ELF file for aarch64. code: pieces of GPU code by target. problem: why it cannot be read, "" when it can."""

    dynamic: Dynamic | None
    code: dict[str, int] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class ScanOptions:
    """What to extract: the tables of ELF files, secrets in files, the digest of the blob."""

    elf: bool = False
    secrets: bool = False
    hash: bool = False


class MemberScanner:
    """ScanOptions into the members of one layer. Raises InvalidError when the layer ends early."""

    def __init__(self, options: ScanOptions, folder: Path) -> None:
        self.secrets: list[tuple[str, str]] = []
        self._options = options
        self._folder = folder
        self._scratch: BinaryIO | None = None

    def scan(self, stream: LayerStream, member: tarfile.TarInfo, path: str) -> tuple[int | None, ElfObject | None]:
        """The e_machine of a regular file (None: no ELF file), and its tables when it is for aarch64."""
        elf, secrets = self._options.elf, self._options.secrets
        head = stream.head(member, 64)
        machine = machine_of(head)
        if machine == AARCH64 and elf:
            return machine, self._object(stream, member, head)
        if secrets and machine is None and member.size <= _TEXT and (suspicious_name(path) or b"\0" not in head):
            data = head + stream.stream.read(member.size - len(head))
            self.secrets += [(path, what) for what in find_secrets(path, data)]
        return machine, None

    def scan_copy(self, file: BinaryIO, path: str, size: int) -> tuple[int | None, ElfObject | None]:
        """`scan` for a file that was copied to disk."""
        machine = machine_of(file.read(20))
        if machine == AARCH64 and self._options.elf:
            return machine, read_object(reader(file))
        if self._options.secrets and machine is None and size <= _TEXT:
            file.seek(0)
            self.secrets += [(path, what) for what in find_secrets(path, file.read())]
        return machine, None

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
            self._scratch = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 (closed by close)
        scratch, end = self._scratch, member.size
        scratch.seek(0)
        scratch.write(head)
        stream.stream.copy(member.size - len(head), scratch.write)

        def read(offset: int, size: int) -> bytes:
            scratch.seek(offset)
            return scratch.read(max(0, min(size, end - offset)))

        return read_object(read)


def read_object(read: Read) -> ElfObject:
    """Read an ELF file for aarch64; a damaged one gets a `problem`."""
    try:
        rows = sections(read)
        return ElfObject(read_dynamic(read, rows), dict(inventory(read, rows)))
    except ValueError as error:
        return ElfObject(None, {}, str(error))
