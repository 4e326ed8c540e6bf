"""Where two files first differ, and the likely cause: time, path, process id, order, random seed, another compiler.

Pure. A cause is a guess from what differs: the same words with another date, another folder, another number.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass

from builder.smoke.elf.object import Read, Section
from builder.verify.elfdiff import Budget, ElfDifference, compare_elf

Data = bytes | mmap.mmap

_PIECE = 1 << 20
_AROUND = 400
_SHOWN = 60
_TEXT = 8 << 20
"""Bytes of a file whose lines are counted."""
_ORDERED = 1 << 20
"""Bytes of a file whose words are sorted, to see whether only their order differs: each takes 60 bytes of memory."""

_DATE = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:?\d\d(?::?\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    rb"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:\d?\d )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    rb" (?:[ \d]\d,? )?(?:\d\d:\d\d:\d\d )?(?:[A-Z]{3,4} )?\d{4}|\d\d:\d\d:\d\d|\b\d{8}T?\d{6}Z?\b|\b[12]\d{9}\b"
)
_PROCESS = re.compile(
    # nvcc and gcc name temporary files so.
    rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}(?:-\d+)?|/cc[A-Za-z0-9]{6}\b|/proc/\d+|\b(?:pid|process)[ =:_-]*\d+",
    re.IGNORECASE,
)
_PATH = re.compile(rb"(?:/[^\s:;,\"'()\0/]+)+/?")
_RANDOM = re.compile(
    rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|0x[0-9a-f]{4,}|(?<![0-9a-zA-Z])[0-9a-fA-F]{7,}(?![0-9a-zA-Z])"
    rb"|_[0-9a-f]{6,}(?=_|\b)|\bseed[ =:_-]*\w+"
)
_PATTERNS = (
    ("time", _DATE),
    ("process id", _PROCESS),
    ("path", _PATH),
    ("random seed or hash", _RANDOM),
    ("process id or counter", re.compile(rb"(?<!\d)\d{1,7}(?!\d)")),
)
_STRINGS = re.compile(r"\.comment|\.rodata.*|\.data.*|\.nv_fatbin|\.strtab|\.dynstr|\.debug_(line_)?str")
_BUILD_ID = ".note.gnu.build-id"
_CODE = re.compile(r"\.text.*|\.init|\.fini|\.plt.*|\.debug_info|\.eh_frame")
_BEFORE, _AFTER = re.compile(rb"[\t\x20-\x7e]*\Z"), re.compile(rb"[\t\x20-\x7e]*")
_WORDS = re.compile(rb"[\s,;{}\[\]\0]+")


@dataclass(frozen=True)
class Finding:
    """Where two files first differ. place: `section .comment`, `line 3`, `byte 17`. cause: "" when none is likely.

    details: of ELF files, the sections, symbols and GPU code that differ.
    """

    path: str
    place: str
    cause: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}, {self.place}" + (f": {self.cause}" if self.cause else "")


def examine(path: str, old: Data, new: Data, budget: Budget | None = None) -> Finding:
    """Compare two different files. budget: of all files that are compared."""
    if old[:4] == new[:4] == b"\x7fELF":
        try:
            found = compare_elf(_reader(old), _reader(new), budget)
        except ValueError:
            pass
        else:
            section, cause = _elf_cause(found, old, new)
            return Finding(path, f"section {section}" if section else _place(old, _first(old, new)), cause, found.lines)
    at = _first(old, new)
    cause = _header_time(old, new, at) or _order(old, new) or likely(_line(old, at), _line(new, at))
    return Finding(path, _place(old, at), cause)


def likely(old: bytes, new: bytes) -> str:
    """The likely cause of two versions of one line; "" when none is."""
    for what, pattern in _PATTERNS:
        if old != new and pattern.sub(b"\0", old) == pattern.sub(b"\0", new):
            found = zip(pattern.finditer(old), pattern.finditer(new), strict=True)
            one, other = next((a[0], b[0]) for a, b in found if a[0] != b[0])
            return f"{what}: {_shown(one)}, not {_shown(other)}"
    return ""


def _elf_cause(found: ElfDifference, old: Data, new: Data) -> tuple[str, str]:
    """The section that shows a cause, and the cause; the compiler's own name first.

    Without a cause, the first section that differs. The build id is a hash over the others, and comes last.
    """
    both = {pair.name: (pair.old, pair.new) for pair in found.pairs if pair.old is not None and pair.new is not None}
    if ".comment" in both:
        one, other = (_Part(data, row)[:_AROUND] for data, row in zip((old, new), both[".comment"], strict=True))
        return ".comment", f"another compiler: {_shown(one)}, not {_shown(other)}"
    names = [pair.name for pair in found.pairs if pair.name != _BUILD_ID]
    if found.code[0] != found.code[1] and names:
        section = ".nv_fatbin" if ".nv_fatbin" in names else names[0]
        return section, f"another compiler flag: GPU code {found.code[0]}, not {found.code[1]}"
    for name, (one_row, other_row) in both.items():
        if _STRINGS.fullmatch(name):
            first, second = _Part(old, one_row), _Part(new, other_row)
            at = _first(first, second)
            if cause := likely(_line(first, at), _line(second, at)):
                return name, cause
    if not names:
        only = "another path or flag: only the linker's build id differs"
        return (_BUILD_ID, only) if found.pairs else ("", "")
    if code := next((name for name in names if _CODE.fullmatch(name)), None):
        return code, "another compiler flag or source: the machine code differs, and the compiler is the same"
    return names[0], ""


class _Part:
    """The bytes of one section, not in memory: that of GPU code has hundreds of megabytes."""

    def __init__(self, data: Data, row: Section) -> None:
        self._data, self._start, self._size = data, row.offset, row.size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        return self._data[self._start + start : self._start + stop]


def _first(old: Data | _Part, new: Data | _Part) -> int:
    """The offset of the first byte that differs."""
    for start in range(0, min(len(old), len(new)), _PIECE):
        one, other = old[start : start + _PIECE], new[start : start + _PIECE]
        if one != other:
            end = min(len(one), len(other))
            return start + next((at for at in range(end) if one[at] != other[at]), end)
    return min(len(old), len(new))


def _place(data: Data, at: int) -> str:
    """A line of a text, or a byte."""
    head = data[: min(at, _TEXT)]
    if at < _TEXT and b"\0" not in data[: at + _AROUND]:
        lines = head.count(b"\n") + 1
        return f"line {lines}"
    return f"byte {at}"


def _line(data: Data | _Part, at: int) -> bytes:
    """The printable text around an offset."""
    before = _BEFORE.search(data[max(0, at - _AROUND) : at])
    after = _AFTER.match(data[at : at + _AROUND])
    return (before[0] if before else b"") + (after[0] if after else b"")


def _header_time(old: Data, new: Data, at: int) -> str:
    """A time in the header of a known format, by the place of the first byte that differs."""
    if old[:2] == new[:2] == b"\x1f\x8b" and 4 <= at < 8:
        return "time: in the header of gzip"
    # The mark of every version of Python's bytecode: two bytes, then CR LF; then flags, 0 for a file checked by time.
    if old[2:8] == new[2:8] == b"\r\n\0\0\0\0" and 8 <= at < 12:
        return "time: of the source, in bytecode"
    start = max(0, at - 16)
    for mark, first in ((b"PK\x03\x04", 10), (b"PK\x01\x02", 12)):
        place = old[start : at + 1].rfind(mark)
        if place >= 0 and first <= at - start - place < first + 4:
            return "time: of a member of a zip file"
    return ""


def _order(old: Data, new: Data) -> str:
    if len(old) != len(new) or len(old) > _ORDERED:
        return ""
    one, other = bytes(old), bytes(new)
    if sorted(one.split(b"\n")) == sorted(other.split(b"\n")):
        return "order: the same lines in another order"
    if sorted(_WORDS.split(one)) == sorted(_WORDS.split(other)):
        return "order: the same words in another order"
    return ""


def _shown(text: bytes) -> str:
    plain = re.sub(r"[^\x20-\x7e]+", " ", text.decode("latin-1")).strip()
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


def _reader(data: Data) -> Read:
    return lambda offset, size: data[offset : offset + size]
