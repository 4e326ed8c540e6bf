"""Fetches what the lock names into the store: in parallel, from every mirror that this machine knows, by hash."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING

from builder import __version__
from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs.candidates import Hosts, Mirror, address_of, failure, machine_hosts, mirrors_of
from builder.inputs.source import InputSource, source_error
from builder.inputs.transfer import Cancelled, Download, Failed
from builder.model.inputs import FetchEvent, Input
from builder.store.blobs import Blobs

if TYPE_CHECKING:
    import requests

ROUNDS = 3
LONGEST_WAIT = 60.0
"""Seconds; a mirror that asks for more is not waited for any longer."""


def fetch(
    store: Blobs,
    wanted: Sequence[Input],
    *,
    offline: bool,
    progress: Callable[[FetchEvent], None],
    workers: int = 8,
    hosts: Hosts | None = None,
    backoff: float = 0.5,
    cancel: Event | None = None,
    source: InputSource | None = None,
    failed: Callable[[Input, BuilderError], None] | None = None,
) -> None:
    """Bring every `wanted` input into the store; returns when all are there and verified.

    progress is called in the calling thread. hosts: instead of what this machine is configured to use. backoff: seconds
    before the second round of mirrors, doubled for each further one. cancel: gives up once it is set, also while every
    mirror is silent (raises Cancelled). source: a mirror of ours, which comes first; while `offline` nothing else is
    asked. failed: told of an input that cannot be had, instead of giving up; in the calling thread.

    Raises PinError (an input vanished, differs from the lock, or is missing while `offline`) and NetworkError (no
    mirror answered). On any exception, Ctrl-C included, the transfers stop and nothing partial stays in the store.
    """
    missing: dict[str, Input] = {}
    for item in wanted:
        if store.has(item.digest):
            progress(FetchEvent(item.file, item.size, item.size, "cached", item.digest))
        else:
            missing[item.digest] = item
    if not missing:
        return
    if offline and source is None:
        if failed is None:
            raise _offline_error(list(missing.values()))
        for item in missing.values():
            failed(item, _offline_error([item]))
        return
    # The largest first: no worker then sits alone with it at the end.
    queued = sorted(missing.values(), key=lambda item: (-item.size, item.file))
    pool = _Pool(store, queued, Hosts() if offline else hosts, backoff, source, offline=offline)
    pool.run(workers, progress, cancel or Event(), failed)


class _Pool:
    """Worker threads over one list of inputs; what they have to say goes through a queue to the calling thread."""

    def __init__(
        self,
        store: Blobs,
        wanted: Sequence[Input],
        hosts: Hosts | None,
        backoff: float,
        source: InputSource | None,
        *,
        offline: bool,
    ) -> None:
        self.store = store
        self.count = len(wanted)
        self.hosts = hosts or machine_hosts({item.kind for item in wanted})
        self.backoff = backoff
        self.source = source
        self.offline = offline
        self.cancel = Event()
        self.todo: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[FetchEvent | _Failure | BaseException] = queue.SimpleQueue()
        self.open: set[Download] = set()
        for item in wanted:
            self.todo.put(item)

    def run(
        self,
        workers: int,
        progress: Callable[[FetchEvent], None],
        cancel: Event,
        failed: Callable[[Input, BuilderError], None] | None,
    ) -> None:
        threads = [Thread(target=self._work, daemon=True) for _ in range(min(workers, self.count))]
        for thread in threads:
            thread.start()
        try:
            left = self.count
            while left:
                if cancel.is_set():
                    raise Cancelled
                try:
                    word = self.said.get(timeout=0.2)
                except queue.Empty:
                    continue
                if isinstance(word, BaseException):
                    raise word
                if isinstance(word, _Failure):
                    if failed is None:
                        raise word.error
                    failed(word.item, word.error)
                    left -= 1
                    continue
                progress(word)
                left -= word.state == "done"
        finally:
            self.cancel.set()
            deadline = time.monotonic() + 2
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            # A thread that hangs in a silent connection is left behind; what it had written is not.
            for download in list(self.open):
                download.close()

    def _work(self) -> None:
        session = new_session()
        try:
            while not self.cancel.is_set():
                item = self.todo.get_nowait()
                try:
                    self._one(session, item)
                except (PinError, NetworkError) as error:
                    self.said.put(_Failure(item, error))
        except (queue.Empty, Cancelled):
            pass
        except BaseException as error:
            self.said.put(error)
        finally:
            session.close()

    def _one(self, session: requests.Session, item: Input) -> None:
        self.said.put(FetchEvent(item.file, 0, item.size, "start", item.digest))
        told = 0

        def report(received: int) -> None:
            nonlocal told
            if received - told >= 1 << 20 or received < told:
                told = received
                self.said.put(FetchEvent(item.file, received, item.size, "progress", item.digest))

        download = Download(self.store, item, self.cancel, report)
        self.open.add(download)
        try:
            self._rounds(session, item, download)
        finally:
            download.close()
            self.open.discard(download)
        self.said.put(FetchEvent(item.file, item.size, item.size, "done", item.digest))

    def _rounds(self, session: requests.Session, item: Input, download: Download) -> None:
        """Try every mirror; those with passing trouble again, ROUNDS times in all."""
        failures: dict[Mirror, Failed] = {}
        if self.source is not None:
            try:
                download.take(self.source.open(item))
                return
            except Failed as failed:
                if self.offline:
                    raise source_error(item, self.source, failed) from None
                self.source.lacks(item.name, failed.reason)
                failures[Mirror("mirror", self.source.name)] = failed
        mirrors = mirrors_of(item, self.hosts)
        for number in range(ROUNDS):
            for mirror in mirrors:
                if self.cancel.is_set():
                    raise Cancelled
                try:
                    download.pull(session, address_of(session, mirror, item))
                    return
                except Failed as failed:
                    failures[mirror] = failed
            mirrors = [mirror for mirror in mirrors if failures[mirror].trouble == "transient"]
            if not mirrors:
                break
            asked = min(failures[mirror].retry_after for mirror in mirrors)
            if number + 1 < ROUNDS and self.cancel.wait(min(LONGEST_WAIT, max(asked, self.backoff * 2**number))):
                raise Cancelled
        raise failure(item, failures)


@dataclass(frozen=True)
class _Failure:
    item: Input
    error: BuilderError


def _offline_error(missing: Sequence[Input]) -> PinError:
    names = ", ".join(item.name for item in missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    size = sum(item.size for item in missing) / 1e6
    return PinError(
        f"not in the store, and this is offline: {names}",
        cause=f"{len(missing)} inputs ({size:.1f} MB) have not been fetched on this machine",
        next="run the same command once without --offline, or name a mirror that has them: --mirror",
    )


def new_session() -> requests.Session:
    """Connections to mirrors, with this machine's proxies and certificates."""
    import requests

    session = requests.Session()
    session.headers["User-Agent"] = f"builder/{__version__}"
    # requests reads REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and the proxy variables itself.
    if not os.environ.get("REQUESTS_CA_BUNDLE") and (bundle := os.environ.get("PIP_CERT")):
        session.verify = bundle
    return session
