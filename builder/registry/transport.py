"""HTTP as registries need it: patience, redirects that keep credentials at home, errors that carry no secret."""

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
from builder.registry.errors import TransientError, failure, origin_of
from builder.retry import Patience, retry_after

if TYPE_CHECKING:
    import requests
    from requests.adapters import HTTPAdapter

_REDIRECTS = 5
_CHUNK = 1 << 20
_GATHER = 0.1
"""Seconds for which small pieces become one chunk."""
_CONNECTIONS = 32
"""Kept open to one host; more than that are closed after use."""
Body = bytes | Callable[[], Any] | None
"""bytes, or what makes a fresh stream of them for every attempt."""


class Transport:
    """Sends requests. Thread-safe: threads share their connections, and nothing else."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
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
        """Send one request, again on 429, 5xx and broken connections (not when `once`), following redirects.

        The answer's body is not read yet. `authorization` is sent to the origin of `url` only. Raises NetworkError,
        TransientError when another attempt might have helped.
        """
        budget = self.patience.budget()
        while True:
            try:
                response = self._follow(
                    method, url, authorization=authorization, headers=dict(headers or {}), body=body, left=redirects
                )
            except TransientError:
                if once or not budget.again():
                    raise
                continue
            if response.status_code != 429 and response.status_code < 500:
                return response
            error = _busy(response, url)
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
            response = self._once(method, url, sent, body() if callable(body) else body)
            target = response.headers.get("Location")
            # 301 to 303 turn anything but a GET into something else: for a push they are no answer.
            moved = (301, 302, 303, 307, 308) if method in ("GET", "HEAD") else (307, 308)
            if response.status_code not in moved or not target:
                return response
            response.close()
            url = next_url(url, target)
        raise NetworkError("the registry redirects too often", id="redirect-endless", where=home)

    def _once(self, method: str, url: str, headers: dict[str, str], body: Any) -> requests.Response:
        import requests

        # A proxy cannot reach this machine's own loopback.
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
                    timeout=(self.patience.connect, self.patience.read),
                    proxies=direct,
                )

            # A stream takes as long as it takes.
            small = body is None or isinstance(body, bytes)
            return _within(self.patience.whole, request) if small else request()
        except _TooLateError:
            self._local.session = None  # still in use
            raise _too_slow(self.patience.whole, origin_of(url)) from None
        except (requests.RequestException, OSError, ValueError) as error:
            raise failure(error, url) from None

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            import requests

            session = requests.Session()
            # A login from ~/.netrc would replace the token and travel along redirects.
            session.auth = _as_is
            # Redirects are followed above; the library would read a redirect's body whole, however long, to look ahead.
            session.get_redirect_target = _no_target  # type: ignore[method-assign]
            # No registry needs cookies; they would go to other ports of the host, and other hosts of the domain.
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
            # Bytes as they are: digests are of what is stored.
            session.headers.update({"User-Agent": "builder", "Accept-Encoding": "identity"})
            for scheme in ("https://", "http://"):
                session.mount(scheme, self._pool())
            self._local.session = session
        return session

    def _pool(self) -> HTTPAdapter:
        with self._lock:
            if self._connections is None:
                from requests.adapters import HTTPAdapter

                self._connections = HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS)
            return self._connections


def stream(response: requests.Response) -> Generator[bytes, None, None]:
    """The body's chunks (up to 2 MiB), bytes as sent. Raises TransientError when the connection breaks."""
    import urllib3

    held, since = bytearray(), time.monotonic()
    try:
        # read1 hands over what has arrived, 16 KiB at most under TLS: gathered, but not so long that a trickle hides.
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
        raise failure(error, response.url) from None
    finally:
        response.close()


def small(response: requests.Response, limit: int, seconds: float = Patience.whole) -> bytes:
    """The whole body. Raises NetworkError when it is longer than `limit` bytes or takes longer than `seconds`."""
    data = bytearray()
    where = origin_of(response.url)
    with contextlib.closing(stream(response)) as chunks:
        for chunk in in_time(chunks, seconds, where):
            data += chunk
            if len(data) > limit:
                raise NetworkError(f"an answer longer than {limit} bytes", id="answer-too-long", where=where)
    return bytes(data)


def in_time(chunks: Iterable[bytes], seconds: float, where: str) -> Generator[bytes, None, None]:
    """Pass `chunks` on. Raises NetworkError when that takes longer than `seconds`."""
    end = time.monotonic() + seconds
    for chunk in chunks:
        yield chunk
        if time.monotonic() > end:
            raise _too_slow(seconds, where)


def next_url(url: str, target: str) -> str:
    """Where `target`, a Location header of `url`'s answer, leads. Raises NetworkError when it leaves TLS."""
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


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return origin_of(one) == origin_of(other)


def _as_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _no_target(resp: requests.Response) -> str | None:
    return None


def _busy(response: requests.Response, url: str) -> TransientError:
    """The error for a 429 or 5xx."""
    limited = response.status_code == 429
    pause = retry_after(response.headers.get("Retry-After", ""))
    wait = f"; it wants to be asked again in {pause:.0f} s" if pause else ""
    error = TransientError(
        f"the registry answered {response.status_code}",
        id="registry-busy",
        where=origin_of(url),
        cause=("it limits how much may be asked" if limited else "it is broken or busy") + wait,
        next="try again later" + ("; a login may raise the limit" if limited else ""),
    )
    error.pause = pause
    return error


class _TooLateError(Exception):
    """It is not done yet."""


def _too_slow(seconds: float, where: str) -> NetworkError:
    return NetworkError(
        f"no complete answer within {seconds:.0f} s", id="answer-too-slow", where=where, next="try again later"
    )


def _within(seconds: float, work: Callable[[], requests.Response]) -> requests.Response:
    """What `work` gives. Raises _TooLateError after `seconds`; it goes on then, in a thread that nobody waits for.

    The timeouts of sockets begin anew with every byte.
    """
    said: queue.SimpleQueue[requests.Response | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            said.put(work())
        except BaseException as error:
            said.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        outcome = said.get(timeout=seconds)
    except queue.Empty:
        raise _TooLateError from None
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
