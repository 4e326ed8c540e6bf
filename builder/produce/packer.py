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
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from builder.errors import BuilderError, EngineError
from builder.model.plan import PlannedLayer
from builder.produce.files import produce_files
from builder.store.records import LayerRecord
from builder.store.store import Store

WORTH = 32 << 20
"""Bytes of inputs from which a layer is worth a process, which takes a third of a second to start."""
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
        self, layer: PlannedLayer, *, compression: str, threads: int, progress: Callable[[int], None]
    ) -> LayerRecord:
        """As `produce_files`, in a process; a layer that is not worth a process is made in this one.

        Raises EngineError also when the process is killed.
        """
        assert layer.spec is not None
        # Debian packages need temporary space for their contents; one root at a time keeps that below a gigabyte.
        with self._one_spool if layer.spec["debs"] else contextlib.nullcontext():
            if sum(item.size for item in layer.inputs) < WORTH:
                return produce_files(self._store, layer, compression=compression, threads=threads, progress=progress)
            return self._elsewhere(layer, compression, threads, progress)

    def _elsewhere(
        self, layer: PlannedLayer, compression: str, threads: int, progress: Callable[[int], None]
    ) -> LayerRecord:
        packer = self._free()
        try:
            packer.connection.send((layer, compression, threads))
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
        self._store.claim(answer.digest, answer.listing, *filter(None, [answer.receipt]))
        return answer

    def _free(self) -> _Packer:
        with self._lock:
            if self._idle:
                return self._idle.pop()
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


def _received(connection: Connection, progress: Callable[[int], None]) -> int | Exception | LayerRecord:
    """The next report or result of a packer. progress: called while there is none; it raises to cancel."""
    while not connection.poll(0.2):
        progress(0)
    received: int | Exception | LayerRecord = connection.recv()
    return received


def _ended(layer: PlannedLayer, status: int) -> EngineError:
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return EngineError(
        f"the process that packs the layer ended with {how}",
        id="packer-ended",
        where=f"layer {layer.id}",
        cause="this machine may have too little memory",
        next="run the command again with fewer --jobs",
    )


def work(root: str, descriptor: int) -> None:
    """What a packer does. root: of the store. descriptor: of its connection."""
    store = Store(Path(root))
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            layer, compression, threads = connection.recv()
            report = _Report(connection)
            try:
                made = produce_files(store, layer, compression=compression, threads=threads, progress=report.add)
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
