"""The static checks of owners and modes: files not owned by root, setuid files, files that everyone may write or nobody
but root may read, files with capabilities, devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import allowed_by
from builder.text import first_few


@check_kind("static", "owners", Reads("ours"))
def owners(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """Files belong to root, except those of the first layer (a Debian root) and those that match `allowed`."""
    bad = [
        f"/{path} ({entry.uid}:{entry.gid}, {context.name(entry.layer)})"
        for path, entry in context.tree.entries.items()
        if (entry.uid or entry.gid)
        and entry.layer > 0
        and context.is_ours(entry.layer)
        and not allowed_by(path, allowed)
    ]
    if bad:
        raise CheckFailed(f"not owned by root: {first_few(bad)}")
    return "all owned by root"


@check_kind("static", "no-setuid", Reads("ours"))
def no_setuid(context: Context, *, allowed: Sequence[str] = (), everywhere: bool = False) -> str:
    """No setuid or setgid file, except those that match `allowed`.

    Unless `everywhere`, those of the first layer and of the base are exempt, too.
    """
    bad = []
    exempt = 0
    for path, entry in context.tree.entries.items():
        if entry.kind != "file" or not entry.mode & 0o6000 or allowed_by(path, allowed):
            continue
        if not everywhere and (entry.layer == 0 or not context.is_ours(entry.layer)):
            exempt += 1
            continue
        bad.append(f"/{path} ({entry.mode:04o}, layer {entry.layer})")
    if bad:
        raise CheckFailed(f"setuid or setgid: {first_few(bad)}")
    return f"{exempt} setuid files, all of the base or root layer" if exempt else "none"


@check_kind("static", "no-world-writable", Reads("ours"))
def no_world_writable(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No file or folder that everyone may write, except sticky folders, devices, and matches of `allowed`."""
    bad = [
        f"/{path} ({entry.mode:04o})"
        for path, entry in context.tree.entries.items()
        if entry.kind in ("file", "dir", "fifo")
        and entry.mode & 0o002
        and not (entry.kind == "dir" and entry.mode & 0o1000)
        and context.is_ours(entry.layer)
        and not allowed_by(path, allowed)
    ]
    if bad:
        raise CheckFailed(f"writable by everyone: {first_few(bad)}")
    return "none"


@check_kind("static", "kinds", Reads("ours"))
def kinds(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No device, pipe or file with extended attributes (capabilities); everyone can load every library, and enter the
    folders of all programs and of /etc. Above the first layer: everyone can read every file, and no names differ in
    case alone, which file systems that ignore case cannot unpack."""
    bad = []
    bad += [f"/{path} cannot be entered by every user" for path in _closed(context) if not allowed_by(path, allowed)]
    folded: dict[str, str] = {}
    for layer in context.tree.layers:
        if context.is_ours(layer.number):
            bad += [f"/{path} has the attribute {name}" for path, name in layer.attributes]
    for path, entry in context.tree.entries.items():
        if not context.is_ours(entry.layer) or allowed_by(path, allowed):
            continue
        if entry.kind in ("char", "block", "fifo"):
            bad.append(f"/{path} is a {entry.kind}")
        if entry.layer == 0:
            if ".so" in path and entry.machine is not None and not entry.mode & 0o004:
                bad.append(f"/{path} ({entry.mode:04o}) cannot be loaded by every user")
            continue
        if (entry.kind == "file" and not entry.mode & 0o004) or (entry.kind == "dir" and entry.mode & 0o005 != 0o005):
            bad.append(f"/{path} ({entry.mode:04o}) can be read by its owner only")
        if (other := folded.setdefault(path.casefold(), path)) != path:
            bad.append(f"/{path} and /{other} differ in case alone")
    if bad:
        raise CheckFailed(first_few(bad))
    return "only files, folders and links that everyone may read"


def _closed(context: Context) -> Iterator[str]:
    """The folders of our programs, libraries and settings that only their owner can enter."""
    seen: set[str] = set()
    for path, entry in context.tree.entries.items():
        if not context.is_ours(entry.layer) or (entry.machine is None and path.rpartition("/")[0] != "etc"):
            continue
        while (path := path.rpartition("/")[0]) and path not in seen:
            seen.add(path)
            if not context.tree.entries[path].mode & 0o001:
                yield path
