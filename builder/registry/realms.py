"""The token servers that registries named when their login was first sent: a login goes to no other one later."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import urlsplit

from builder.atomic import write_file
from builder.errors import NetworkError
from builder.model.reference import DOCKER_HUB
from builder.registry.config import Endpoint, state_folder
from builder.registry.errors import origin_of
from builder.regular import read_regular

_KNOWN = {DOCKER_HUB: "https://auth.docker.io:443"}
"""Source: the token authentication of Docker Hub in docker's documentation."""
_LONGEST = 4096


def bind_realm(endpoint: Endpoint, realm: str) -> None:
    """Bind the login of a registry to the origin of `realm`, unless both are one host.

    The first realm of a registry is written down and reported. Raises NetworkError for another one than that.
    """
    server = origin_of(realm)
    same_host = urlsplit(realm).hostname == urlsplit(endpoint.base).hostname
    if same_host or _KNOWN.get(endpoint.host) == server:
        return
    file = state_folder("realms") / endpoint.host
    try:
        bound = read_regular(file, _LONGEST).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        _first(endpoint, server, file)
        return
    except OSError as error:
        raise NetworkError(
            f"cannot read to which token server the login belongs: {error.strerror}",
            id="realm-unreadable",
            where=str(file),
        ) from None
    if bound != server:
        raise NetworkError(
            "the registry names another token server than before, which would get its login",
            id="realm-changed",
            where=endpoint.host,
            cause=f"so far {bound[:200]!r}, now {server}",
            next=f"if the registry has moved its token server, remove {file}",
        )


def _first(endpoint: Endpoint, server: str, file: Path) -> None:
    logging.getLogger(__name__).warning("%s: its login is sent to %s from now on", endpoint.host, server)
    try:
        write_file(file, f"{server}\n".encode())
    except OSError:
        return  # without a home that can be written, the next run reports it again
