"""Transfers one file over one connection: HTTP status, ranges, sizes, hashes. `fetch.py` chooses the mirror."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from builder.errors import Cancelled, NetworkError, PinError
from builder.model.inputs import Input
from builder.retry import retry_after
from builder.store.blobs import Blobs, BlobWriter

if TYPE_CHECKING:
    import requests

CHUNK = 1 << 20
TIMEOUT = (10.0, 30.0)
"""Seconds to connect, and seconds between two reads."""
_LIMIT = 2 << 30
"""Bytes; a larger file that is not locked yet is refused."""


class Reason(Enum):
    """Why a transfer failed.

    GONE: the mirror does not have the file. WRONG: the mirror has another file. REFUSED: the mirror denies the request.
    TRANSIENT: the mirror does not answer or the connection broke; only then another attempt can succeed.
    """

    GONE = "gone"
    WRONG = "wrong"
    REFUSED = "refused"
    TRANSIENT = "transient"


class TransferError(Exception):
    """One attempt at one mirror failed. retry_after: seconds that the server asks to wait before the next attempt."""

    def __init__(self, reason: Reason, detail: str, retry_after: float = 0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after


class Download:
    """One input on its way into the store. The bytes received survive a broken connection and a change of mirror."""

    def __init__(self, store: Blobs, wanted: Input, cancel: Event, report: Callable[[int], None]) -> None:
        self._store = store
        self._wanted = wanted
        self._cancel = cancel
        self._report = report
        self._resumed = False
        self._writer: BlobWriter = store.writer()

    def close(self) -> None:
        """Discard the bytes received, unless they are committed to the store. Any thread may call this."""
        self._writer.abandon()

    def pull(self, session: requests.Session, url: str) -> None:
        """Request the missing bytes from `url` and commit the file to the store.

        Raises TransferError, Cancelled, and EngineError when the disk is full.
        """
        headers = {"Accept-Encoding": "identity"}
        if self._writer.size:
            headers["Range"] = f"bytes={self._writer.size}-"
        with transfer_errors(), session.get(url, stream=True, headers=headers, timeout=TIMEOUT) as response:
            self._check_range(response)
            self._receive(response)
        self._commit()

    def take(self, source: Path | Iterator[bytes]) -> None:
        """Copy the whole file from an InputSource, a file or chunks, and commit it. Raises as `pull` does."""
        self._restart()
        try:
            if isinstance(source, Path):
                self._link(source)
            else:
                for chunk in source:
                    self._append(chunk)
                self._commit()
        except PinError as error:
            raise TransferError(Reason.WRONG, error.what) from error
        except NetworkError as error:
            raise TransferError(Reason.TRANSIENT, error.what) from error
        except OSError as error:
            raise TransferError(Reason.TRANSIENT, f"cannot read it: {error.strerror or error}") from error

    def _link(self, source: Path) -> None:
        check_size(source.stat().st_size, self._wanted)

        def watch(count: int) -> None:
            if self._cancel.is_set():
                raise Cancelled
            self._report(count)

        self._store.add_file(source, self._wanted.digest, watch)

    def _check_range(self, response: requests.Response) -> None:
        """Check the status, and that the body starts at the first missing byte."""
        start = self._writer.size
        if response.status_code == 416 and start:
            self._restart()
            raise TransferError(Reason.TRANSIENT, "the server refused to resume")
        check_status(response)
        if response.status_code == 206:
            if not start or not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                self._restart()
                raise TransferError(Reason.TRANSIENT, "the server answered with another range")
            self._resumed = True
            return
        if start:
            self._restart()
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and "Content-Encoding" not in response.headers:
            check_size(int(length), self._wanted)

    def _receive(self, response: requests.Response) -> None:
        # read1 returns the bytes that are there: a cancellation takes effect soon, and a broken connection loses none.
        while chunk := response.raw.read1(CHUNK, decode_content=False):
            self._append(chunk)

    def _append(self, chunk: bytes) -> None:
        if self._cancel.is_set():
            raise Cancelled
        self._writer.write(chunk)
        if self._writer.size > self._wanted.size:
            self._restart()
            raise TransferError(Reason.WRONG, f"has more than the locked {self._wanted.size} bytes")
        self._report(self._writer.size)

    def _commit(self) -> None:
        if self._writer.size < self._wanted.size:
            detail = f"the connection broke after {self._writer.size} of {self._wanted.size} bytes"
            raise TransferError(Reason.TRANSIENT, detail)
        try:
            self._writer.commit(self._wanted.digest)
        except PinError as error:
            resumed = self._resumed
            self._restart()
            if resumed:  # The parts may come from two versions of the file: only a whole file proves a mismatch.
                raise TransferError(Reason.TRANSIENT, "a resumed transfer gave other bytes") from error
            raise TransferError(Reason.WRONG, error.what) from error

    def _restart(self) -> None:
        self._writer.abandon()
        self._resumed = False
        self._writer = self._store.writer()


def save(session: requests.Session, address: str, path: Path) -> tuple[str, int]:
    """Write a file that no lock knows yet to `path`; returns its sha256 and its size. Raises TransferError."""
    seen, size = hashlib.sha256(), 0
    headers = {"Accept-Encoding": "identity"}
    with transfer_errors(), session.get(address, stream=True, headers=headers, timeout=TIMEOUT) as got:
        check_status(got)
        with path.open("wb") as file:
            for chunk in got.raw.stream(CHUNK, decode_content=False):
                size += len(chunk)
                if size > _LIMIT:
                    raise TransferError(Reason.WRONG, f"has more than {_LIMIT} bytes")
                seen.update(chunk)
                file.write(chunk)
        length = got.headers.get("Content-Length", "")
        if length.isdigit() and int(length) != size:
            raise TransferError(Reason.TRANSIENT, f"the connection broke after {size} of {length} bytes")
    return seen.hexdigest(), size


def check_size(size: int, wanted: Input) -> None:
    """Raises TransferError (WRONG) when `size`, in bytes, is not the locked size."""
    if size != wanted.size:
        raise TransferError(Reason.WRONG, f"has {size} bytes, the lock says {wanted.size}")


def check_status(response: requests.Response) -> None:
    """Raises TransferError unless the status is 200 or 206."""
    code = response.status_code
    if code in (200, 206):
        return
    detail = f"HTTP {code}"
    if code in (404, 410):
        raise TransferError(Reason.GONE, detail)
    if code in (408, 425, 429) or code >= 500:
        raise TransferError(Reason.TRANSIENT, detail, retry_after(response.headers.get("Retry-After", "")) or 0)
    raise TransferError(Reason.REFUSED, detail)


@contextlib.contextmanager
def transfer_errors() -> Iterator[None]:
    """Turns exceptions of requests and urllib3 into TransferError (TRANSIENT), with no address in the detail."""
    import requests
    import urllib3

    try:
        yield
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise TransferError(Reason.TRANSIENT, _detail(error)) from error


def _detail(error: BaseException) -> str:
    import requests
    import urllib3

    if isinstance(error, requests.exceptions.SSLError):
        return "its TLS certificate is not accepted (REQUESTS_CA_BUNDLE names another CA file)"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refused the connection"
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return "timed out"
    causes = list(_causes(error))
    if any(isinstance(cause, urllib3.exceptions.NameResolutionError) for cause in causes):
        return "connection failed: unknown host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection failed: refused"
    return "the connection broke" if isinstance(error, urllib3.exceptions.HTTPError) else "connection failed"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it; urllib3 and requests also keep a cause as `reason` or as the first argument."""
    seen: set[int] = set()
    todo: list[object] = [error]
    while todo:
        found = todo.pop()
        if isinstance(found, BaseException) and id(found) not in seen:
            seen.add(id(found))
            yield found
            todo += [found.__cause__, found.__context__, getattr(found, "reason", None), *found.args[:1]]
