"""Runs credential helpers (docker-credential-NAME). Their output never reaches a message."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import time

_SECONDS = 60
"""The time limit. It is long because a helper may ask its user to unlock a keyring."""
_LIMIT = 1 << 20


class HelperError(Exception):
    """Why a helper gave no login; holds no secret."""


def ask_helper(name: str, server: str) -> tuple[str, str] | None:
    """The user name and secret of a helper for `server`; None when it has none. Raises HelperError."""
    program = f"docker-credential-{name}"
    try:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise FileNotFoundError
        status, printed = _run([program, "get"], server.encode())
        if status == 0:
            answer = json.loads(printed)
            username, secret = answer["Username"], answer["Secret"]
            if isinstance(username, str) and isinstance(secret, str):
                return username, secret
            raise HelperError(f"{program} printed a malformed answer")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HelperError(f"{program} printed a malformed answer") from None
    except subprocess.TimeoutExpired:
        raise HelperError(f"{program} did not answer in {_SECONDS} s") from None
    except OSError:
        raise HelperError(f"{program!a} cannot be run") from None
    # The only message that all helpers share.
    if b"credentials not found" in printed:
        return None
    raise HelperError(f"{program} failed with status {status}")


def _run(command: list[str], stdin: bytes) -> tuple[int, bytes]:
    """The exit status and the standard output. Raises ValueError when that is too long, TimeoutExpired, and OSError.

    Returns when the program has ended; a child process of it may keep the output open.
    """
    end = time.monotonic() + _SECONDS
    printed = bytearray()
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    assert process.stdin is not None and process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                ended = process.poll() is not None
                if selector.select(0 if ended else 0.02):
                    chunk = os.read(process.stdout.fileno(), 1 << 16)
                    printed += chunk
                    if len(printed) > _LIMIT:
                        raise ValueError("too long")
                    if not chunk:
                        break
                elif ended:
                    break
                if time.monotonic() > end:
                    raise subprocess.TimeoutExpired(command, _SECONDS)
        return process.wait(max(0.0, end - time.monotonic())), bytes(printed)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
