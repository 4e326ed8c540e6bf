"""Output of commands: results and tables on standard output, messages on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from builder.text import escaped, printable, with_status

_quiet = False
_CUT = 16
"""Characters of the shortest column that is worth cutting."""


def hush(quiet: bool) -> None:
    """Whether messages that are neither warnings nor errors are left out from now on."""
    global _quiet  # noqa: PLW0603 - one for the process, as standard error is
    _quiet = quiet


def is_quiet() -> bool:
    """Whether the command has --quiet."""
    return _quiet


def say(text: str, *, status: str = "", row: bool = False, hang: int | None = None) -> None:
    """Print a message on standard error. Results of a command go to standard output instead.

    status: the word in it that has a color. row, hang: as in `fitted`.
    """
    if _quiet and not text.startswith(("warning", "builder: ")):
        return
    word = status or ("warning" if text.startswith("warning") else "")
    shown = with_status(fitted(text, sys.stderr, row=row, hang=hang), word, sys.stderr)
    # Where both streams go to one pipe, a message comes behind the results that were printed before it.
    sys.stdout.flush()
    # One write: several threads print, and a live display joins what comes in parts.
    print(f"{shown}\n", end="", file=sys.stderr, flush=True)


def print_line(text: str, *, status: str = "", row: bool = False, hang: int | None = None) -> None:
    """Print a line of a result on standard output. status: the word that has a color. row, hang: as in `fitted`."""
    print(with_status(fitted(text, sys.stdout, row=row, hang=hang), status, sys.stdout))


def fitted(text: str, stream: TextIO, *, row: bool = False, hang: int | None = None) -> str:
    """Lines as they fit on a terminal; elsewhere, and without row and hang, as they are: they may be commands to paste.

    row: columns with two spaces between them, of which the last ones are left out. hang: a line goes on in the next
    one, so many characters from the left. Words are never split.
    """
    width = terminal_width(stream) if stream.isatty() else len(text)
    while row and len(text) > width and "  " in text.strip():
        text = text[: text.rindex("  ")].rstrip()
    if hang is None or len(text) <= width:
        return text
    whole = textwrap.TextWrapper(width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(whole.fill, text.split("\n")))


def print_json(value: Any) -> None:
    """Print the result of a command as JSON on standard output."""
    print(escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, needed: int | None = None) -> None:
    """Print a heading and one line for each row on standard output.

    columns: the keys of the values to show, which are also the headings. On a terminal that is too narrow, the columns
    after the first `needed` ones are cut or left out from the right; --json has all values. With `needed` None nothing
    is left out: the rows go on in the next line.
    """
    table = [[column.upper().replace("_", " ") for column in columns]]
    table += [[printable(_cell(row[column])) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    if sys.stdout.isatty() and needed is not None:
        widths = _fitting(widths, needed, terminal_width())
    for cells in table:
        line = (
            (text if len(text) <= width else text[: width - 1] + "…").ljust(width)
            for text, width in zip(cells, widths, strict=False)
        )
        print_line("  ".join(line).rstrip(), hang=4 if needed is None else None)


def terminal_width(stream: TextIO | None = None) -> int:
    """The columns of the terminal: COLUMNS, else of the one that the stream (standard output) is, else 80."""
    with contextlib.suppress(ValueError, OSError):
        # Not shutil's function: it looks at the stream that this process replaced.
        return int(os.environ.get("COLUMNS") or os.get_terminal_size((stream or sys.stdout).fileno()).columns) or 80
    return 80


def _fitting(widths: Sequence[int], needed: int, most: int) -> list[int]:
    """The widths of the columns that fit into `most` characters; the last one may be cut."""
    shown: list[int] = []
    for number, width in enumerate(widths):
        left = most - sum(shown) - 2 * len(shown)
        if number < needed or width <= left:
            shown.append(width)
            continue
        if left >= _CUT:
            shown.append(left)
        break
    return shown


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return (", ".join(map(str, value)) or "-") if isinstance(value, list) else str(value)


def counted(count: int, noun: str) -> str:
    """A number and its noun, with a plural `s`: `1 input`, `2 inputs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    """A number of bytes with a decimal unit: `1.5 MB`."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"


def duration(seconds: float) -> str:
    """A time in whole seconds, or from two minutes on in minutes: `95 s`, `14 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
