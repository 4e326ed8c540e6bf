"""Connections to servers by name: a name server that does not answer holds up no signal."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from builder.bench.stream import session
from builder.engine.daemon import Daemon
from builder.errors import EngineError
from builder.inputs.fetch import new_session

HOST = "machine.invalid"


def get(make: Callable[[], Any], address: str) -> None:
    import requests

    with make() as client, contextlib.suppress(requests.RequestException):
        client.get(address, timeout=5)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("make", [new_session, session])
def test_no_look_up_is_in_the_main_thread(
    make: Callable[[], Any], scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """getaddrinfo(3) begins again when a signal interrupts it, and Python handles a signal in the main thread only."""
    assert looked_up(partial(get, make, f"{scheme}://{HOST}/"), monkeypatch) == {False}


def test_a_daemon_of_docker_is_looked_up_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        with contextlib.suppress(EngineError):
            Daemon(f"tcp://{HOST}:2375")

    assert looked_up(connect, monkeypatch) == {False}


def looked_up(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> set[bool]:
    """Whether names were looked up in the main thread."""
    seen: set[bool] = set()

    def look_up(host: str, *_: object) -> Any:
        seen.add(threading.current_thread() is threading.main_thread())
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    work()
    return seen
