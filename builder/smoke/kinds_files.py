"""Static checks of an image's files: presence, links, owners, modes."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Sequence
from typing import Literal

from builder.smoke.elf import AARCH64, CUDA, machine_name
from builder.smoke.static import Context, Failed, NotRun, kind
from builder.smoke.tree import Absent

_AT_RUN_TIME = ("proc", "sys", "dev", "run")
"""Folders that the container engine fills: links may lead there."""


@kind("file")
def file(
    context: Context,
    *,
    path: str,
    type: Literal["file", "dir", "symlink"] = "file",
    mode: str | None = None,
    executable: bool = False,
    empty: bool = False,
) -> str:
    """The path leads to a file (or `dir`; `symlink`: is itself a link), with this mode, not empty unless `empty`."""
    found = context.tree.get(path) if type == "symlink" else context.tree.stat(path)
    if found is None:
        raise Absent(path)
    if found.kind != type:
        raise Failed(f"{path} is a {found.kind}, not a {type}")
    if mode is not None and found.mode != int(mode, 8):
        raise Failed(f"{path} has mode {found.mode:04o}, not {mode}")
    if executable and not found.mode & 0o001:
        raise Failed(f"{path} cannot be executed by everyone: its mode is {found.mode:04o}")
    if type == "file" and not empty and not found.size:
        raise Failed(f"{path} is empty")
    return f"{found.size} bytes, {found.mode:04o}" if type == "file" else f"{found.mode:04o}"


@kind("symlink")
def symlink(context: Context, *, path: str, to: str | None = None, under: str | None = None) -> str:
    """The path is a link that leads, in the end, to the file `to`, or below the folder `under`."""
    found = context.tree.get(path)
    if found is None:
        # The way there may go through other links.
        parent, _, name = path.rstrip("/").rpartition("/")
        found = context.tree.get(f"{context.tree.resolve(parent)}/{name}")
    if found is None:
        raise Absent(path)
    if found.kind != "symlink":
        raise Failed(f"{path} is a {found.kind}, not a link")
    end = "/" + context.tree.resolve(path)
    if to is not None and end != "/" + context.tree.resolve(to):
        raise Failed(f"{path} leads to {end}, not to {to}")
    if under is not None and not end.startswith(under.rstrip("/") + "/"):
        raise Failed(f"{path} leads to {end}, which is not below {under}")
    return f"leads to {end}"


@kind("no-dangling-links")
def no_dangling_links(context: Context, *, prefix: str = "/", allowed: Sequence[str] = ()) -> str:
    """Every link below `prefix` leads somewhere; `allowed`: patterns of links that need not."""
    count = 0
    broken = []
    for path, entry in context.tree.below(prefix):
        if entry.kind != "symlink" or _allowed(path, allowed):
            continue
        count += 1
        target = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), entry.link))
        if target.split("/")[1] in _AT_RUN_TIME:
            continue
        try:
            context.tree.resolve(path)
        except Absent:
            broken.append(f"/{path} -> {entry.link}")
    if broken and context.tree.absent:
        raise NotRun(f"{_some(broken)} may lead into the base's layers, which are not here")
    if broken:
        raise Failed(f"links that lead nowhere: {_some(broken)}")
    return f"{count} links"


@kind("elf-machine")
def elf_machine(context: Context, *, prefix: str = "/", allowed: Sequence[str] = ()) -> str:
    """Every ELF file below `prefix` is for aarch64 (or GPU code); `allowed`: patterns of files that need not be."""
    found = [(path, entry.machine) for path, entry in context.tree.below(prefix) if entry.machine is not None]
    other = [
        f"/{path} ({machine_name(machine)})"
        for path, machine in found
        if machine not in (AARCH64, CUDA) and not _allowed(path, allowed)
    ]
    if other:
        raise Failed(f"not aarch64: {_some(other)}")
    if not found and prefix.strip("/"):
        # A prefix that holds nothing would pass for ever.
        raise Absent(prefix, " with an ELF file in it")
    return f"{len(found)} ELF files"


@kind("no-setuid")
def no_setuid(context: Context, *, allowed: Sequence[str] = (), everywhere: bool = False) -> str:
    """No setuid or setgid file but those `allowed`, and those of the first layer or the base (not `everywhere`)."""
    bad = []
    exempt = 0
    for path, entry in context.tree.entries.items():
        if entry.kind != "file" or not entry.mode & 0o6000 or _allowed(path, allowed):
            continue
        if not everywhere and (entry.layer == 0 or not context.is_ours(entry.layer)):
            exempt += 1
            continue
        bad.append(f"/{path} ({entry.mode:04o}, layer {entry.layer})")
    if bad:
        raise Failed(f"setuid or setgid: {_some(bad)}")
    return f"{exempt} setuid files, all of the base or root layer" if exempt else "none"


@kind("no-world-writable")
def no_world_writable(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No file or folder that everyone may write, but sticky folders, device files, and those `allowed`."""
    bad = [
        f"/{path} ({entry.mode:04o})"
        for path, entry in context.tree.entries.items()
        if entry.kind in ("file", "dir", "fifo")
        and entry.mode & 0o002
        and not (entry.kind == "dir" and entry.mode & 0o1000)
        and context.is_ours(entry.layer)
        and not _allowed(path, allowed)
    ]
    if bad:
        raise Failed(f"writable by everyone: {_some(bad)}")
    return "none"


@kind("parents-0755")
def parents_0755(context: Context) -> str:
    """Layers bring every parent folder of their files; those over the root layer as 0755 root:root.

    Docker's overlay2 makes a missing parent 0600, which locks every other user out.
    """
    bad = []
    for layer in context.tree.layers:
        if not context.is_ours(layer.number):
            continue
        parents: set[str] = set()
        for path in layer.entries:
            while path := path.rpartition("/")[0]:
                if path in parents:
                    break
                parents.add(path)
        for path in sorted(parents):
            entry = layer.entries.get(path)
            if entry is None:
                bad.append(f"layer {layer.number} lacks /{path}")
            elif entry.kind == "dir" and layer.number > 0 and (entry.mode, entry.uid, entry.gid) != (0o755, 0, 0):
                bad.append(f"layer {layer.number} has /{path} as {entry.mode:04o} {entry.uid}:{entry.gid}")
    if bad:
        raise Failed(_some(bad))
    return f"{len(context.tree.layers)} layers"


@kind("distribution")
def distribution(context: Context, *, name: str, version: str | None = None) -> str:
    """A Python distribution is installed, once, in this version."""
    found = distributions(context, name)
    if not found:
        raise Absent(f"{name}-{version or '*'}.dist-info")
    if len(set(found)) > 1:
        raise Failed(f"{name} is installed more than once: {', '.join(sorted(set(found)))}")
    if version is not None and found[0] != version:
        raise Failed(f"{name} is {found[0]}, expected {version}")
    return found[0]


def distributions(context: Context, name: str) -> list[str]:
    """The versions of a Python distribution that are installed, by the names of their metadata folders."""
    versions = []
    for path in context.tree.match("*-packages/*.dist-info/METADATA"):
        found, _, version = path.split("/")[-2].removesuffix(".dist-info").partition("-")
        if _normal(found) == _normal(name):
            versions.append(version)
    return versions


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _allowed(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase("/" + path, pattern) for pattern in patterns)


def _some(items: Sequence[str]) -> str:
    shown = ", ".join(items[:5])
    return f"{shown} and {len(items) - 5} more" if len(items) > 5 else shown
