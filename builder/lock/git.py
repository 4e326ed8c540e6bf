"""Git: the commit and tree of a tag in a repository, and the tree that a source archive holds."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
import zlib
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from builder.engine.git import run_git
from builder.engine.process import Captured, OutputTooLongError
from builder.errors import InvalidError, NetworkError, PinError, UsageError
from builder.inputs.mirrors import redact, without_logins
from builder.unpack.bounds import Budget, Unpacked
from builder.unpack.entry import CHUNK, UnpackError
from builder.unpack.tar import Archive

_SECONDS = 900
_DEPTH = 200
_GONE = (
    "couldn't find remote ref",
    "not our ref",
    "not found",
    "does not exist",
    "does not appear to be a git repository",
)


def read_tag(address: str, tag: str, folder: Path, cancel: Event) -> tuple[str, str]:
    """The commit that a tag names (an annotated tag is followed), and the id of its tree.

    tag: or a whole commit, 40 digits. address: of the repository. folder: a new one, for git. cancel: ends git. Raises
    UsageError without git, PinError when there is no such repository or tag, or the tag names no commit, NetworkError
    when nothing answers.
    """
    ref = f"refs/tags/{tag}"
    wanted = tag if re.fullmatch(r"[0-9a-f]{40}", tag) else ref
    git = partial(_git, folder, cancel)
    git("init", "--quiet", "--bare")
    done = git("fetch", "--quiet", "--no-tags", "--depth=1", "--", address, f"{wanted}:{ref}")
    if done.status and "dumb http" in done.errors:
        # A plain file server cannot serve a shallow fetch.
        done = git("fetch", "--quiet", "--no-tags", "--", address, f"{wanted}:{ref}")
    if done.status:
        raise _fetch_error(address, tag, done.errors)
    commit = git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").text.strip()
    tree = git("rev-parse", "--verify", "--quiet", f"{ref}^{{tree}}").text.strip()
    if not (re.fullmatch(r"[0-9a-f]{40}", commit) and re.fullmatch(r"[0-9a-f]{40}", tree)):
        raise PinError(f"the tag {tag} names no commit", id="git-tag-no-commit", where=redact(address))
    return commit, tree


def _git(folder: Path, cancel: Event, *arguments: str) -> Captured:
    try:
        return run_git([f"--git-dir={folder}", *arguments], timeout=_SECONDS, cancel=cancel)
    except FileNotFoundError:
        raise UsageError("the command git is missing", id="git-missing", next="install the package git") from None
    except subprocess.TimeoutExpired:
        raise NetworkError(f"git did not finish within {_SECONDS} s", id="git-timeout") from None
    except OutputTooLongError as error:
        raise NetworkError("git has no result", id="git-output-too-long", cause=str(error)) from None


def _fetch_error(address: str, tag: str, output: str) -> PinError | NetworkError:
    lines = [line for line in output.splitlines() if line.startswith(("fatal:", "error:"))] or output.splitlines()
    cause = without_logins(lines[0])[:300] if lines else ""
    if any(mark in output for mark in _GONE):
        return PinError(
            f"there is no tag {tag}", id="git-tag-missing", where=redact(address), cause=cause, next="check the request"
        )
    return NetworkError(
        f"cannot read the tag {tag}",
        id="git-tag-unreadable",
        where=redact(address),
        cause=cause,
        next="check the network and try again",
    )


def tree_of_archive(path: Path) -> tuple[str, str | None]:
    """The id of the git tree below the archive's single top folder, and the commit named in the archive, if any.

    Git's own format (gitformat-pack, "tree object"): modes 100644, 100755 and 120000; folders without files are not in
    a tree. An archive without some files of its commit, or with rewritten files (export-ignore, export-subst), has
    another id than the commit. Raises InvalidError when it is not such an archive.
    """
    root: dict[str, Any] = {}
    tops: set[str] = set()
    try:
        with path.open("rb", buffering=0) as file:
            budget = Budget(path.stat().st_size)
            stream = Unpacked(file, "gz", "the archive", budget)
            archive = Archive(stream, "the archive", may_comment=True)
            for member in archive:
                budget.take("the archive", "files", 1)
                top, _, name = member.name.rstrip("/").partition("/")
                tops.add(top)
                if not name:
                    if not member.isdir():
                        raise _invalid(path, "a file is beside the top folder")
                elif not member.isdir():
                    _place(root, name, _entry(stream, member, path), path, budget)
    except (OSError, EOFError, zlib.error, UnpackError) as error:
        raise _invalid(path, str(error) if isinstance(error, UnpackError) else type(error).__name__) from None
    if len(tops) != 1:
        raise _invalid(path, "there is not exactly one top folder")
    return _tree(root).hex(), archive.comment


def _entry(stream: Unpacked, member: tarfile.TarInfo, path: Path) -> tuple[str, bytes]:
    """Mode and blob id."""
    if member.issym():
        return "120000", _object("blob", member.linkname.encode("utf-8", "surrogateescape"))
    if not member.isreg():
        raise _invalid(path, "an entry is of a type that git does not store")
    seen, left = _hash("blob", member.size), member.size
    while left:
        data = stream.read(min(left, CHUNK))
        if not data:
            raise EOFError
        seen.update(data)
        left -= len(data)
    return ("100755" if member.mode & 0o100 else "100644"), seen.digest()


def _place(root: dict[str, Any], name: str, entry: tuple[str, bytes], path: Path, budget: Budget) -> None:
    *folders, last = name.split("/")
    if len(folders) > _DEPTH or any(part in ("", ".", "..", ".git") for part in (*folders, last)):
        raise _invalid(path, "git does not allow one of its paths")
    for folder in folders:
        if folder not in root:
            budget.take("the archive", "files", 1)
            root[folder] = {}
        root = root[folder]
        if not isinstance(root, dict):
            raise _invalid(path, "a path is both a file and a folder")
    if last in root:
        raise _invalid(path, "a path occurs twice")
    root[last] = entry


def _tree(folder: dict[str, Any]) -> bytes:
    entries = []
    for name, value in folder.items():
        raw = name.encode("utf-8", "surrogateescape")
        mode, identity = ("40000", _tree(value)) if isinstance(value, dict) else value
        # Git sorts folders as if their names ended with a slash.
        entries.append((raw + b"/" if mode == "40000" else raw, mode.encode() + b" " + raw + b"\0" + identity))
    return _object("tree", b"".join(data for _, data in sorted(entries)))


def _object(kind: str, data: bytes) -> bytes:
    seen = _hash(kind, len(data))
    seen.update(data)
    return seen.digest()


def _hash(kind: str, size: int) -> hashlib._Hash:
    # SHA-1 is only git's name for the content; trust rests on the sha256 of the archive.
    return hashlib.sha1(f"{kind} {size}\0".encode(), usedforsecurity=False)


def _invalid(path: Path, cause: str) -> InvalidError:
    return InvalidError("not an archive of a git commit", id="source-archive-invalid", where=path.name, cause=cause)
