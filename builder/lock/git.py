"""Asks a git repository what a tag is."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from builder.errors import NetworkError, PinError, UsageError
from builder.inputs.mirrors import redact, without_logins

_SECONDS = 900
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
"""What a surrounding git (a hook) says about its own repository."""

_GONE = ("couldn't find remote ref", "not found", "does not exist", "does not appear to be a git repository")


def read_tag(address: str, tag: str) -> tuple[str, str]:
    """The commit that a tag names, an annotated one followed, and the id of its tree.

    address: what git fetches from. Raises UsageError without git, PinError when there is no such repository or tag, or
    it names no commit, NetworkError when the repository does not answer.
    """
    ref = f"refs/tags/{tag}"
    with tempfile.TemporaryDirectory(prefix="builder-git-") as folder:
        _git(Path(folder), "init", "--quiet", "--bare")
        done = _git(Path(folder), "fetch", "--quiet", "--no-tags", "--depth=1", "--", address, f"{ref}:{ref}")
        if done.returncode and "dumb http" in done.stderr:
            # A plain file server: it can only give everything.
            done = _git(Path(folder), "fetch", "--quiet", "--no-tags", "--", address, f"{ref}:{ref}")
        if done.returncode:
            raise _refused(address, tag, done.stderr)
        commit = _git(Path(folder), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").stdout.strip()
        tree = _git(Path(folder), "rev-parse", "--verify", "--quiet", f"{ref}^{{tree}}").stdout.strip()
    if not (re.fullmatch(r"[0-9a-f]{40}", commit) and re.fullmatch(r"[0-9a-f]{40}", tree)):
        raise PinError(f"the tag {tag} names no commit", where=redact(address))
    return commit, tree


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    environ |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", f"--git-dir={folder}", *arguments],
            env=environ,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("the command git is missing", next="install the package git") from None
    except subprocess.TimeoutExpired:
        raise NetworkError(f"git gave no answer in {_SECONDS} s") from None


def _refused(address: str, tag: str, said: str) -> PinError | NetworkError:
    lines = [line for line in said.splitlines() if line.startswith(("fatal:", "error:"))] or said.splitlines()
    cause = without_logins(lines[0])[:300] if lines else ""
    if any(mark in said for mark in _GONE):
        return PinError(f"there is no tag {tag}", where=redact(address), cause=cause, next="check the request")
    return NetworkError(
        f"cannot read the tag {tag}", where=redact(address), cause=cause, next="check the network and try again"
    )
