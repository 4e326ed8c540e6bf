"""Requests to registries, with the logins they ask for; what a registry's refusals mean."""

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
from builder.registry.transport import Body, Transport, same_origin, small
from builder.retry import Patience

if TYPE_CHECKING:
    import requests

_ERROR_LIMIT = 1 << 20


def pull(repository: str) -> Scopes:
    """What reading needs."""
    return (f"repository:{repository}:pull",)


def push(repository: str) -> Scopes:
    """What writing needs."""
    return (f"repository:{repository}:pull,push",)


class RegistrySession:
    """Sends authorised requests to endpoints. Thread-safe."""

    def __init__(self, config: RegistriesConfig, credentials: Credentials, patience: Patience) -> None:
        self.config = config
        self.transport = Transport(patience)
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
        """Send to `target`: a path below /v2/, or a URL that the registry gave. Logs in when it is asked to.

        The answer has any status but 429 and 5xx. `once`: the body cannot be sent again, so neither is the request.
        """
        url = target if "://" in target else f"{endpoint.base}/v2/{target}"
        home = same_origin(url, endpoint.base)

        def attempt(authorization: str | None) -> requests.Response:
            single = once or endpoint.hasty
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
            # To a token that has run out some registries answer with another challenge than to none (nvcr.io does,
            # and anonymous users cannot meet that one): start over.
            response = attempt(None)
            if response.status_code != 401:
                return response
            challenge = _drain(response)
        return attempt(self.authorizer.answer(endpoint, scopes, challenge))

    def get(
        self, endpoint: Endpoint, target: str, scopes: Scopes, what: str, *, limit: int, accept: str = "*/*"
    ) -> tuple[requests.Response, bytes]:
        """GET something of at most `limit` bytes; `what` names it in errors, which any status but 200 is."""
        budget = self.transport.patience.budget()
        while True:
            response = self.send(endpoint, "GET", target, scopes, headers={"Accept": accept})
            if response.status_code != 200:
                raise self.error(response, endpoint, what)
            try:
                return response, small(response, limit, self.transport.patience.whole)
            except TransientError:
                if endpoint.hasty or not budget.again():
                    raise

    def error(self, response: requests.Response, endpoint: Endpoint, what: str) -> BuilderError:
        """The error for an answer that is not what was hoped for; `what` names what was asked for."""
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
                "the registry does not have it",
                id="registry-content-missing",
                where=where,
                cause=code or "it was deleted or never pushed there",
                next="check the reference; `builder lock --update` pins what is there now",
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
    """The registry's error codes, such as MANIFEST_UNKNOWN. Its messages are not repeated: they may hold anything."""
    try:
        errors = json.loads(small(response, _ERROR_LIMIT))["errors"]
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
