"""Sends authorised requests to registries, and turns their refusals into errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from builder.errors import BuilderError, NetworkError, PinError
from builder.registry.auth import Credentials
from builder.registry.config import Endpoint, RegistriesConfig
from builder.registry.errors import TransientError
from builder.registry.token import Authorizer, Scopes
from builder.registry.transport import Body, Transport, read_body, same_origin
from builder.retry import RetryPolicy

if TYPE_CHECKING:
    import requests

_ERROR_LIMIT = 1 << 20


def pull(repository: str) -> Scopes:
    """The scopes that a read needs."""
    return (f"repository:{repository}:pull",)


def push(repository: str) -> Scopes:
    """The scopes that a write needs."""
    return (f"repository:{repository}:pull,push",)


class RegistrySession:
    """Sends authorised requests to endpoints. Thread-safe."""

    def __init__(self, config: RegistriesConfig, credentials: Credentials, retry_policy: RetryPolicy) -> None:
        self.config = config
        self.transport = Transport(retry_policy)
        self.authorizer = Authorizer(self.transport, credentials)

    def send(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        scopes: Scopes,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        once: bool = False,
    ) -> requests.Response:
        """Send to `target`: a path below /v2/, or a URL from the registry. Logs in when the registry answers 401.

        The answer has any status but 429 and 5xx. once: no retries, because the body cannot be sent again.
        """
        url = target if "://" in target else f"{endpoint.base}/v2/{target}"
        home = same_origin(url, endpoint.base)

        def attempt(authorization: str | None) -> requests.Response:
            single = once or endpoint.once
            return self.transport.send(
                method, url, authorization=authorization, headers=headers, body=body, once=single
            )

        known = self.authorizer.header(endpoint, scopes) if home else None
        response = attempt(known)
        if response.status_code != 401 or not same_origin(response.url, endpoint.base):
            return response
        self.authorizer.forget(endpoint, scopes, known)
        if once:
            return response
        challenge = _drain(response)
        if known is not None:
            # Some registries (nvcr.io) answer an expired token with another challenge, which anonymous users
            # cannot meet. Without a token they send the usual challenge.
            response = attempt(None)
            if response.status_code != 401:
                return response
            challenge = _drain(response)
        return attempt(self.authorizer.answer(endpoint, scopes, challenge))

    def get(
        self, endpoint: Endpoint, target: str, scopes: Scopes, what: str, *, limit: int, accept: str = "*/*"
    ) -> tuple[requests.Response, bytes]:
        """GET at most `limit` bytes. what: its name in errors. Raises for every status but 200."""
        budget = self.transport.retry_policy.budget()
        while True:
            response = self.send(endpoint, "GET", target, scopes, headers={"Accept": accept})
            if response.status_code != 200:
                raise self.error(response, endpoint, what)
            try:
                return response, read_body(response, limit, self.transport.retry_policy.whole)
            except TransientError:
                if endpoint.once or not budget.again():
                    raise

    def error(self, response: requests.Response, endpoint: Endpoint, what: str) -> BuilderError:
        """The error for an unexpected answer. what: the name of the requested content."""
        status = response.status_code
        code = error_code(response)
        where = what if what.startswith(f"{endpoint.host}/") else f"{endpoint.host}: {what}"
        if status in (401, 403):
            if not same_origin(response.url, endpoint.base):
                return NetworkError(
                    "the registry's storage refuses access",
                    id="registry-storage-refused",
                    where=where,
                    cause=f"{_host(response)} answered {status}",
                )
            return self.authorizer.refused(endpoint)
        if status == 404:
            return PinError(
                "not in the registry",
                id="registry-content-missing",
                where=where,
                cause=code or "it was deleted or never pushed",
                next="check the reference; for the image of a base, pin the current digest: builder lock --update BASE",
            )
        if status == 407:
            return NetworkError(
                "the proxy requires a login",
                id="proxy-login-required",
                where=where,
                next="check http_proxy and https_proxy",
            )
        return NetworkError(
            f"the registry answered {status}", id="registry-status", where=where, cause=code, next="try again later"
        )


def error_code(response: requests.Response) -> str:
    """The registry's error codes, such as MANIFEST_UNKNOWN. Its messages may hold secrets and are left out."""
    try:
        errors = json.loads(read_body(response, _ERROR_LIMIT))["errors"]
        codes = [error["code"] for error in errors]
        return ", ".join(code for code in codes[:3] if re.fullmatch(r"[A-Z0-9_]{1,40}", code))
    except (ValueError, KeyError, TypeError, RecursionError, NetworkError):
        return ""


def _drain(response: requests.Response) -> str:
    """The challenge of a 401; its body is read, so that the connection can be used again."""
    error_code(response)
    return response.headers.get("WWW-Authenticate", "")


def _host(response: requests.Response) -> str:
    return urlsplit(response.url).hostname or ""
