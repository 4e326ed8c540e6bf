"""Output of commands: results and tables on standard output, messages on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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


def say(text: str, *, status: str = "") -> None:
    """Print a message on standard error. Results of a command go to standard output instead.

    status: the word in it that has a color.
    """
    if _quiet and not text.startswith(("warning", "builder: ")):
        return
    word = status or ("warning" if text.startswith("warning") else "")
    print(with_status(text, word, sys.stderr), file=sys.stderr, flush=True)


def print_line(text: str, *, status: str) -> None:
    """Print a line of a result on standard output. status: the word in it that has a color."""
    print(with_status(text, status, sys.stdout))


def print_json(value: Any) -> None:
    """Print the result of a command as JSON on standard output."""
    print(escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, needed: int | None = None) -> None:
    """Print a heading and one line for each row on standard output.

    columns: the keys of the values to show, which are also the headings. On a terminal that is too narrow, the columns
    after the first `needed` ones (default: all) are cut or left out from the right; --json has all values.
    """
    table = [[column.upper().replace("_", " ") for column in columns]]
    table += [[printable(_cell(row[column])) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    if sys.stdout.isatty():
        widths = _fitting(widths, len(columns) if needed is None else needed, terminal_width())
    for cells in table:
        line = (
            (text if len(text) <= width else text[: width - 1] + "…").ljust(width)
            for text, width in zip(cells, widths, strict=False)
        )
        print("  ".join(line).rstrip())


def terminal_width() -> int:
    """The columns of the terminal: COLUMNS, else of the one that standard output is, else 80."""
    with contextlib.suppress(ValueError, OSError):
        # Not shutil's function: it looks at the stream that this process replaced.
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns) or 80
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
