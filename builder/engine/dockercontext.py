"""The daemon that the docker command uses: DOCKER_HOST, DOCKER_CONTEXT or the current context."""

from __future__ import annotations

import os
from typing import Any

from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from builder.errors import EngineError


def client_settings() -> dict[str, Any]:
    """The keyword arguments of the SDK's client for the daemon that the docker command uses.

    DOCKER_HOST comes first, then DOCKER_CONTEXT, then the current context of docker's configuration. Raises EngineError
    for a context that does not exist or is damaged.
    """
    settings: dict[str, Any] = {**kwargs_from_env()}
    if "base_url" in settings:
        return settings
    name = os.environ.get("DOCKER_CONTEXT") or None
    try:
        context = ContextAPI.get_context(name)  # type: ignore[no-untyped-call,unused-ignore]
        if context is not None:
            found = {"base_url": context.Host, "tls": context.TLSConfig}
            return {**{key: value for key, value in found.items() if value}, **settings}
        cause = "docker's configuration has no context of this name"
    except Exception as error:
        # The SDK raises a plain Exception for an invalid file of a context.
        cause = str(error)
    raise EngineError(
        f"docker's context {name or 'that is current'} cannot be used",
        id="docker-context-invalid",
        cause=cause,
        next="docker context ls",
    )
