"""Progress of a running build on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from builder.cli.output import counted, duration, is_quiet, say, size
from builder.events import Event, now
from builder.text import printable

if TYPE_CHECKING:
    from rich.console import Console, Group

_ORDER = {"failed": -1, "waiting": 1, "done": 2, "cached": 2}

PLAIN_EVERY = 10.0
"""Seconds between two plain lines about one layer that stays in one state."""


class Display:
    """Shows something below other messages while its `with` block runs; nothing without a terminal or with --quiet."""

    _per_second = 2
    _live: Any = None
    """The display of rich while it runs."""

    def _shown(self, console: Any) -> Any:
        """What is to be seen now, on this console of rich."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not is_quiet():
            # rich takes 60 ms to import, and only a terminal needs it.
            from rich.console import Console
            from rich.live import Live

            console, often = Console(stderr=True), self._per_second
            shown = partial(self._shown, console)
            self._live = Live(console=console, refresh_per_second=often, transient=True, get_renderable=shown)
            # At once: rich does not erase a display that it has not shown yet, when several threads print.
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


class Progress(Display):
    """Shows the events of a build while its `with` block runs. `on_event` may be called from any thread.

    verbose: print every line of the engine's output, and no live table.
    """

    _per_second = 4

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._begin = self._announced = now()
        self._since: dict[str, float] = {}
        self._last: dict[str, Event] = {}
        self._printed: dict[str, float] = {}
        self._lock = Lock()
        self._download = 0
        self._fetched: dict[str, int] = {}
        self._made: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._sizes: Mapping[str, int] = {}
        self._seconds: Mapping[str, float] | None = None
        self._jobs = 1

    def expect(self, layers: Mapping[str, int], download: int, seconds: Mapping[str, float], jobs: int = 1) -> None:
        """Layers that are to be made, which wait until their first event, and the bytes that each is packed from.

        download: the bytes to fetch for them. seconds: how long some of them took before. jobs: made at a time.
        """
        with self._lock:
            self._sizes, self._download, self._seconds, self._jobs = layers, download, seconds, jobs
            self._announced = now()
            for layer in layers:
                self._last.setdefault(layer, Event(layer, "waiting", detail="its turn"))
                self._since.setdefault(layer, now())

    def __enter__(self) -> Self:
        return self if self._verbose else super().__enter__()

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
            if event.state in ("building", "packing"):
                self._made.setdefault(event.layer, now())
            if event.state == "done" and self._sizes.get(event.layer) and event.layer in self._made:
                self._took[event.layer] = now() - self._made[event.layer]
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

    def _shown(self, console: Console) -> Group:
        """The live display, which is as high as the terminal."""
        return self._table(console.height - 1)

    def _table(self, height: int = 100) -> Group:
        """One line for all layers, then one for each, the active ones first. Rows that do not fit are counted.

        Names are whole; a narrow terminal cuts the ends of the texts.
        """
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        def cut(text: str) -> Text:
            return Text(text, no_wrap=True, overflow="ellipsis")

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        with self._lock:
            rows = sorted(self._last.items(), key=lambda item: _ORDER.get(item[1].state, 0))
            most = len(rows) if len(rows) < height else max(height - 2, 0)
            for layer, event in rows[:most]:
                seconds = now() - self._since[layer]
                shown = "" if event.state in ("done", "cached") else f"{seconds:.0f} s"
                table.add_row(layer, cut(printable(describe(event))), shown)
            more = [f"and {counted(len(rows) - most, 'more layer')}, waiting or done"] if len(rows) > most else []
            return Group(cut(self._total()), *([table] if most else []), *map(cut, more))

    def _total(self) -> str:
        """The time that the build took and still needs, how many layers are done, and how much is fetched."""
        text = f"{duration(self.elapsed)}{self._left()}: "
        if not self._last:
            return text + "looking up what the store has"
        done = sum(event.state in ("done", "cached") for event in self._last.values())
        text += f"{done} of {counted(len(self._last), 'layer')}"
        if self._received < self._download:
            text += f", {size(self._received)} of {size(self._download)} fetched"
        return text

    @property
    def _received(self) -> int:
        return min(sum(self._fetched.values()), self._download)

    def _left(self) -> str:
        """The time left: of the download at its rate so far, and of each layer.

        Layers whose time is not known, or that take longer than that, are named as not counted.
        """
        if self._seconds is None:
            return ""
        download, unknown = 0.0, []
        if self._received < self._download:
            if not self._received:
                return ", no estimate yet"
            download = (self._download - self._received) * (now() - self._announced) / self._received
        longest, work = download, 0.0
        for layer, event in self._last.items():
            if event.state in ("done", "cached", "failed"):
                continue
            rest = self._seconds.get(layer) or self._as_others(layer)
            if layer in self._made:
                rest -= now() - self._made[layer]
            if rest <= 0:
                unknown.append(layer)
                continue
            work += rest
            longest = max(longest, rest if layer in self._made else rest + download)
        names = unknown[0] if len(unknown) == 1 else f"{len(unknown)} layers"
        if not work:
            if download:
                return f", about {duration(download)} more to download"
            return f", no estimate of {names}" if unknown else ""
        left = duration(max(longest, work / self._jobs))
        return f", about {left} more" + (f", not counting {names}" if unknown else "")

    def _as_others(self, layer: str) -> float:
        """The seconds of a layer that is packed, at the rate of those that this build has packed; 0 when not known."""
        packed = sum(self._sizes[other] for other in self._took)
        return self._sizes[layer] * sum(self._took.values()) / packed if packed else 0.0


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
