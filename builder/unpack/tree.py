"""Unpacks a layer's description into entries, sorts them by path, and refuses paths where no layer may put files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import debs, patches, root, wheels
from .bounds import FILES, NAMES, Budget
from .entry import Entry, UnpackError, directory, raw
from .place import PLACED, check_place, placed
from .spool import Spool

OF_PACKAGES = ("var/lib", "var/cache")
"""Where Debian packages over a root may place files too: such a layer fits only bases whose root is of Debian."""

_LONG_NAME = re.compile(rb"[^/]{256}")
"""Longer than a name that Linux's file systems hold: no engine could unpack the layer."""

Locate = Callable[[Mapping[str, Any]], Path]
"""Finds an input, given as its entry in the description, on disk."""


def entries(spec: Mapping[str, Any], locate: Locate, spool: Spool) -> list[Entry]:
    """The entries of a `files` layer's description, normalised. The spool must stay open while contents are read.

    spec keys: root, debs [{file}], wheels [{file, strip, into}], scheme, files [{path, link | content | directory,
    mode}], shared (paths that several wheels hold; the first wheel's file is used), and where there are any patches
    [{wheel, source, folder, files}]. Raises UnpackError.
    """
    made: list[Entry] = []
    overlays = [(item, locate(item["wheel"]), locate(item["source"])) for item in spec.get("patches", ())]
    found_debs = [(locate(item), item["file"]) for item in spec["debs"]]
    found_wheels = [locate(item) for item in spec["wheels"]]
    patched = [path for _, *paths in overlays for path in paths]
    inputs = (*(path for path, _ in found_debs), *found_wheels, *patched)
    budget = Budget(sum(path.stat().st_size for path in inputs))
    if spec["debs"]:
        unpacked, packages = debs.unpack(found_debs, spool, budget)
        made += unpacked
        tree = {entry.path: entry for entry in unpacked}
        made += root.complete(tree, packages) if spec["root"] else root.extend(tree, packages)
    scheme = wheels.Scheme(**spec["scheme"]) if spec["scheme"] else None
    stripped: dict[str, int] = {}
    for item, path in zip(spec["wheels"], found_wheels, strict=True):
        if item.get("strip"):
            found = wheels.extract(path, item["file"], item["strip"], item["into"], budget)
            stripped[item["strip"]] = stripped.get(item["strip"], 0) + len(found)
            made += found
        elif scheme is not None:
            made += wheels.install(path, item["file"], scheme, budget)
        else:
            raise UnpackError(f"{item['file']}: no site directory to install it into", id="wheel-site-missing")
    for item, wheel, source in overlays:
        if scheme is None:
            raise UnpackError(f"{item['wheel']['file']}: no site directory to install it into", id="wheel-site-missing")
        made += patches.overlay(wheel, source, item, scheme, budget)
    if empty := [path for path, count in stripped.items() if not count]:
        raise UnpackError(f"none of the layer's wheels has a file below {empty[0]}", id="wheel-part-missing")
    made += [placed(item) for item in spec["files"]]
    also = OF_PACKAGES if spec["debs"] else ()
    return normalise(made, is_root=spec["root"], shared=frozenset(spec["shared"]), also=also)


def normalise(
    found: Iterable[Entry], *, is_root: bool, shared: frozenset[str] = frozenset(), also: tuple[str, ...] = ()
) -> list[Entry]:
    """Entries sorted by path, with all parents; of hard links, the first name is the file. also: as in `check_place`.

    Raises UnpackError for two different entries at one path, for files below a file or link, for whiteouts, and, unless
    it is a root, for paths outside usr, opt, etc and srv and for set-user-id or set-group-id bits.
    """
    tree: dict[str, Entry] = {}
    for entry in found:
        _put(tree, entry, shared)
    names = 0
    for path in list(tree):
        names += len(path) + _add_parents(tree, path)
        if len(tree) > FILES or names > NAMES:
            raise UnpackError("the layer has too many files and folders", id="layer-too-many-files")
    if not is_root:
        with_children = {path.rpartition("/")[0] for path in tree}
        for path in with_children & tree.keys():
            # Emitting a folder that the base has too would change its mode: all bases have 0755 there.
            if tree[path].kind == "dir":
                tree[path] = directory(path)
        for entry in tree.values():
            check_place(entry, also)
    return _link_to_first(tree)


def _put(tree: dict[str, Entry], entry: Entry, shared: frozenset[str]) -> None:
    if _LONG_NAME.search(raw(entry.path)):
        raise UnpackError(f"{entry.owner}: the name {entry.path[:200]!r} is too long", id="layer-name-too-long")
    if "/.wh." in f"/{entry.path}":
        raise UnpackError(
            f"/{entry.path}: a name that begins with .wh. deletes files of the layers below", id="layer-whiteout"
        )
    existing = tree.get(entry.path)
    if existing is None:
        tree[entry.path] = entry
    elif existing.kind == entry.kind == "dir" or (
        existing.kind == entry.kind == "symlink" and existing.link == entry.link
    ):
        return
    elif entry.owner == PLACED and entry.kind != "dir":
        tree[entry.path] = entry
    elif entry.path not in shared:
        raise UnpackError(f"{entry.path} comes from both {existing.owner} and {entry.owner}", id="layer-path-twice")


def _add_parents(tree: dict[str, Entry], path: str) -> int:
    """Returns the characters of the paths that it adds."""
    added = 0
    parent = path.rpartition("/")[0]
    while parent:
        existing = tree.get(parent)
        if existing is None:
            tree[parent] = directory(parent)
            added += len(parent)
        elif existing.kind != "dir":
            raise UnpackError(f"{path} lies below {parent}, which is not a directory", id="layer-path-below-file")
        else:
            # Its own parents are there, or come when it is its turn: thousands of deep paths took minutes.
            break
        parent = parent.rpartition("/")[0]
    return added


def _link_to_first(tree: dict[str, Entry]) -> list[Entry]:
    groups: dict[str, list[str]] = {}
    for path, entry in tree.items():
        if entry.kind == "hardlink":
            target = tree.get(entry.link)
            hops = 0
            while target is not None and target.kind == "hardlink" and hops < 64:
                target, hops = tree.get(target.link), hops + 1
            if target is None or target.kind != "file":
                raise UnpackError(
                    f"{path} is a hard link to {entry.link}, which is not a file of this layer",
                    id="layer-hardlink-dangling",
                )
            groups.setdefault(target.path, [target.path]).append(path)
    for target_path, names in groups.items():
        file = tree[target_path]
        first, *others = sorted(names, key=raw)
        tree[first] = Entry(first, "file", file.mode, file.size, read=file.read, owner=file.owner)
        for name in others:
            tree[name] = Entry(name, "hardlink", file.mode, link=first, owner=file.owner)
    return [tree[path] for path in sorted(tree, key=raw)]
