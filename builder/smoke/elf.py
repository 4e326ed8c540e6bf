"""What the dynamic loader reads in an ELF file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 190: "cuda", 243: "riscv", 247: "bpf"}
AARCH64 = 183
CUDA = 190
"""A cubin is an ELF file too, for the GPU."""


@dataclass(frozen=True)
class Dynamic:
    """The dynamic section of an object.

    versions: symbol versions it needs, by library ("libc.so.6" → {"GLIBC_2.34", ...}).
    provides: symbol versions it defines.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: dict[str, frozenset[str]]
    provides: frozenset[str]


def machine_of(head: bytes) -> int | None:
    """The e_machine of a file that begins with `head` (20 bytes are enough), or None when it is no ELF file."""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")


def machine_name(machine: int) -> str:
    """A readable name of an e_machine value."""
    return MACHINES.get(machine, f"machine {machine}")


def read_dynamic(file: BinaryIO) -> Dynamic:
    """Read a seekable ELF file. Raises ValueError when it is damaged."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

    needed: list[str] = []
    soname = ""
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: dict[str, frozenset[str]] = {}
    provides: set[str] = set()
    try:
        elf = ELFFile(file)
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                tag: Any  # the attribute depends on the kind of tag
                for tag in section.iter_tags():
                    if tag.entry.d_tag == "DT_NEEDED":
                        needed.append(tag.needed)
                    elif tag.entry.d_tag == "DT_SONAME":
                        soname = tag.soname
                    elif tag.entry.d_tag == "DT_RPATH":
                        rpath = _split(tag.rpath)
                    elif tag.entry.d_tag == "DT_RUNPATH":
                        runpath = _split(tag.runpath)
            elif isinstance(section, GNUVerNeedSection):
                for library, wanted in section.iter_versions():
                    key = str(library.name)
                    versions[key] = versions.get(key, frozenset()) | {str(version.name) for version in wanted}
            elif isinstance(section, GNUVerDefSection):
                for _, names in section.iter_versions():
                    # The first name is the version itself, the others are its ancestors.
                    provides.add(str(next(names).name))
        file.seek(0)
        machine = machine_of(file.read(20)) or 0
    except (ELFError, UnicodeDecodeError, StopIteration, KeyError) as error:
        raise ValueError(f"damaged ELF file: {error}") from error
    # ld.so ignores DT_RPATH where DT_RUNPATH is present.
    return Dynamic(
        machine_name(machine), soname, tuple(needed), () if runpath else rpath, runpath, versions, frozenset(provides)
    )


def _split(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split(":") if part)
