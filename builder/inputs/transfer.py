"""One file over one connection: status codes, ranges, sizes and hashes. Which mirror comes when is `fetch.py`'s."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Literal

from builder.errors import NetworkError, PinError
from builder.model.inputs import Input
from builder.store.blobs import Blobs, BlobWriter

if TYPE_CHECKING:
    import requests

CHUNK = 1 << 20
TIMEOUT = (10.0, 30.0)
"""Seconds to connect, and between two bytes."""

Trouble = Literal["gone", "wrong", "refused", "transient"]


class Cancelled(Exception):
    """The fetch was stopped from outside."""


class Failed(Exception):
    """One attempt at one mirror failed. Only `transient` trouble is worth another attempt; retry_after in seconds."""

    def __init__(self, trouble: Trouble, reason: str, retry_after: float = 0) -> None:
        super().__init__(reason)
        self.trouble = trouble
        self.reason = reason
        self.retry_after = retry_after


class Download:
    """One input on its way into the store. What arrived survives a broken connection, and a change of mirror."""

    def __init__(self, store: Blobs, wanted: Input, cancel: Event, report: Callable[[int], None]) -> None:
        self._store = store
        self._wanted = wanted
        self._cancel = cancel
        self._report = report
        self._resumed = False
        self._writer: BlobWriter = store.writer()

    def close(self) -> None:
        """Forget what arrived, unless it is complete and in the store. May be called from another thread."""
        self._writer.abandon()

    def pull(self, session: requests.Session, url: str) -> None:
        """Get the rest from `url` and commit it. Raises Failed, Cancelled, and EngineError when the disk is full."""
        headers = {"Accept-Encoding": "identity"}
        if self._writer.size:
            headers["Range"] = f"bytes={self._writer.size}-"
        with as_failed(), session.get(url, stream=True, headers=headers, timeout=TIMEOUT) as response:
            self._position(response)
            self._copy(response)
        self._commit()

    def take(self, source: Path | Iterator[bytes]) -> None:
        """Get the whole from a mirror of ours, a file or chunks, and commit it. Raises as `pull` does."""
        self._restart()
        try:
            if isinstance(source, Path):
                self._link(source)
            else:
                for chunk in source:
                    self._append(chunk)
                self._commit()
        except PinError as error:
            raise Failed("wrong", error.what) from error
        except NetworkError as error:
            raise Failed("transient", error.what) from error
        except OSError as error:
            raise Failed("transient", f"cannot read it: {error.strerror or error}") from error

    def _link(self, source: Path) -> None:
        size = source.stat().st_size
        if size != self._wanted.size:
            raise Failed("wrong", f"has {size} bytes, locked are {self._wanted.size}")

        def watch(count: int) -> None:
            if self._cancel.is_set():
                raise Cancelled
            self._report(count)

        self._store.adopt(source, self._wanted.digest, watch)

    def _position(self, response: requests.Response) -> None:
        """Check the answer's status, and that its body starts where what arrived ends."""
        start = self._writer.size
        if response.status_code == 416 and start:
            self._restart()
            raise Failed("transient", "the server refused to resume")
        check_status(response)
        if response.status_code == 206:
            if not start or not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                self._restart()
                raise Failed("transient", "the server answered with another range")
            self._resumed = True
            return
        if start:
            self._restart()
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) != self._wanted.size and "Content-Encoding" not in response.headers:
            raise Failed("wrong", f"has {length} bytes, locked are {self._wanted.size}")

    def _copy(self, response: requests.Response) -> None:
        # read1 hands over what arrived: a cancel is seen soon, and nothing is lost when the connection breaks.
        while chunk := response.raw.read1(CHUNK, decode_content=False):
            self._append(chunk)

    def _append(self, chunk: bytes) -> None:
        if self._cancel.is_set():
            raise Cancelled
        self._writer.write(chunk)
        if self._writer.size > self._wanted.size:
            self._restart()
            raise Failed("wrong", f"has more than the locked {self._wanted.size} bytes")
        self._report(self._writer.size)

    def _commit(self) -> None:
        if self._writer.size < self._wanted.size:
            raise Failed("transient", f"broke off after {self._writer.size} of {self._wanted.size} bytes")
        try:
            self._writer.commit(self._wanted.digest)
        except PinError as error:
            resumed = self._resumed
            self._restart()
            if resumed:  # Its parts may come from two versions of the file: only a whole one proves that it is wrong.
                raise Failed("transient", "a resumed transfer gave other bytes") from error
            raise Failed("wrong", error.what) from error

    def _restart(self) -> None:
        self._writer.abandon()
        self._resumed = False
        self._writer = self._store.writer()


def check_status(response: requests.Response) -> None:
    """Raises Failed unless the answer is 200 or 206."""
    code = response.status_code
    if code in (200, 206):
        return
    reason = f"HTTP {code}"
    if code in (404, 410):
        raise Failed("gone", reason)
    if code in (408, 425, 429) or code >= 500:
        raise Failed("transient", reason, retry_after(response.headers.get("Retry-After", "")))
    raise Failed("refused", reason)


def retry_after(value: str) -> float:
    """Seconds that a Retry-After header asks to wait: it holds seconds or a date. 0 when it holds neither."""
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


@contextlib.contextmanager
def as_failed() -> Iterator[None]:
    """Turns what requests and urllib3 raise into Failed("transient"), without addresses in the reason."""
    import requests
    import urllib3

    try:
        yield
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise Failed("transient", _reason(error)) from error


def _reason(error: BaseException) -> str:
    import requests
    import urllib3

    if isinstance(error, requests.exceptions.SSLError):
        return "its TLS certificate is not accepted (REQUESTS_CA_BUNDLE names another CA file)"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refused"
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return "timed out"
    text = str(error)
    for mark, meaning in (("NameResolution", "unknown host"), ("resolve", "unknown host"), ("refused", "refused")):
        if mark in text:
            return f"connection failed: {meaning}"
    return "connection broke" if isinstance(error, urllib3.exceptions.HTTPError) else "connection failed"
