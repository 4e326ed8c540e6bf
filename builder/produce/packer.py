"""Packers: processes that make `files` layers, because Python's interpreter lock lets one thread unpack at a time.

A process calls `work`: it makes one layer after the other, as they arrive on its connection, and ends when that is
closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from builder.attest.receipt import Ledger
from builder.errors import BuilderError, EngineError
from builder.produce.files import Packed, pack, with_receipt
from builder.store.records import LayerRecord
from builder.store.store import Store

if TYPE_CHECKING:
    # pydantic would be half of the time that a packer takes to start.
    from builder.model.plan import PlannedLayer

WORTH = 32 << 20
"""Bytes of inputs from which a layer is worth a process, which takes a sixth of a second to start."""
_EACH = 0.1
"""Seconds between two reports of a packer."""
_PATIENCE = 0.5
"""Seconds that packers have to end, before they are killed."""
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": f"{32 << 20}", "MALLOC_TRIM_THRESHOLD_": f"{64 << 20}"}
"""Settings of glibc: it keeps memory for the pieces of files, which saves the kernel a tenth of a packer's time."""


@dataclass
class _Packer:
    process: subprocess.Popen[bytes]
    connection: Connection
    nice: int = 0
    """What was added to its nice value. Without privileges, a process cannot lower it again."""


class Packers:
    """The packers of one store. Use it in a `with` statement; at its end the processes end.

    A packer claims what it reads and writes for as long as it lives, so the caller has the time to claim the result.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._all: list[_Packer] = []
        self._idle: list[_Packer] = []
        self._lock = Lock()
        self._one_spool = Lock()

    def produce(
        self, layer: PlannedLayer, *, compression: str, threads: int, nice: int, progress: Callable[[int], None]
    ) -> LayerRecord:
        """Make the blob of a `files` layer and its receipt; a layer that is not worth a process is made in this one.

        nice: added to the nice value of the process. progress: called with the number of bytes of tar written; it
        cancels by raising. Raises PinError, InvalidError or EngineError, also when the process is killed.
        """
        assert layer.spec is not None
        ledger = Ledger(layer)
        worth = sum(item.size for item in layer.inputs) >= WORTH
        make = partial(self._elsewhere, nice) if worth else partial(pack, self._store)
        # Debian packages need temporary space for their contents; one root at a time keeps that below a gigabyte.
        with self._one_spool if layer.spec["debs"] else contextlib.nullcontext():
            record, read = make(layer.id, layer.spec, compression=compression, threads=threads, progress=progress)
        for name, digest in read:
            ledger.read_input(name, digest)
        return with_receipt(self._store, layer, record, ledger)

    def _elsewhere(
        self, nice: int, layer: str, spec: Mapping[str, Any], *, progress: Callable[[int], None], **options: str | int
    ) -> Packed:
        packer = self._free(nice)
        try:
            packer.connection.send((nice - packer.nice, layer, spec, options))
            packer.nice = nice
            while isinstance(answer := _received(packer.connection, progress), int):
                progress(answer)
        except (EOFError, ConnectionError):
            raise _ended(layer, packer.process.wait()) from None
        except BaseException:
            # The packer notices it, ends and removes its temporary files.
            packer.connection.close()
            raise
        with self._lock:
            self._idle.append(packer)
        if isinstance(answer, BaseException):
            raise answer
        self._store.claim(answer[0].digest, answer[0].listing)
        return answer

    def _free(self, nice: int) -> _Packer:
        """A packer whose nice value is not larger yet: an idle one, or one that takes the place of another."""
        with self._lock:
            self._idle.sort(key=lambda packer: (packer.nice <= nice, packer.nice))
            if self._idle and self._idle[-1].nice <= nice:
                return self._idle.pop()
            if self._idle:
                self._idle.pop().connection.close()
            ours, theirs = Pipe()
            with theirs:
                # The modules of this process, and with -P none of the folder that it was started in.
                call = f"from {__name__} import work; work({str(self._store.root)!r}, {theirs.fileno()})"
                words = [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"]
                # In a session of its own: Ctrl-C is for this process, which closes the connection.
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **_ALLOCATOR},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            packer = _Packer(process, ours)
            self._all.append(packer)
            return packer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for packer in self._all:
                packer.connection.close()
            end = time.monotonic() + _PATIENCE
            for packer in self._all:
                try:
                    packer.process.wait(max(0.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    packer.process.kill()
                    packer.process.wait()


def _received(connection: Connection, progress: Callable[[int], None]) -> int | Exception | Packed:
    """The next report or result of a packer. progress: called while there is none; it raises to cancel."""
    while not connection.poll(0.2):
        progress(0)
    received: int | Exception | Packed = connection.recv()
    return received


def _ended(layer: str, status: int) -> EngineError:
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return EngineError(
        f"the process that packs the layer ended with {how}",
        id="packer-ended",
        where=f"layer {layer}",
        cause="this machine may have too little memory",
        next="run the command again with fewer --jobs",
    )


def work(root: str, descriptor: int) -> None:
    """What a packer does. root: of the store. descriptor: of its connection."""
    store = Store(Path(root))
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            nice, layer, spec, options = connection.recv()
            os.nice(nice)
            report = _Report(connection)
            try:
                made = pack(store, layer, spec, progress=report.add, **options)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                if not isinstance(error, BuilderError | OSError):
                    error.add_note("".join(traceback.format_exception(error)))
                connection.send(error)
            else:
                report.send()
                connection.send(made)


class _Report:
    """Sends what was packed several times a second."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._count = 0
        self._next = 0.0

    def add(self, count: int) -> None:
        self._count += count
        if time.monotonic() >= self._next:
            self.send()

    def send(self) -> None:
        self._connection.send(self._count)
        self._count, self._next = 0, time.monotonic() + _EACH
