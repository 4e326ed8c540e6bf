"""How far a transfer is, on standard error: bytes, rate and time left of a push, and what docker has of an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any

from builder.cli.output import counted, duration, say, size
from builder.cli.progress import PLAIN_EVERY, Display
from builder.digest import Digest
from builder.events import Event, Listener, now

_SOME = 20
"""The part of an image that must have come before its rate is an estimate."""
_MOST = 1000
"""Layers of an image whose layers are not known: the daemon may be that of another machine."""


class Sending(Display):
    """Shows how far a transfer is while its `with` block runs, and at its end what it took. Thread-safe.

    On a terminal it is a line below other messages, elsewhere a line every ten seconds.
    """

    def __init__(self) -> None:
        self._begin = self._printed = now()
        self._total = 0
        self._moved: dict[Digest, int] = {}
        self._lock = Lock()

    def expect(self, total: int) -> None:
        """How many bytes are to be moved."""
        self._total = total

    def moved(self, digest: Digest, count: int) -> None:
        """How many bytes of a blob have been moved."""
        with self._lock:
            self._moved[digest] = count
            due = self._live is None and now() - self._printed >= PLAIN_EVERY
            if due:
                self._printed = now()
        if due:
            say(f"  {self.text()}")

    def text(self) -> str:
        """For a person: bytes, rate and time left."""
        if not self._total:
            return "looking up what the registry has"
        done, seconds = sum(self._moved.copy().values()), now() - self._begin
        rate = done / seconds if seconds else 0.0
        left = f", about {(self._total - done) / rate:.0f} s more" if rate and done < self._total else ""
        return f"{size(done)} of {size(self._total)}, {size(round(rate))}/s{left}"

    def _shown(self, console: Any) -> str:
        return self.text()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._total and error is None:
            say(f"  sent {self.text()}, in {now() - self._begin:.1f} s")


@dataclass
class _Machine:
    """What its daemon says: bytes that were pulled and unpacked, by layer."""

    asked: float
    printed: float
    begin: float | None = None
    """The time of its first answer."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the layers that it lacks."""
    pulled: dict[str, int] = field(default_factory=dict)
    unpacked: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    unpacks: float | None = None
    """The time at which it began to unpack."""


class Pulling(Display):
    """Shows how far daemons are while its `with` block runs. Thread-safe.

    sizes: bytes of the image's layers, by the first 12 digits of the digest; None: as the daemon says. On a terminal
    there is a line for each machine below other messages, elsewhere a line every ten seconds.
    """

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self._sizes = sizes
        self._machines: dict[str, _Machine] = {}
        self._lock = Lock()

    def listener(self, host: str = "") -> Listener:
        """Receives the progress of a machine's daemon. host: its name, where there are several."""
        with self._lock:
            self._machines[host] = _Machine(now(), now())
        return partial(self._on_event, host)

    def _on_event(self, host: str, event: Event) -> None:
        with self._lock:
            machine = self._machines[host]
            if self._sizes is not None and event.layer not in self._sizes:
                return
            self._enter(machine, event)
            due = self._live is None and now() - machine.printed >= PLAIN_EVERY
            if due:
                machine.printed = now()
                text = self._text(host, machine)
        if due:
            say(f"  {text}")

    def _enter(self, machine: _Machine, event: Event) -> None:
        layer = event.layer
        machine.begin = machine.begin or now()
        if event.state == "cached":
            machine.sizes.pop(layer, None)
            return
        if layer not in machine.sizes and len(machine.sizes) >= _MOST:
            return
        whole = self._sizes[layer] if self._sizes is not None else event.total or machine.sizes.get(layer, 0)
        machine.sizes[layer] = whole
        machine.pulled[layer] = min(event.done, whole) if event.state in ("waiting", "fetching") else whole
        if event.state == "unpacking" and event.done:
            machine.unpacks = machine.unpacks or now()
            machine.unpacked[layer] = min(event.done, whole)
        if event.state == "done":
            machine.unpacked[layer] = whole
            machine.done.add(layer)

    def _text(self, host: str, machine: _Machine) -> str:
        """For a person: time left, layers, bytes and rate."""
        start = f"{host}  " if host else ""
        if machine.begin is None or not machine.sizes:
            return f"{start}{duration(now() - machine.asked)}: waiting for docker"
        total, seconds = sum(machine.sizes.values()), now() - machine.begin
        pulled, unpacked = sum(machine.pulled.values()), sum(machine.unpacked.values())
        rate = pulled / seconds if seconds else 0.0
        # The first bytes say little about the rate.
        left = (total - pulled) / rate if pulled > total / _SOME else 0.0
        if machine.unpacks and unpacked > total / _SOME:
            left = max(left, (total - unpacked) * (now() - machine.unpacks) / unpacked)
        layers = f"{len(machine.done)} of {counted(len(machine.sizes), 'layer')}"
        known = self._sizes is not None and left >= 1
        start += f"{duration(seconds)}{f', about {duration(left)} more' if known else ''}: {layers}"
        if pulled < total:
            return f"{start}, {size(pulled)} of {size(total)}, {size(round(rate))}/s"
        return f"{start}, unpacked {size(unpacked)} of {size(total)}"

    def _shown(self, console: Any) -> Any:
        from rich.console import Group
        from rich.text import Text

        with self._lock:
            lines = [self._text(host, machine) for host, machine in self._machines.items()]
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines[: max(console.height - 1, 1)]))
