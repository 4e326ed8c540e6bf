"""Progress of a running build on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from builder.cli.output import say, size
from builder.events import Event, now
from builder.text import printable

if TYPE_CHECKING:
    from rich.table import Table

PLAIN_EVERY = 10.0
"""Seconds between two plain lines about one layer that stays in one state."""


class Progress:
    """Shows the events of a build while its `with` block runs. `on_event` may be called from any thread.

    verbose: print every line of the engine's output, and no live table.
    """

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._begin = now()
        self._since: dict[str, float] = {}
        self._last: dict[str, Event] = {}
        self._printed: dict[str, float] = {}
        self._lock = Lock()
        self._live: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and not self._verbose:
            # rich takes 60 ms to import, and only a terminal needs it.
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True), refresh_per_second=4, transient=True, get_renderable=self._table
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_event(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            before = self._last.get(event.layer)
            changed = before is None or before.state != event.state
            if changed:
                self._since[event.layer] = now()
            self._last[event.layer] = event
            due = now() - self._printed.get(event.layer, 0.0) >= PLAIN_EVERY
            if self._live is None and (changed or due):
                self._printed[event.layer] = now()
                say(f"[{now() - self._begin:6.1f} s] {event.layer}: {describe(event)}")

    def on_log(self, line: str) -> None:
        """Show one line of an engine's output, if verbose."""
        if self._verbose:
            say(line)

    @property
    def elapsed(self) -> float:
        """Seconds since this object was created."""
        return now() - self._begin

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        with self._lock:
            for layer, event in self._last.items():
                seconds = now() - self._since[layer]
                shown = "" if event.state in ("done", "cached") else f"{seconds:.0f} s"
                table.add_row(layer, Text(printable(describe(event)), no_wrap=True, overflow="ellipsis"), shown)
        return table


def describe(event: Event) -> str:
    """The text for one event."""
    if event.state == "fetching":
        return f"fetching {size(event.done)} of {size(event.total)}"
    if event.state == "packing":
        return f"packing {size(event.done)}" if event.done else "packing"
    if event.state == "building":
        return f"building: {event.detail}" if event.detail else "building"
    if event.state == "waiting":
        return "waiting for another process, which makes it"
    if event.state == "done":
        return f"done, {size(event.total)}"
    return event.state
