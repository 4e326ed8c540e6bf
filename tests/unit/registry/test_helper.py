"""Credential helpers: limits of time, memory and number of calls."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from builder.registry import helper as helpers
from builder.registry.auth import Login
from builder.registry.helper import HelperError, ask_helper
from tests.support.credentials import SECRET, config, helper

ANSWER = f'echo \'{{"Username": "me", "Secret": "{SECRET}"}}\''


@pytest.mark.parametrize(("script", "login"), [(ANSWER, Login("me", SECRET)), (f"echo {SECRET}; exit 3", None)])
def test_a_helper_runs_once_for_all_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, login: Login | None
) -> None:
    asked = helper(tmp_path, "test", script, monkeypatch)
    found = config(tmp_path, credsStore="test")
    assert [found.get("nvcr.io", f"team/{number}") for number in range(5)] == [login] * 5
    assert asked.read_text() == "get nvcr.io\n"
    assert bool(found.problem("nvcr.io")) == (login is None)
    assert found.get("ghcr.io", "team/1") == login
    assert asked.read_text() == "get nvcr.io\nget ghcr.io\n"


def test_helper_that_does_not_read_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker-credential-deaf"
    program.write_text(f"#!/bin/sh\nexec <&-\n{ANSWER}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert ask_helper("deaf", "nvcr.io") == ("me", SECRET)


def test_children_of_a_helper_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, "test", f"sleep 20 &\n{ANSWER}", monkeypatch)
    begin = time.monotonic()
    assert ask_helper("test", "nvcr.io") == ("me", SECRET)
    assert time.monotonic() - begin < 10


def test_helper_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, "test", "exec sleep 20", monkeypatch)
    monkeypatch.setattr(helpers, "_SECONDS", 0.2)
    with pytest.raises(HelperError, match="did not answer"):
        ask_helper("test", "nvcr.io")


def test_helper_with_endless_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, "test", f"exec yes {SECRET}", monkeypatch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HelperError, match="malformed") as caught:
        ask_helper("test", "nvcr.io")
    assert SECRET not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "in KiB"
