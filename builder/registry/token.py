"""Answers a registry's 401: parses challenges, fetches tokens and caches them until they expire."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from builder.errors import NetworkError
from builder.registry.auth import Credentials, Login
from builder.registry.config import Endpoint, is_loopback
from builder.registry.realms import bind_realm
from builder.registry.transport import Transport, read_body

Scopes = tuple[str, ...]
"""Each is `repository:NAME:ACTIONS`; the scope of the repository that is written to comes first."""

_HOST = re.compile(r"[a-z0-9_.:-]+")
_TOKEN_LIMIT = 1 << 20
_LONGEST = 1 << 14
"""Characters of a WWW-Authenticate header that are read: requests joins up to a hundred headers of 64 KiB."""
_PART = re.compile(r"""[\s,]*([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?""")


def parse_challenges(header: str) -> dict[str, dict[str, str]]:
    """A WWW-Authenticate header as {scheme: {parameter: value}}, names in lower case."""
    found: dict[str, dict[str, str]] = {}
    header = header[:_LONGEST]
    scheme, position = "", 0
    while part := _PART.match(header, position):
        position = part.end()
        name = part[1].lower()
        if part[2] is None and part[3] is None:
            scheme = name
            found.setdefault(scheme, {})
        elif scheme:
            value = re.sub(r"\\(.)", r"\1", part[2]) if part[2] is not None else part[3]
            found[scheme].setdefault(name, value)
    return found


@dataclass(frozen=True)
class _CachedHeader:
    header: str
    expires: float


class _TokenRequest:
    """Serialises the requests for one token. number: of requests so far. error: of the last request, if it failed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number = 0
        self.error: NetworkError | None = None


class Authorizer:
    """Authorization headers per registry and scope. Thread-safe."""

    def __init__(self, transport: Transport, credentials: Credentials) -> None:
        self._transport = transport
        self._credentials = credentials
        self._lock = threading.Lock()
        self._cached: dict[tuple[str, Scopes], _CachedHeader] = {}
        self._requests: dict[tuple[str, Scopes], _TokenRequest] = {}

    def header(self, endpoint: Endpoint, scopes: Scopes) -> str | None:
        """The cached Authorization header; None when there is none or it has expired."""
        with self._lock:
            cached = self._cached.get((endpoint.base, scopes))
        return cached.header if cached is not None and time.monotonic() < cached.expires else None

    def forget(self, endpoint: Endpoint, scopes: Scopes, header: str | None) -> None:
        """Drop a header that the registry refused; a newer one of another thread stays."""
        with self._lock:
            cached = self._cached.get((endpoint.base, scopes))
            if cached is not None and cached.header == header:
                del self._cached[endpoint.base, scopes]

    def answer(self, endpoint: Endpoint, scopes: Scopes, challenge: str) -> str:
        """The header that answers the WWW-Authenticate of a 401. Raises NetworkError when no login fits.

        Threads that wait for the same token share the result of the first request: the token, or the error.
        """
        with self._lock:
            request = self._requests.setdefault((endpoint.base, scopes), _TokenRequest())
        before = request.number
        with request.lock:
            if known := self.header(endpoint, scopes):
                return known
            if request.number != before and request.error is not None:
                raise request.error
            request.number, request.error = request.number + 1, None
            try:
                return self._answer(endpoint, scopes, challenge)
            except NetworkError as error:
                request.error = error
                raise

    def _answer(self, endpoint: Endpoint, scopes: Scopes, challenge: str) -> str:
        challenges = parse_challenges(challenge)
        repository = scopes[0].split(":")[1] if scopes else ""
        login = self._credentials.get(endpoint.host, repository)
        if "bearer" in challenges:
            cached = self._token(endpoint, scopes, challenges["bearer"], login)
        elif "basic" in challenges and login is not None and login.username:
            cached = _CachedHeader(login.basic, float("inf"))
        else:
            raise self.refused(endpoint)
        with self._lock:
            self._cached[(endpoint.base, scopes)] = cached
        return cached.header

    def refused(self, endpoint: Endpoint, cause: str = "") -> NetworkError:
        """The error for a 401 or 403."""
        problem = self._credentials.problem(endpoint.host)
        usual = "it does not exist, or this login (or none) does not allow that"
        return NetworkError(
            "the registry refuses access",
            id="registry-access-refused",
            where=endpoint.host,
            cause="; ".join(text for text in (cause or usual, problem) if text),
            next=f"docker login {endpoint.host}",
        )

    def _token(
        self, endpoint: Endpoint, scopes: Scopes, challenge: dict[str, str], login: Login | None
    ) -> _CachedHeader:
        realm = self._realm(endpoint, challenge.get("realm", ""))
        if login is not None:
            bind_realm(endpoint, realm)
        wanted = merge_scopes(scopes, challenge.get("scope", ""))
        # nvcr.io sends no service; an empty one would be wrong.
        service = [("service", challenge["service"])] if challenge.get("service") else []
        if login is not None and login.identity_token:
            form = [("grant_type", "refresh_token"), *service, ("client_id", "builder"), ("scope", " ".join(wanted))]
            response = self._transport.send(
                "POST",
                realm,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                body=urlencode([*form, ("refresh_token", login.identity_token)]).encode(),
                once=endpoint.once,
                redirects=0,  # the body is a secret
            )
        else:
            parts = urlsplit(realm)
            query = [*parse_qsl(parts.query), *service, *(("scope", scope) for scope in wanted)]
            url = parts._replace(query=urlencode(query), fragment="").geturl()
            basic = login.basic if login is not None else None
            response = self._transport.send("GET", url, authorization=basic, once=endpoint.once)
        status, body = response.status_code, read_body(response, _TOKEN_LIMIT, self._transport.retry_policy.whole)
        if status in (400, 401, 403):
            raise self.refused(endpoint, "its token server refuses this login" if login else "")
        return self._read(endpoint, status, body)

    def _realm(self, endpoint: Endpoint, realm: str) -> str:
        try:
            parts = urlsplit(realm)
            # The login is sent to the realm: over TLS only, unless the registry itself is without TLS. That a registry
            # on this machine needs no TLS does not extend to a token server on another machine.
            plain = endpoint.base.startswith("http://") and (
                is_loopback(parts.netloc) or not is_loopback(endpoint.host)
            )
            safe = parts.scheme == "https" or (parts.scheme == "http" and plain)
            if safe and _HOST.fullmatch(parts.hostname or "") and parts.port != 0 and parts.username is None:
                return realm
        except ValueError:
            pass
        raise NetworkError(
            "the registry names no usable token server",
            id="token-server-unusable",
            where=endpoint.host,
            cause="the realm of its challenge is not an https address",
        )

    def _read(self, endpoint: Endpoint, status: int, body: bytes) -> _CachedHeader:
        try:
            answer = json.loads(body) if status == 200 else None
        except (ValueError, RecursionError):
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise NetworkError(
                f"the registry's token server answered {status} without a token",
                id="token-missing",
                where=endpoint.host,
                next="try again later",
            )
        lifetime = answer.get("expires_in")
        # 60 s is the default of the specification.
        known = isinstance(lifetime, int | float) and 0 < lifetime < 1e9
        seconds = float(lifetime or 60) if known else 60.0
        return _CachedHeader(f"Bearer {token}", time.monotonic() + seconds * 0.8)


def merge_scopes(scopes: Scopes, challenged: str) -> list[str]:
    """`scopes` and those of a challenge (`challenged`, blank-separated): one per resource, with all actions."""
    merged: dict[str, list[str]] = {}
    for scope in (*scopes, *challenged.split()):
        resource, colon, actions = scope.rpartition(":")
        known = merged.setdefault(resource if colon else scope, [])
        known += [action for action in actions.split(",") if colon and action and action not in known]
    return [f"{resource}:{','.join(actions)}" if actions else resource for resource, actions in merged.items()]
