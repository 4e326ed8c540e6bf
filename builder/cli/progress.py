"""Progress of a running build on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from builder.cli.output import counted, is_quiet, say, size
from builder.events import Event, now
from builder.text import printable

if TYPE_CHECKING:
    from rich.table import Table

_ORDER = {"failed": -1, "waiting": 1, "done": 2, "cached": 2}

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
        self._console: Any = None
        self._download = 0
        self._fetched: dict[str, int] = {}

    def expect(self, layers: Iterable[str], download: int) -> None:
        """Layers that are to be made, which wait until their first event. download: the bytes to fetch for them."""
        with self._lock:
            self._download = download
            for layer in layers:
                self._last.setdefault(layer, Event(layer, "waiting", detail="its turn"))
                self._since.setdefault(layer, now())

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and not self._verbose and not is_quiet():
            # rich takes 60 ms to import, and only a terminal needs it.
            from rich.console import Console
            from rich.live import Live

            self._console = Console(stderr=True)
            self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._shown)
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
            if event.state == "fetching":
                self._fetched[event.layer] = event.done
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

    def _shown(self) -> Table:
        """The table for the live display, which is as high as the terminal."""
        return self._table(self._console.height - 1)

    def _table(self, height: int = 100) -> Table:
        """One line for all layers, then one for each, the active ones first. Rows that do not fit are counted."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        with self._lock:
            table.add_row("total", Text(self._total(), no_wrap=True, overflow="ellipsis"), f"{self.elapsed:.0f} s")
            rows = sorted(self._last.items(), key=lambda item: _ORDER.get(item[1].state, 0))
            most = len(rows) if len(rows) < height else max(height - 2, 0)
            for layer, event in rows[:most]:
                seconds = now() - self._since[layer]
                shown = "" if event.state in ("done", "cached") else f"{seconds:.0f} s"
                table.add_row(layer, Text(printable(describe(event)), no_wrap=True, overflow="ellipsis"), shown)
            if len(rows) > most:
                table.add_row("", f"and {counted(len(rows) - most, 'more layer')}, waiting or done", "")
        return table

    def _total(self) -> str:
        """How many layers are done, and how much is fetched, with an estimate of the rest of the download."""
        if not self._last:
            return "looking up what the store has"
        events = self._last.values()
        done = sum(event.state in ("done", "cached") for event in events)
        text = f"{done} of {counted(len(self._last), 'layer')}"
        fetched = min(sum(self._fetched.values()), self._download)
        if fetched and fetched < self._download:
            text += f", {size(fetched)} of {size(self._download)} fetched"
            text += f", about {(self._download - fetched) * self.elapsed / fetched:.0f} s more"
        return text


def describe(event: Event) -> str:
    """The text for one event."""
    if event.state == "fetching":
        return f"fetching {size(event.done)} of {size(event.total)}"
    if event.state == "packing":
        return f"packing {size(event.done)}" if event.done else "packing"
    if event.state == "building":
        return f"building: {event.detail}" if event.detail else "building"
    if event.state == "waiting":
        return f"waiting for {event.detail or 'another process, which makes it'}"
    if event.state == "done":
        return f"done, {size(event.total)}"
    return event.state
