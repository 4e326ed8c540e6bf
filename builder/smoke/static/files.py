"""Static checks of single files and links of an image."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Sequence
from typing import Literal

from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads

_AT_RUN_TIME = ("proc", "sys", "dev", "run")
"""Folders that the container engine fills: links may lead there."""


@check_kind("static", "file", Reads(one_path=True))
def file(
    context: Context,
    *,
    path: str,
    type: Literal["file", "dir", "symlink"] = "file",
    mode: str | None = None,
    owner: str | None = None,
    executable: bool = False,
    empty: bool = False,
) -> str:
    """The path leads to a file (or `dir`; `symlink`: is itself a link), with this mode and owner (UID:GID), not empty
    unless `empty`."""
    found = context.tree.get(path) if type == "symlink" else context.tree.stat(path)
    if found is None:
        raise PathNotFound(path)
    if found.kind != type:
        raise CheckFailed(f"{path} is a {found.kind}, not a {type}")
    if mode is not None and found.mode != int(mode, 8):
        raise CheckFailed(f"{path} has mode {found.mode:04o}, not {mode}")
    if owner is not None and f"{found.uid}:{found.gid}" != owner:
        raise CheckFailed(f"{path} belongs to {found.uid}:{found.gid}, not {owner}")
    if executable and not found.mode & 0o001:
        raise CheckFailed(f"{path} cannot be executed by everyone: its mode is {found.mode:04o}")
    if type == "file" and not empty and not found.size:
        raise CheckFailed(f"{path} is empty")
    return f"{found.size} bytes, {found.mode:04o}" if type == "file" else f"{found.mode:04o}"


@check_kind("static", "symlink", Reads(one_path=True))
def symlink(context: Context, *, path: str, to: str | None = None, under: str | None = None) -> str:
    """The path is a link that leads, in the end, to the file `to`, or below the folder `under`."""
    found = context.tree.get(path)
    if found is None:
        # The way there may go through other links.
        parent, _, name = path.rstrip("/").rpartition("/")
        found = context.tree.get(f"{context.tree.resolve(parent)}/{name}")
    if found is None:
        raise PathNotFound(path)
    if found.kind != "symlink":
        raise CheckFailed(f"{path} is a {found.kind}, not a link")
    end = "/" + context.tree.resolve(path)
    if to is not None and end != "/" + context.tree.resolve(to):
        raise CheckFailed(f"{path} leads to {end}, not to {to}")
    if under is not None and not end.startswith(under.rstrip("/") + "/"):
        raise CheckFailed(f"{path} leads to {end}, which is not below {under}")
    return f"leads to {end}"


@check_kind("static", "no-dangling-links", Reads())
def no_dangling_links(context: Context, *, prefix: str = "/", allowed: Sequence[str] = ()) -> str:
    """Every link below `prefix` leads somewhere; `allowed`: patterns of links that need not."""
    count = 0
    broken = []
    for path, entry in context.tree.below(prefix):
        if entry.kind != "symlink" or allowed_by(path, allowed):
            continue
        count += 1
        target = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), entry.link))
        if target.split("/")[1] in _AT_RUN_TIME:
            continue
        try:
            context.tree.resolve(path)
        except PathNotFound:
            broken.append(f"/{path} -> {entry.link}")
    if broken and context.tree.absent:
        raise CheckNotRun(f"{first_few(broken)} may lead into the base's layers, which are not here")
    if broken:
        raise CheckFailed(f"links that lead nowhere: {first_few(broken)}")
    return f"{count} links"


def allowed_by(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (fnmatch) describes a path."""
    return any(fnmatch.fnmatchcase("/" + path, pattern) for pattern in patterns)


def first_few(items: Sequence[str]) -> str:
    """The first few of many, for a message."""
    shown = ", ".join(items[:5])
    return f"{shown} and {len(items) - 5} more" if len(items) > 5 else shown
