"""Errors of requests to registries, without the texts of HTTP libraries: their URLs can hold secrets."""

from __future__ import annotations

from urllib.parse import urlsplit

from builder.errors import NetworkError, PinError

_LOOK_AGAIN = "check the network, the proxy settings and registries.yaml"


class TransientError(NetworkError):
    """A temporary failure. pause: the seconds after which the server allows another attempt, if it sent them."""

    pause: float | None = None


class MismatchError(PinError):
    """The bytes that a registry, mirror or proxy served do not match their digest."""


def mismatch(what: str, *, where: str, cause: str = "") -> MismatchError:
    """The error for bytes that do not match their digest."""
    advice = "check the registry, and any mirror or proxy before it"
    return MismatchError(what, id="registry-content-mismatch", where=where, cause=cause, next=advice)


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    name = parts.hostname or ""
    return f"{parts.scheme}://{f'[{name}]' if ':' in name else name}:{port}"


def http_error(error: BaseException, url: str) -> NetworkError:
    """The error for an exception of requests, urllib3 or the system in a request to `url` or its answer."""
    import requests
    import urllib3

    where = origin_of(url)
    seen = _chain(error)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(part, kinds) for part in seen)

    if has(requests.exceptions.SSLError, urllib3.exceptions.SSLError):
        return NetworkError(
            "no secure connection",
            id="tls-failed",
            where=where,
            cause="its TLS certificate is not trusted, or it does not speak TLS",
            next="set REQUESTS_CA_BUNDLE, or mark the registry insecure in registries.yaml",
        )
    if has(requests.exceptions.InvalidHeader):
        return NetworkError("the answer is malformed", id="http-answer-malformed", where=where, next=_LOOK_AGAIN)
    # Addresses of registries and redirects are checked before.
    if has(requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema):
        return NetworkError(
            "an unusable address",
            id="address-unusable",
            where=where,
            cause="most likely the address of a proxy",
            next="check http_proxy, https_proxy and all_proxy",
        )
    if type(error) is OSError and error.errno is None:  # requests raises a plain OSError
        return NetworkError(
            "the file that REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names does not exist",
            id="ca-bundle-missing",
            where=where,
        )
    # The text of the system comes first: in urllib3 a refused connection is also a timeout.
    system = next(
        (part.strerror for part in seen if isinstance(part, OSError) and isinstance(part.strerror, str)), None
    )
    late = has(TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)
    text = system or ("no answer in time" if late else "the connection broke")
    if has(requests.exceptions.ProxyError, urllib3.exceptions.ProxyError):
        text = f"the proxy cannot be reached ({system})" if system else "the proxy refused"
    return TransientError(f"no connection: {text}", id="connection-failed", where=where, next=_LOOK_AGAIN)


def _chain(error: BaseException) -> list[BaseException]:
    """An error, its arguments, causes and contexts, as far as they are errors."""
    seen: list[BaseException] = []
    todo: list[object] = [error]
    while todo and len(seen) < 20:
        cause = todo.pop()
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            todo += [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]
    return seen
