"""The static checks of single files and links, and of secrets and bytecode; helpers for lists of paths."""

from __future__ import annotations

import fnmatch
import json
import posixpath
from collections.abc import Sequence
from typing import Literal

from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.secrets import find_in_text, find_in_variable, find_shapes
from builder.smoke.image.tree import LONGEST_PATH, PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.text import first_few

_AT_RUN_TIME = ("proc", "sys", "dev", "run")
"""Folders that the container engine fills: symlinks may lead there."""


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
    """The path leads to a file or `dir`, or is a `symlink` itself, with this mode and owner (UID:GID).

    The file is not empty, unless `empty` is set.
    """
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
    """The path is a symlink whose final target is the file `to`, or is below the folder `under`."""
    found = context.tree.get(path)
    if found is None:
        # Parent folders may be symlinks.
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
    """Every symlink below `prefix` has a target. allowed: patterns of symlinks that may dangle."""
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
        raise CheckNotRun(f"{first_few(broken)} may lead into the base's layers, which are not on this machine")
    if broken:
        raise CheckFailed(f"dangling links: {first_few(broken)}")
    return f"{count} links"


def allowed_by(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path matches one of the patterns (fnmatch)."""
    return any(fnmatch.fnmatchcase("/" + path, pattern) for pattern in patterns)


def is_open(context: Context, folder: str) -> bool:
    """Whether everyone may write to a folder or make it, or it is one of a process, as /proc/self/cwd."""
    if len(folder) > LONGEST_PATH:
        return False
    if posixpath.normpath(folder).split("/")[1:2] == ["proc"]:
        return True
    while folder.startswith("/") and not context.tree.exists(folder):
        folder = posixpath.dirname(folder.rstrip("/"))
    return folder.startswith("/") and bool(context.tree.stat(folder).mode & 0o002)


@check_kind("static", "no-bytecode", Reads("ours"))
def no_bytecode(context: Context) -> str:
    """No compiled Python: its bytes differ between builds, and it is stale when its source is patched."""
    bad = [
        f"/{path}"
        for path, entry in context.tree.entries.items()
        if entry.kind != "dir" and path.endswith((".pyc", ".pyo")) and context.is_ours(entry.layer)
    ]
    if bad:
        raise CheckFailed(f"compiled Python: {first_few(bad)}")
    return "none"


@check_kind("static", "no-secrets", Reads("ours", scan=ScanOptions(secrets=True)))
def no_secrets(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No private key, token, login or password in the files of our layers, including files that a later layer hides,
    and in variables, labels, history, entrypoint and command. allowed: patterns of files (published test keys)."""
    bad = []
    for layer in context.tree.layers:
        if context.is_ours(layer.number):
            found = [(path, what) for path, what in layer.secrets if not allowed_by(path, allowed)]
            bad += [f"{what} in /{path} ({context.name(layer.number)})" for path, what in found]
            names = "\n".join([*layer.entries, *(entry.link for entry in layer.entries.values() if entry.link)])
            bad += [
                f"{what} in the name of a file ({context.name(layer.number)})"
                for what in find_shapes(names.encode("utf-8", "surrogateescape"))
            ]
    image = context.image
    for name, value in image.env.items():
        bad += [f"{what} in the variable {name}" for what in find_in_variable(name, value)]
    for name, value in {**(image.settings.get("Labels") or {}), **(image.manifest.get("annotations") or {})}.items():
        bad += [f"{what} in the label {name}" for what in find_in_variable(name, str(value))]
    for line in image.config.get("history") or ():
        text = " ".join(str(line.get(key) or "") for key in ("created_by", "comment", "author"))
        bad += [f"{what} in the history" for what in find_in_text(text)]
    for key in ("Entrypoint", "Cmd", "Healthcheck"):
        bad += [f"{what} in {key}" for what in find_in_text(str(image.settings.get(key) or ""))]
    # Such as docker's container_config, and annotations of a layer.
    whole = json.dumps([image.manifest, image.config], ensure_ascii=False).encode("utf-8", "replace")
    bad += [] if bad else [f"{what} in the manifest or configuration" for what in find_shapes(whole)]
    if bad:
        raise CheckFailed(first_few(list(dict.fromkeys(bad))))
    return "none"
