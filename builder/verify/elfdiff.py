"""In which sections, symbols and GPU code two ELF files differ."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest

from builder.smoke.elf.fatbin import describe, inventory
from builder.smoke.elf.object import Read, Section, exactly, sections, text_at
from builder.text import first_few

_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM = 2, 11
_PIECE = 1 << 20
_MOST_SYMBOLS, _MOST_TEXT = 1_000_000, 200 << 20
"""Symbols of a file, and characters of their names, which may be parts of each other."""
_SHOWN = 8


@dataclass
class Budget:
    """What may be read of the symbols of several files together: their number, and characters of their names."""

    symbols: int = 6_000_000
    text: int = 1 << 30


@dataclass(frozen=True)
class SectionPair:
    """A section whose bytes differ; None: the file has no section of this name."""

    name: str
    old: Section | None
    new: Section | None


@dataclass(frozen=True)
class ElfDifference:
    """pairs: the sections that differ, in the order of the first file. lines: symbols and GPU code, for a person."""

    pairs: tuple[SectionPair, ...]
    lines: tuple[str, ...]
    code: tuple[str, str]
    """The inventories of GPU code."""


def compare_elf(old: Read, new: Read, budget: Budget | None = None) -> ElfDifference:
    """Compare two 64-bit ELF files. Raises ValueError for a damaged one, and when the budget is spent."""
    budget = budget or Budget()
    first, second = _sections(old), _sections(new)
    mine, theirs = _named(first), _named(second)
    pairs = []
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        one, other = mine.get(name), theirs.get(name)
        if one is None or other is None or one.size != other.size or _hash(old, one) != _hash(new, other):
            pairs.append(SectionPair(name[0], one, other))
    code = (describe(inventory(old, first)), describe(inventory(new, second)))
    lines = [_line(pair) for pair in pairs]
    # Not the names: those of a file of three megabytes may take hundreds.
    before, after = set(map(hash, _symbols(old, first, budget))), set(map(hash, _symbols(new, second, budget)))
    lines += _few("symbols only in the first", before - after, _symbols(old, first, budget))
    lines += _few("symbols only in the second", after - before, _symbols(new, second, budget))
    if code[0] != code[1]:
        lines.append(f"GPU code: {code[0]}, not {code[1]}")
    return ElfDifference(tuple(pairs), tuple(lines), code)


def _sections(read: Read) -> list[Section]:
    rows = sections(read)
    # Sections may overlap: without a bound, a small file makes hours of work.
    if sum(row.size for row in rows) > 2 * max((row.offset + row.size for row in rows if row.size), default=0):
        raise ValueError("damaged ELF file: its sections overlap")
    return rows


def _named(rows: list[Section]) -> dict[tuple[str, int], Section]:
    """The sections with bytes by name, several of one name by number."""
    counts: Counter[str] = Counter()
    found = {}
    for row in rows:
        if row.size:
            found[row.name, counts[row.name]] = row
            counts[row.name] += 1
    return found


def _hash(read: Read, section: Section) -> bytes:
    seen = hashlib.sha256()
    for offset in range(section.offset, section.offset + section.size, _PIECE):
        seen.update(read(offset, min(_PIECE, section.offset + section.size - offset)))
    return seen.digest()


def _line(pair: SectionPair) -> str:
    if pair.old is None or pair.new is None:
        return f"section {pair.name}: only in the {'second' if pair.old is None else 'first'}"
    if pair.old.size != pair.new.size:
        return f"section {pair.name}: {pair.old.size} bytes, not {pair.new.size}"
    return f"section {pair.name}: content"


def _symbols(read: Read, rows: list[Section], budget: Budget) -> Iterator[str]:
    left, text = _MOST_SYMBOLS, _MOST_TEXT
    for row in rows:
        if row.kind not in (_SYMTAB, _DYNSYM) or not row.size:
            continue
        left -= row.size // _SYMBOL.size
        budget.symbols -= row.size // _SYMBOL.size
        if min(left, budget.symbols) < 0 or row.link >= len(rows):
            raise ValueError("damaged ELF file: too many symbols, or symbols without names")
        data = exactly(read, row.offset, row.size - row.size % _SYMBOL.size)
        texts = exactly(read, rows[row.link].offset, rows[row.link].size)
        for name, *_ in _SYMBOL.iter_unpack(data):
            if name:
                yield (found := text_at(texts, name))
                text -= len(found)
                budget.text -= len(found)
                if min(text, budget.text) < 0:
                    raise ValueError("damaged ELF file: its symbols have too long names")


def _few(what: str, hashes: set[int], names: Iterable[str]) -> list[str]:
    """The number of names with these hashes, and the first ones. names: with others, some of them more than once."""
    if not hashes:
        return []
    first = nsmallest(_SHOWN, _once(set(hashes), names))
    return [f"{len(hashes)} {what}: {first_few(first, _SHOWN, len(hashes))}"]


def _once(hashes: set[int], names: Iterable[str]) -> Iterator[str]:
    """The first name with each hash."""
    for name in names:
        if hash(name) in hashes:
            hashes.remove(hash(name))
            yield name
