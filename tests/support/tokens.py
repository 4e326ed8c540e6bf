"""A token server that docker-registry trusts: it signs real tokens, with openssl."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.loopback import listening


@dataclass
class Tokens:
    """users: names and passwords that may do anything. identity: an identity token that may, too. anonymous: whether
    others may pull. lifetime: of the tokens, in seconds. asked: methods and queries."""

    folder: Path
    users: dict[str, str] = field(default_factory=dict)
    identity: str = ""
    anonymous: bool = False
    lifetime: int = 300
    host: str = ""
    asked: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def make_key(self) -> None:
        """The key that tokens are signed with."""
        names = ["-keyout", str(self.folder / "key.pem"), "-out", str(self.folder / "cert.pem")]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tokens"]
        subprocess.run([*command, *names], capture_output=True, check=True, timeout=60)

    @property
    def auth(self) -> dict[str, Any]:
        """The registry's configuration for it."""
        trusted = {"issuer": "tokens", "rootcertbundle": str(self.folder / "cert.pem")}
        return {"token": {"realm": f"http://{self.host}/token", "service": "registry", **trusted}}

    def token(self, user: str | None, scopes: list[str]) -> str:
        """A signed token for those of `scopes` that `user` (None: anonymous) may use."""
        access = []
        for scope in scopes:
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            allowed = [one for one in actions.split(",") if user or (self.anonymous and one == "pull")]
            access.append({"type": kind, "name": name, "actions": allowed})
        now = int(time.time())
        times = {"nbf": now - 10, "iat": now, "exp": now + self.lifetime}
        names = {"iss": "tokens", "aud": "registry", "sub": user or "", "jti": str(len(self.asked))}
        body = "".join((self.folder / "cert.pem").read_text("ascii").splitlines()[1:-1])
        parts = ({"typ": "JWT", "alg": "RS256", "x5c": [body]}, {**names, **times, "access": access})
        text = b".".join(map(encoded, parts))
        sign = ["openssl", "dgst", "-sha256", "-sign", str(self.folder / "key.pem")]
        signature = subprocess.run(sign, input=text, capture_output=True, check=True, timeout=60).stdout
        return (text + b"." + encoded(signature)).decode("ascii")


def encoded(value: object) -> bytes:
    """base64 as tokens have it."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class _Handler(BaseHTTPRequestHandler):
    tokens: Tokens

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        user, _, password = base64.b64decode(given).decode().partition(":")
        if given and self.tokens.users.get(user) != password:
            self._answer(401, {})
        else:
            self._answer(200, {"token": self.tokens.token(user or None, query.get("scope", []))})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if form["grant_type"] != ["refresh_token"] or form["refresh_token"] != [self.tokens.identity]:
            self._answer(401, {})
        else:
            self._answer(200, {"access_token": self.tokens.token("identity", form["scope"][0].split())})

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        with self.tokens.lock:
            self.tokens.asked.append(f"{self.command} {status}")
        body = json.dumps({**answer, "expires_in": self.tokens.lifetime}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving_tokens(folder: Path, **settings: Any) -> Iterator[Tokens]:
    """A token server that keeps its key in `folder`."""
    tokens = Tokens(folder, **settings)
    tokens.make_key()
    with listening(_Handler, tokens=tokens) as tokens.host:
        yield tokens
