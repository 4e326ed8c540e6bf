"""A project that a plan is compared with: a folder, or a commit of a repository of a stranger."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from builder.engine.git import run_git
from builder.engine.process import Captured, OutputTooLongError
from builder.errors import InvalidError, NetworkError, PinError, UsageError
from builder.folders import search_path
from builder.inputs.mirrors import redact, without_logins
from builder.project import Project
from builder.verify.revision import Revision, files_at, revision_of, write_files

_AT_COMMIT = re.compile(r"(?P<address>.+)@(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})", re.DOTALL)
_SECONDS = 600
_LARGEST = 1 << 30
"""Bytes of one commit with all its files, as git sends it."""
_PROTOCOLS = "https:http:ssh:git:file"
_GONE = ("not our ref", "not found", "does not exist", "does not appear to be a git repository", "unadvertised object")


@dataclass(frozen=True)
class Checkout:
    """A project; its revision, None when it is not in git; and whether it comes from a repository, not a folder."""

    project: Project
    revision: Revision | None
    fetched: bool


def project_of(text: str, folder: Path) -> Checkout:
    """The project that DIR or URL@COMMIT names. What it does not have itself comes from the installed `builder`.

    folder: an empty one, for what is fetched. A commit is named by its whole id, by which git compares every file.

    Raises UsageError, PinError when there is no such commit, InvalidError when it holds no project, NetworkError.
    """
    found = _AT_COMMIT.fullmatch(text)
    if found is None:
        path = Path(text)
        if not path.is_dir():
            raise UsageError(
                "neither a folder nor URL@COMMIT",
                id="project-not-found",
                where=redact(text),
                cause="a commit is named by its whole id, 40 or 64 digits: a branch or a tag can move",
            )
        return Checkout(_project(path.resolve()), revision_of(path.resolve()), fetched=False)
    address, commit = found["address"], found["commit"]
    _fetch(address, commit, folder / "git")
    files = files_at(folder / "git", commit)
    if not files:
        raise InvalidError(
            "not a project: no files of recipes and layers can be read",
            id="project-commit-unreadable",
            where=f"{redact(address)}@{commit}",
        )
    root = folder / "project"
    write_files(files, root, redact(address))
    return Checkout(_project(root), Revision(commit, clean=True), fetched=True)


def _project(root: Path) -> Project:
    return Project((root, search_path()[-1]))


def _fetch(address: str, commit: str, folder: Path) -> None:
    """Fetch one commit without its history into a new bare repository. Nothing of it is run or checked out."""
    settings = {
        "core.hooksPath": "/dev/null",
        "fetch.fsckObjects": "true",
        # One file holds everything that is received, so that the limit of a file's size bounds all of it.
        "fetch.unpackLimit": "1",
        "fetch.recurseSubmodules": "false",
        "transfer.bundleURI": "false",
        "gc.auto": "0",
        "maintenance.auto": "false",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    where = f"{redact(address)}@{commit}"
    done = _git(["init", "--quiet", "--bare", "--template=", "--", str(folder)], where)
    if done.status == 0:
        words = ["fetch", "--quiet", "--no-tags", "--depth=1", "--no-write-fetch-head", "--", address, commit]
        done = _git([*options, f"--git-dir={folder}", *words], where)
    if done.status == 0:
        return
    lines = [line for line in done.errors.splitlines() if line.startswith(("fatal:", "error:"))]
    cause = without_logins((lines or done.errors.splitlines() or ["git was ended"])[0])[:300]
    if any(mark in done.errors for mark in _GONE):
        raise PinError("there is no such commit", id="project-commit-missing", where=where, cause=cause)
    what = "the commit cannot be fetched"
    cause += (
        f"; a commit of more than {_LARGEST >> 20} MB is not taken" if done.status < 0 or "index-pack" in cause else ""
    )
    raise NetworkError(what, id="project-not-fetched", where=where, cause=cause)


def _git(arguments: list[str], where: str) -> Captured:
    before, environ = ("prlimit", f"--fsize={_LARGEST}"), {"GIT_ALLOW_PROTOCOL": _PROTOCOLS}
    try:
        return run_git(arguments, timeout=_SECONDS, before=before, environ=environ)
    except FileNotFoundError:
        raise UsageError(
            "the command git or prlimit is missing",
            id="project-git-missing",
            next="install the packages git and util-linux",
        ) from None
    except subprocess.TimeoutExpired:
        raise NetworkError(f"git did not finish within {_SECONDS} s", id="project-git-timeout", where=where) from None
    except OutputTooLongError as error:
        raise NetworkError("git has no result", id="project-git-output", where=where, cause=str(error)) from None
