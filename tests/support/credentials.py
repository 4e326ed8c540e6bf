"""Docker configurations and credential helpers in a folder."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from builder.registry.auth import Credentials

SECRET = "s3cret-of-the-user"


def config(folder: Path, **content: Any) -> Credentials:
    """The logins of a config.json with this content."""
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return Credentials((path,))


def helper(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A credential helper; its requests are logged to the returned file."""
    asked = folder / "asked"
    program = folder / f"docker-credential-{name}"
    program.write_text(f'#!/bin/sh\necho "$1 $(cat)" >> {asked}\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return asked


def encoded(text: str) -> str:
    """Base64, as docker's config.json has it."""
    return base64.b64encode(text.encode()).decode()
