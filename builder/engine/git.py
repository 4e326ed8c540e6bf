"""The program git, on the repository of a stranger."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from threading import Event

from builder.engine.process import Captured, output

MEMORY = 400 << 20
"""Bytes that git may have: 17 kB of deltas are a file of gigabytes."""
_STREAMS = ("-c", "core.bigFileThreshold=16m", "-c", "pack.threads=1")
"""Options with which git reads large files of honest repositories within that."""
_LOCAL = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)
"""Variables that a surrounding git (a hook) sets for its own repository."""


def run_git(
    arguments: Sequence[str],
    *,
    timeout: float,
    before: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    cancel: Event | None = None,
) -> Captured:
    """Run git, which asks nobody, with bounded memory, and return what it printed.

    before: a command that runs it. environ: variables beside those of this process. The others as in `output`, also
    what is raised.
    """
    own = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    own |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(environ or {})}
    return output([*before, "git", *_STREAMS, *arguments], env=own, timeout=timeout, cancel=cancel, memory=MEMORY)
