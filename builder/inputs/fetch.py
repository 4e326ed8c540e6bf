"""Fetches locked inputs into the store: in parallel, by hash, from every mirror that is configured on this machine."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from builder import __version__
from builder.errors import BuilderError, Cancelled, NetworkError, PinError
from builder.inputs.candidates import Candidate, Hosts, candidates, file_address, input_error, machine_hosts
from builder.inputs.source import InputSource, source_error
from builder.inputs.transfer import Download, Reason, TransferError
from builder.model.inputs import FetchEvent, Input
from builder.store.blobs import Blobs
from builder.text import first_few

if TYPE_CHECKING:
    import requests

ROUNDS = 3
LONGEST_WAIT = 60.0
"""Seconds; the limit of a wait that a mirror asks for."""
_PATIENCE = 0.7
"""Seconds in which transfers end after an error or a cancellation."""
_PAGE, _PAGE_SECONDS, _PIECE = 16 << 20, 300.0, 1 << 16
"""Bytes and seconds of a page of a package index; bytes of one read."""


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

    progress is called in the calling thread. hosts: replaces the configuration of this machine. backoff: seconds before
    the second round of mirrors, doubled for each further round. cancel: once set, the fetch stops, also while every
    mirror is silent (raises Cancelled). source: read before any mirror, and the only place read while `offline`.
    failed: called in the calling thread for each input that cannot be fetched, instead of raising its error.

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
    # The largest first, so that it does not delay the end.
    queued = sorted(missing.values(), key=lambda item: (-item.size, item.file))
    pool = _Pool(store, queued, Hosts() if offline else hosts, backoff, source, offline=offline)
    pool.run(workers, progress, cancel or Event(), failed)


class _Pool:
    """Worker threads over one list of inputs; they report through a queue to the calling thread."""

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
        self.reports: queue.SimpleQueue[FetchEvent | _Failure | BaseException] = queue.SimpleQueue()
        self.downloads: set[Download] = set()
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
                    report = self.reports.get(timeout=0.2)
                except queue.Empty:
                    continue
                if isinstance(report, BaseException):
                    raise report
                if isinstance(report, _Failure):
                    if failed is None:
                        raise report.error
                    failed(report.item, report.error)
                    left -= 1
                    continue
                progress(report)
                left -= report.state == "done"
        finally:
            self.cancel.set()
            deadline = time.monotonic() + _PATIENCE
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            # A thread that waits in a silent connection stays behind; the partial file that it wrote does not.
            for download in list(self.downloads):
                download.close()

    def _work(self) -> None:
        session = new_session()
        try:
            while not self.cancel.is_set():
                item = self.todo.get_nowait()
                try:
                    self._fetch(session, item)
                except (PinError, NetworkError) as error:
                    self.reports.put(_Failure(item, error))
        except (queue.Empty, Cancelled):
            pass
        except BaseException as error:
            self.reports.put(error)
        finally:
            session.close()

    def _fetch(self, session: requests.Session, item: Input) -> None:
        self.reports.put(FetchEvent(item.file, 0, item.size, "start", item.digest))
        reported = 0

        def report(received: int) -> None:
            nonlocal reported
            if received - reported >= 1 << 20 or received < reported:
                reported = received
                self.reports.put(FetchEvent(item.file, received, item.size, "progress", item.digest))

        download = Download(self.store, item, self.cancel, report)
        self.downloads.add(download)
        try:
            self._try_all(session, item, download)
        finally:
            download.close()
            self.downloads.discard(download)
        self.reports.put(FetchEvent(item.file, item.size, item.size, "done", item.digest))

    def _try_all(self, session: requests.Session, item: Input, download: Download) -> None:
        """Try the source, then every candidate; those that failed transiently again, ROUNDS times in all."""
        failures: dict[Candidate, TransferError] = {}
        if self.source is not None:
            try:
                download.take(self.source.open(item))
                return
            except TransferError as error:
                if self.offline:
                    raise source_error(item, self.source, error) from None
                self.source.report_missing(item.name, error.detail)
                failures[Candidate("mirror", self.source.name)] = error
        left = candidates(item, self.hosts)
        for number in range(ROUNDS):
            for candidate in left:
                if self.cancel.is_set():
                    raise Cancelled
                try:
                    download.pull(session, file_address(session, candidate, item))
                    return
                except TransferError as error:
                    failures[candidate] = error
            left = [candidate for candidate in left if failures[candidate].reason is Reason.TRANSIENT]
            if not left:
                break
            requested = min(failures[candidate].retry_after for candidate in left)
            if number + 1 < ROUNDS and self.cancel.wait(min(LONGEST_WAIT, max(requested, self.backoff * 2**number))):
                raise Cancelled
        raise input_error(item, failures)


@dataclass(frozen=True)
class _Failure:
    item: Input
    error: BuilderError


def _offline_error(missing: Sequence[Input]) -> PinError:
    names = first_few([item.name for item in missing])
    size = sum(item.size for item in missing) / 1e6
    return PinError(
        f"not in the store, and this is offline: {names}",
        id="input-missing-offline",
        cause=f"{len(missing)} inputs ({size:.1f} MB) have not been fetched on this machine",
        next="run the same command once without --offline, or name a mirror that has them: --mirror",
    )


def new_session() -> requests.Session:
    """An HTTP session for mirrors, with this machine's proxies and certificates."""
    import requests

    from builder.engine.connection import Adapter

    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, Adapter())
    session.hooks["response"].append(_bounded)
    session.headers["User-Agent"] = f"builder/{__version__}"
    # requests reads REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and the proxy variables itself.
    if not os.environ.get("REQUESTS_CA_BUNDLE") and (bundle := os.environ.get("PIP_CERT")):
        session.verify = bundle
    return session


def _bounded(response: requests.Response, *_: Any, **options: Any) -> None:
    """A hook of requests, which itself reads the bodies of redirects, and of answers that are no stream, to any length.

    Raises TransferError.
    """
    import requests
    import urllib3

    read: Any = response
    if response.is_redirect:
        response.raw.close()
        read._content = b""
    elif not options.get("stream"):
        data, end = bytearray(), time.monotonic() + _PAGE_SECONDS
        try:
            while piece := response.raw.read1(_PIECE, decode_content=True):
                data += piece
                if len(data) > _PAGE or time.monotonic() > end:
                    response.raw.close()
                    raise TransferError(Reason.REFUSED, f"a page of more than {_PAGE >> 20} MB, or {_PAGE_SECONDS:g} s")
        except urllib3.exceptions.HTTPError as error:
            raise requests.ConnectionError(error) from error
        read._content, read._content_consumed = bytes(data), True
