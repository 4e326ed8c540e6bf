"""The revision of a project in git: its commit, and whether the files that plans read are those of the commit."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.engine.git import MEMORY
from builder.engine.process import output
from builder.errors import InvalidError
from builder.folders import FILE
from builder.regular import read_regular
from builder.text import is_plain_line

_FOLDERS = ("recipes", "dockerfiles")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SECONDS = 60
_MOST_FILES = 5000
_LARGEST = 64 << 20
"""Bytes of a file of a project: larger ones are in none; and of git's list of files."""
_ALL = 4 * _LARGEST
"""Bytes of all files of a project."""


@dataclass(frozen=True)
class Revision:
    """A commit; clean: whether recipes and layers have the content of the commit."""

    commit: str
    clean: bool


def revision_of(folder: Path) -> Revision | None:
    """The revision of the project in a folder; None when it is not in git, or there is no git.

    Only commands that run no program of the folder's own settings: `git status` would run filters and monitors.
    """
    commit = _git(folder, "rev-parse", "--verify", "HEAD^{commit}")
    listing = _git(folder, "ls-tree", "-r", "-z", "HEAD", "--", *_FOLDERS, FILE)
    if commit is None or listing is None or not _COMMIT.fullmatch(commit.strip()):
        return None
    committed = {}
    for line in listing.split("\0"):
        if line:
            about, _, path = line.partition("\t")
            committed[path] = about.split()[2]
    return Revision(commit.strip(), committed == _files(folder, len(commit.strip()) == 64))


def files_at(folder: Path, name: str) -> dict[str, bytes] | None:
    """The files of recipes and layers of the project in a folder, as they were at a revision, by path.

    name: of a commit, as git takes it. None when git does not know the revision, or its files are not those of a
    project. Only regular files are read, and no filter of the project's settings runs.
    """
    if name.startswith("-") or not is_plain_line(name):
        return None
    commit = (_git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or "").strip()
    listing = _git(folder, "ls-tree", "-r", "-z", commit, "--", *_FOLDERS, FILE) if _COMMIT.fullmatch(commit) else None
    found: dict[str, bytes] = {}
    left = _LARGEST
    for line in filter(None, (listing or "").split("\0")):
        about, _, path = line.partition("\t")
        mode, kind, identity = about.split()[:3]
        if kind != "blob" or not mode.startswith("100"):
            continue
        content = _git_bytes(folder, "cat-file", "blob", identity)
        left -= len(content or b"")
        # A tree that no checkout makes may have any names.
        if content is None or left < 0 or len(found) >= _MOST_FILES or {"", ".", ".."} & {*path.split("/")}:
            return None
        found[path] = content
    return found if listing is not None else None


def write_files(files: Mapping[str, bytes], folder: Path, where: str) -> None:
    """Write what `files_at` read below a folder. where: the project, for messages. Raises InvalidError."""
    try:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    except OSError as error:
        raise InvalidError(
            f"its files cannot be written: {error.strerror}", id="project-not-writable", where=where
        ) from None


def _files(folder: Path, sha256: bool) -> dict[str, str]:
    """The id that git gives to the content of each file of recipes and layers, by path.

    Empty when a file cannot be read, there are too many of them, or a whole folder is a link.
    """
    found: dict[str, str] = {}
    pending = [path for name in (FILE, *_FOLDERS) if os.path.lexists(path := folder / name)]
    left = _ALL
    try:
        if any(path.is_symlink() for path in pending):
            return {}
        while pending:
            path = pending.pop()
            if path.is_dir() and not path.is_symlink():
                pending += itertools.islice(path.iterdir(), _MOST_FILES)
            else:
                data = os.fsencode(path.readlink()) if path.is_symlink() else read_regular(path, min(left, _LARGEST))
                left -= len(data)
                content = b"blob %d\0" % len(data) + data
                made = (hashlib.sha256 if sha256 else hashlib.sha1)(content, usedforsecurity=False)
                found[path.relative_to(folder).as_posix()] = made.hexdigest()
            if len(found) + len(pending) > _MOST_FILES:
                return {}
    except OSError:
        return {}
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    data = _git_bytes(folder, *arguments)
    try:
        return data.decode() if data is not None else None
    except ValueError:
        return None


def _git_bytes(folder: Path, *arguments: str) -> bytes | None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *arguments]
    try:
        done = output(command, env=clean, timeout=_SECONDS, limit=_LARGEST, memory=MEMORY)
        return done.out if done.status == 0 else None
    except (OSError, subprocess.SubprocessError):
        return None
