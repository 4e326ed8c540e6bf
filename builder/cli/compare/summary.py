"""The differences of two images or plans as text: a summary that fits on one screen, and every line of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from builder.cli.output import counted, size
from builder.plan.diff import PROGRAM, Change, Contents, Kind, compared_kinds

WIDTH = 80
_TITLE = 11
_TARGET = re.compile(r"\w+(?= \()")
_WRAPPED = {"python": 3, "option": 3, "env": 2, "gpu code": 2}
"""Lines of a kind in the summary; 1 for others."""

TITLES: dict[Kind, str] = {
    "setting": "settings",
    "source": "sources",
    "gpu code": "GPU code",
    "python": "Python",
    "debian": "Debian",
    "toolchain": "toolchain",
    "env": "variables",
    "option": "command",
    "label": "labels",
    "layer": "layers",
    "file": "files",
}


def summary(old: Contents, new: Contents, changes: Sequence[Change], files: str | None) -> Iterator[str]:
    """The summary, at most 24 lines of 80 columns. files: one line about files, if they were compared."""
    yield from _wrap(f"{old.name}  →  {new.name}", "", 2)
    kinds = [kind for kind in compared_kinds(old, new) if kind != "file"]
    main: tuple[tuple[str, Kind, str], ...] = (
        ("vLLM", "python", "vllm"),
        ("torch", "python", "torch"),
        ("NCCL", "source", "nccl"),
    )
    for title, kind, name in main:
        if kind in kinds and old.of != "lock":
            yield from _row(title, _versions(old, new, kind, name), 2 if name == "nccl" else 1)
    for kind in dict.fromkeys([*kinds, *(change.kind for change in changes if change.kind == "setting")]):
        mine = [change for change in changes if change.kind == kind]
        if mine:
            shown = [change for change in mine if change.name not in ("vllm", "torch", "nccl")]
            # The model comes before its options, and another version before what is new or gone.
            shown.sort(key=lambda change: (change.name != PROGRAM, change.old is None or change.new is None))
            words = ", ".join(change.name if kind == "layer" else short(change) for change in shown)
            yield from _row(TITLES[kind], _counts(mine) + (f": {words}" if words else ""), _WRAPPED.get(kind, 1))
    if same := [TITLES[kind] for kind in kinds if not any(change.kind == kind for change in changes)]:
        yield from _row("the same", ", ".join(same), 1)
    if files is not None:
        yield from _row("files", files, 1)
    if old.of == new.of and old.size != new.size:
        what = "of blobs" if new.of in ("image", "layer") else "of inputs"
        yield from _row("size", f"{size(old.size)} → {size(new.size)} {what}", 1)


def short(change: Change) -> str:
    """A change in a few words: `numpy 1.0 → 2.0`, `+numpy 2.0`, `numpy gone`."""
    name = "/".join(change.name.split("/")[-2:]) if change.kind == "gpu code" else change.name
    if change.old is None:
        return f"+{name} {change.new or ''}".rstrip()
    if change.new is None:
        return f"{name} gone"
    if change.kind == "gpu code":
        before, after = (set(_TARGET.findall(text)) for text in (change.old, change.new))
        words = [f"+{target}" for target in sorted(after - before)] + [
            f"-{target}" for target in sorted(before - after)
        ]
        return f"{name} {' '.join(words) or 'other numbers of kernels'}"
    return f"{name} {change.old or '(set)'} → {change.new or '(set)'}"


def _versions(old: Contents, new: Contents, kind: Kind, name: str) -> str:
    before, after = (each.text(kind, name) or ("in its base" if each.vendor else "not known") for each in (old, new))
    functions = [each.text("setting", "NCCL functions") for each in (old, new)] if name == "nccl" else []
    more = f"; functions {' → '.join(dict.fromkeys(filter(None, functions)))}" if any(functions) else ""
    return (f"{before}, the same" if before == after else f"{before} → {after}") + more


def _counts(changes: Sequence[Change]) -> str:
    new = sum(change.old is None for change in changes)
    gone = sum(change.new is None for change in changes)
    parts = [(len(changes) - new - gone, "changed"), (new, "new"), (gone, "gone")]
    return ", ".join(f"{count} {what}" for count, what in parts if count)


def _row(title: str, text: str, lines: int) -> Iterator[str]:
    yield from _wrap(text, f"  {title:{_TITLE}}", lines)


def _wrap(text: str, first: str, lines: int) -> list[str]:
    indent = " " * (len(first) or 2)
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        max_lines=lines,
        placeholder=" …",
        break_on_hyphens=False,
    )


def file_counts(changed: int, new: int, gone: int) -> str:
    """One line about files."""
    return f"{counted(changed, 'file')} changed, {new} new, {gone} gone"
