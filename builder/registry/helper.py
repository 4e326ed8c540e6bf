"""Runs credential helpers (docker-credential-NAME). Their output never reaches a message."""

from __future__ import annotations

import json
import re
import subprocess

from builder.engine.process import OutputTooLongError, output

_SECONDS = 60
"""The time limit. It is long because a helper may ask its user to unlock a keyring."""


class HelperError(Exception):
    """Why a helper gave no login; holds no secret."""


def ask_helper(name: str, server: str) -> tuple[str, str] | None:
    """The user name and secret of a helper for `server`; None when it has none. Raises HelperError."""
    program = f"docker-credential-{name}"
    try:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise FileNotFoundError
        # Its standard error is left out of messages, as it may hold what it was asked for.
        done = output([program, "get"], stdin=server.encode(), timeout=_SECONDS, own_session=False)
        status, printed = done.status, done.out
        if status == 0:
            answer = json.loads(printed)
            username, secret = answer["Username"], answer["Secret"]
            if isinstance(username, str) and isinstance(secret, str):
                return username, secret
            raise HelperError(f"{program} printed a malformed answer")
    except (ValueError, KeyError, TypeError, RecursionError, OutputTooLongError):
        raise HelperError(f"{program} printed a malformed answer") from None
    except subprocess.TimeoutExpired:
        raise HelperError(f"{program} did not answer in {_SECONDS} s") from None
    except OSError:
        raise HelperError(f"{program!a} cannot be run") from None
    # The only message that all helpers share.
    if b"credentials not found" in printed:
        return None
    raise HelperError(f"{program} failed with status {status}")
