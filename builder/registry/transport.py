"""HTTP requests to registries: retries or an error, time limits, redirects that pass no credentials to other hosts."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from builder.errors import NetworkError
from builder.registry.config import is_loopback
from builder.registry.errors import TransientError, http_error, origin_of
from builder.retry import RetryPolicy, retry_after

if TYPE_CHECKING:
    import requests
    from requests.adapters import HTTPAdapter

_REDIRECTS = 5
_CHUNK = 1 << 20
_GATHER = 0.1
"""Seconds during which small pieces are joined to one chunk."""
_CONNECTIONS = 32
"""The connections to one host that stay open."""
Body = bytes | Callable[[], Any] | None
"""Bytes, or a function that returns a new stream for every attempt."""


class Transport:
    """Sends requests. Thread-safe: threads share connections only."""

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self.retry_policy = retry_policy
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: HTTPAdapter | None = None

    def send(
        self,
        method: str,
        url: str,
        *,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        once: bool = False,
        redirects: int = _REDIRECTS,
    ) -> requests.Response:
        """Send one request, again on 429, 5xx but 501, and broken connections (not when `once`), following redirects.

        The body of the answer is not read. authorization: sent to the origin of `url` only. Raises NetworkError,
        TransientError when another attempt might have helped.
        """
        budget = self.retry_policy.budget()
        while True:
            try:
                response = self._follow(
                    method, url, authorization=authorization, headers=dict(headers or {}), body=body, left=redirects
                )
            except TransientError:
                if once or not budget.again():
                    raise
                continue
            if response.status_code != 429 and (response.status_code < 500 or response.status_code == 501):
                return response
            error = _busy_error(response, url)
            response.close()
            if once or not budget.again(error.pause):
                raise error

    def _follow(
        self, method: str, url: str, *, authorization: str | None, headers: dict[str, str], body: Body, left: int
    ) -> requests.Response:
        home = origin_of(url)
        for _ in range(left + 1):
            sent = dict(headers)
            if authorization is not None and origin_of(url) == home:
                sent["Authorization"] = authorization
            response = self._send_once(method, url, sent, body() if callable(body) else body)
            target = response.headers.get("Location")
            # 301 to 303 turn other methods into GET, so a push does not follow them.
            moved = (301, 302, 303, 307, 308) if method in ("GET", "HEAD") else (307, 308)
            if response.status_code not in moved or not target:
                return response
            response.close()
            url = next_url(url, target)
        raise NetworkError("the registry redirects too often", id="redirect-endless", where=home)

    def _send_once(self, method: str, url: str, headers: dict[str, str], body: Any) -> requests.Response:
        import requests

        # A proxy cannot reach the loopback interface of this machine.
        direct = {"no_proxy": "localhost,127.0.0.1,::1"} if is_loopback(urlsplit(url).netloc) else None
        try:
            session = self._session()

            def request() -> requests.Response:
                return session.request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    stream=True,
                    allow_redirects=False,
                    timeout=(self.retry_policy.connect, self.retry_policy.read),
                    proxies=direct,
                )

            # The upload of a stream has no time limit.
            is_small = body is None or isinstance(body, bytes)
            return _call_with_deadline(self.retry_policy.whole, request) if is_small else request()
        except _DeadlineError:
            self._local.session = None  # still in use
            raise _slow_error(self.retry_policy.whole, origin_of(url)) from None
        except (requests.RequestException, OSError, ValueError) as error:
            raise http_error(error, url) from None

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            import requests

            session = requests.Session()
            # A login from ~/.netrc would replace the token and travel along redirects.
            session.auth = _unchanged
            # `_follow` follows redirects; requests would read the whole body of a redirect first.
            session.get_redirect_target = _no_redirect  # type: ignore[method-assign]
            # No registry needs cookies, which would reach other ports of the host and other hosts of the domain.
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
            # No compression of the transfer: digests are those of the stored bytes.
            session.headers.update({"User-Agent": "builder", "Accept-Encoding": "identity"})
            for scheme in ("https://", "http://"):
                session.mount(scheme, self._pool())
            self._local.session = session
        return session

    def _pool(self) -> HTTPAdapter:
        with self._lock:
            if self._connections is None:
                from builder.engine.connection import Adapter

                self._connections = Adapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS)
            return self._connections


def stream(response: requests.Response) -> Generator[bytes, None, None]:
    """The chunks (up to 2 MiB) of the body, not decoded. Raises TransientError when the connection breaks."""
    import urllib3

    held, since = bytearray(), time.monotonic()
    try:
        # read1 returns what has arrived, 16 KiB at most under TLS. Pieces are joined for a short time only, so that the
        # deadline applies to a slow body.
        while piece := response.raw.read1(_CHUNK, decode_content=False):
            held += piece
            if len(held) >= _CHUNK or time.monotonic() - since > _GATHER:
                yield bytes(held)
                held, since = bytearray(), time.monotonic()
        if held:
            yield bytes(held)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        if held:
            yield bytes(held)
        raise http_error(error, response.url) from None
    finally:
        response.close()


def read_body(response: requests.Response, limit: int, seconds: float = RetryPolicy.whole) -> bytes:
    """The whole body. Raises NetworkError when it is longer than `limit` bytes or takes longer than `seconds`."""
    data = bytearray()
    where = origin_of(response.url)
    with contextlib.closing(stream(response)) as chunks:
        for chunk in with_deadline(chunks, seconds, where):
            data += chunk
            if len(data) > limit:
                raise NetworkError(f"an answer longer than {limit} bytes", id="answer-too-long", where=where)
    return bytes(data)


def with_deadline(chunks: Iterable[bytes], seconds: float, where: str) -> Generator[bytes, None, None]:
    """Yield `chunks`. Raises NetworkError when that takes longer than `seconds`."""
    end = time.monotonic() + seconds
    for chunk in chunks:
        yield chunk
        if time.monotonic() > end:
            raise _slow_error(seconds, where)


def next_url(url: str, target: str) -> str:
    """The URL of `target`, a Location header in the answer of `url`. Raises NetworkError when it leaves TLS."""
    here = urlsplit(url)
    try:
        joined = urljoin(url, target)
        there = urlsplit(joined)
        fits = there.hostname is not None and there.port != 0 and there.username is None
    except ValueError:
        fits = False
    if not fits or there.scheme not in ("http", "https"):
        raise NetworkError("the registry redirects to an invalid address", id="redirect-invalid", where=origin_of(url))
    if here.scheme == "https" and there.scheme == "http":
        raise NetworkError(
            "the registry redirects from https to http",
            id="redirect-insecure",
            where=origin_of(url),
            cause="that is not safe",
        )
    return joined


def same_origin(first: str, second: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return origin_of(first) == origin_of(second)


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _no_redirect(resp: requests.Response) -> str | None:
    return None


def _busy_error(response: requests.Response, url: str) -> TransientError:
    """The error for a 429 or 5xx."""
    limited = response.status_code == 429
    pause = retry_after(response.headers.get("Retry-After", ""))
    wait = f"; it allows the next request in {pause:.0f} s" if pause else ""
    error = TransientError(
        f"the registry answered {response.status_code}",
        id="registry-busy",
        where=origin_of(url),
        cause=("it limits the number of requests" if limited else "it is broken or busy") + wait,
        next="try again later" + ("; a login may raise the limit" if limited else ""),
    )
    error.pause = pause
    return error


class _DeadlineError(Exception):
    """The deadline has passed."""


def _slow_error(seconds: float, where: str) -> NetworkError:
    return NetworkError(
        f"no complete answer within {seconds:.0f} s", id="answer-too-slow", where=where, next="try again later"
    )


def _call_with_deadline(seconds: float, work: Callable[[], requests.Response]) -> requests.Response:
    """The result of `work`. Raises _DeadlineError after `seconds`; `work` then continues in a daemon thread.

    Timeouts of sockets are not enough: each byte restarts them.
    """
    results: queue.SimpleQueue[requests.Response | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except BaseException as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        outcome = results.get(timeout=seconds)
    except queue.Empty:
        raise _DeadlineError from None
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
