"""The next step after an error that names none."""

from __future__ import annotations

import re

from builder.errors import BuilderError, InvalidError, NetworkError, UsageError

_KINDS = {
    r"recipes/[^/]+\.yaml": "recipe",
    r"recipes/profiles/[^/]+\.yaml": "profile",
    r"recipes/bases/[^/]+\.yaml": "base",
    r"recipes/locks/requests\.yaml": "requests",
    r"dockerfiles/layers/[^/]+/layer\.yaml": "layer",
}
"""Files that users write, and the kind of their schema."""


def with_step(error: BuilderError, command: str) -> BuilderError:
    """The error, with a next step. command: the command that failed, as in `builder plan`."""
    return error if error.next else error.replaced(next=_step(error, command))


def _step(error: BuilderError, command: str) -> str:
    if isinstance(error, UsageError):
        return f"{command} --help"
    if isinstance(error, NetworkError):
        return "check the network and the proxy settings, then repeat the command"
    if isinstance(error, InvalidError):
        kind = next((kind for path, kind in _KINDS.items() if re.search(rf"(^|/){path}(:\d+)?$", error.where)), None)
        return (
            f"mend the file; what it can hold: builder schema {kind}" if kind else "mend the file, or name another one"
        )
    return ""
