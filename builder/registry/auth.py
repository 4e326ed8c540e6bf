"""Logins from the files and credential helpers of docker and podman. A secret is sent to its own registry only."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.errors import InvalidError
from builder.model.reference import DOCKER_HUB
from builder.registry.helper import HelperError, ask_helper

_HUB_SERVER = "https://index.docker.io/v1/"
_HUB_NAMES = ("index.docker.io", "registry-1.docker.io", DOCKER_HUB)


@dataclass(frozen=True)
class Login:
    """A user name with a password, or an identity token (OAuth2 refresh token)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class Credentials:
    """Looks logins up in files like docker's config.json, in order, and in the credential helpers that these name.

    files: their paths; an absent file counts as empty. logins: by registry; they come first.
    """

    def __init__(self, files: tuple[Path, ...] = (), logins: dict[str, Login] | None = None) -> None:
        self._files = files
        self._logins = dict(logins or {})
        self._lock = threading.Lock()
        self._configs: list[tuple[Path, dict[str, Any]]] | None = None
        self._logins_found: dict[tuple[str, str], Login | None] = {}
        self._helper_logins: dict[tuple[str, str], Login | None] = {}
        self._problems: dict[str, str] = {}

    @classmethod
    def default(cls) -> Credentials:
        """docker's config.json (DOCKER_CONFIG, ~/.docker), then podman's (REGISTRY_AUTH_FILE, XDG_RUNTIME_DIR)."""
        folder = os.environ.get("DOCKER_CONFIG")
        files = [(Path(folder) if folder else Path.home() / ".docker") / "config.json"]
        if chosen := os.environ.get("REGISTRY_AUTH_FILE"):
            files.append(Path(chosen))
        elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
            files.append(Path(runtime) / "containers" / "auth.json")
        return cls(tuple(files))

    def get(self, registry: str, repository: str = "") -> Login | None:
        """The login for a registry, or for a path in it that covers `repository` (as podman has). None: anonymous.

        Raises InvalidError when a file cannot be read.
        """
        if registry in self._logins:
            return self._logins[registry]
        with self._lock:  # held while a helper runs: its user is asked once, not once per thread
            key = (registry, repository)
            if key not in self._logins_found:
                self._logins_found[key] = self._look_up(registry, repository)
            return self._logins_found[key]

    def problem(self, registry: str) -> str:
        """Why a credential helper failed for `registry`; empty when none failed."""
        return self._problems.get(registry, "")

    def __repr__(self) -> str:
        return f"Credentials(files={[str(path) for path in self._files]}, logins={sorted(self._logins)})"

    def _look_up(self, registry: str, repository: str) -> Login | None:
        if self._configs is None:
            self._configs = [(path, _read(path)) for path in self._files]
        for path, config in self._configs:
            server = _HUB_SERVER if registry == DOCKER_HUB else registry
            names = (_HUB_SERVER, *_HUB_NAMES) if registry == DOCKER_HUB else (registry,)
            helpers = _section(config, "credHelpers", path)
            helper = next((helpers[name] for name in names if name in helpers), config.get("credsStore"))
            if helper:
                login = self._ask_helper(str(helper), server, registry)
                if login is not None:
                    return login
            entries = _section(config, "auths", path)
            for name in _keys(registry, repository, entries):
                login = _decode(entries[name], f"{path}: auths: {name}")
                if login is not None:
                    return login
        return None

    def _ask_helper(self, helper: str, server: str, registry: str) -> Login | None:
        if (helper, server) not in self._helper_logins:
            self._helper_logins[helper, server] = None
            try:
                found = ask_helper(helper, server)
            except HelperError as error:
                # Not an error yet: most images need no login. The message of a refusal holds it.
                self._problems[registry] = str(error)
            else:
                self._helper_logins[helper, server] = _login(*found) if found else None
        return self._helper_logins[helper, server]


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes().strip() or b"{}")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidError(f"cannot read: {error.strerror}", id="login-file-unreadable", where=str(path)) from None
    except (ValueError, RecursionError):
        raise _invalid(path, "it is not JSON") from None
    if not isinstance(config, dict):
        raise _invalid(path, "it is not a JSON object")
    return config


def _section(config: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = config.get(name) or {}
    if not isinstance(section, dict):
        raise _invalid(path, f"its {name} is not a JSON object")
    return section


def _keys(registry: str, repository: str, entries: dict[str, Any]) -> list[str]:
    """The keys of `entries` that apply, the most specific first."""
    exact = []
    path = f"{registry}/{repository}" if repository else registry
    while path:
        exact.append(path)
        path = path.rpartition("/")[0]
    if registry == DOCKER_HUB:
        exact += [_HUB_SERVER, *_HUB_NAMES]
    # Old docker versions wrote https://HOST/v1/ for any registry.
    loose = [key for key in entries if re.sub(r"^https?://|/(v[12]/?)?$", "", key) in exact and key not in exact]
    return [key for key in exact if key in entries] + loose


def _decode(entry: object, where: str) -> Login | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise InvalidError(
            "not a JSON object", id="login-entry-malformed", where=where, next="correct the file, or log in again"
        )
    if isinstance(token := entry.get("identitytoken"), str) and token:
        return Login(identity_token=token)
    username, password = entry.get("username"), entry.get("password")
    if isinstance(encoded := entry.get("auth"), str) and encoded:
        try:
            text = base64.b64decode("".join(encoded.split()), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise InvalidError(
                "its auth is not base64 of UTF-8 text", id="login-auth-malformed", where=where, next="log in again"
            ) from None
        username, _, password = text.partition(":")
        password = password.rstrip("\0")
    if not isinstance(username, str) or not isinstance(password, str) or not username:
        return None
    return _login(username, password)


def _login(username: str, secret: str) -> Login:
    """docker writes the user name <token> for an identity token."""
    return Login(identity_token=secret) if username == "<token>" else Login(username, secret)


def _invalid(path: Path, cause: str) -> InvalidError:
    return InvalidError(
        "cannot read logins",
        id="login-file-malformed",
        where=str(path),
        cause=cause,
        next="correct the file, or log in again",
    )
