"""Output of commands: results and tables on standard output, messages on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builder.text import escaped, printable


def say(text: str) -> None:
    """Print a message on standard error. Results of a command go to standard output instead."""
    print(printable(text), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print the result of a command as JSON on standard output."""
    print(escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows on standard output. columns: the keys of the values to show, which are also the headings."""
    # rich takes 60 ms to import, and most commands print no table.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in rows:
        # As Text: square brackets in a plain string are rich's markup.
        table.add_row(*(Text(printable(_cell(row[column]))) for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(table)


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
