"""Which changes of packages need each other, by what the packages themselves say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.model.inputs import Input
from builder.model.plan import Plan
from builder.store.store import Store
from builder.unpack.bounds import Budget
from builder.unpack.debs import read_control
from builder.unpack.entry import UnpackError
from builder.unpack.wheels import read_metadata
from builder.verify.hybrid import Change, packages, python_of
from builder.versions import debian_version, wheel_name

Key = tuple[str, str]
"""The kind of a package, deb or wheel, and its name."""
Versions = Callable[[Key], Iterable[str]]
"""The versions of a package that an image has: none, one, or several of a virtual package. "" is any version."""

_RELATION = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::\w+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^\s)]+)\s*\))?")
_BODY = re.compile(r"(?:\r\n|\r(?!\n)|\n){2}")
"""The end of the headers."""
_MARKERS = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "aarch64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "extra": "",
}


@dataclass(frozen=True)
class Package:
    """What a package says of itself.

    provides: names with versions. needs: each names packages, and says whether the versions of an image meet it.
    """

    provides: tuple[tuple[Key, str], ...]
    needs: tuple[tuple[frozenset[Key], Callable[[Versions], bool]], ...]


Contents = Mapping[Key, Sequence[Package]]
"""The packages of an image. One in several layers is there several times."""
Provided = Mapping[Key, Sequence[tuple[Key, str]]]
"""By name, the packages that provide it, with the version."""


def read_package(store: Store, kind: str, item: Input, python: str) -> Package:
    """A package by what it says of itself. kind: deb or wheel. python: the image's version, for markers.

    One that is not in the store, or cannot be read, needs nothing: its layer will not be built either.
    """
    name, version = item.package, item.version
    unknown = Package((((kind, name), version),), ())
    if not store.has(item.digest):
        return unknown
    path, budget = store.blob(item.digest), Budget(item.size)
    try:
        if kind == "wheel":
            return of_wheel(name, version, read_metadata(path, item.file, budget), python)
        return of_deb(name, version, read_control(path, item.file, budget).fields)
    except UnpackError:
        return unknown


def of_wheel(name: str, version: str, metadata: str, python: str) -> Package:
    """What METADATA says. python: as in `read_package`."""
    needs = []
    markers = {**_MARKERS, "python_version": python, "python_full_version": f"{python}.0"}
    # The headers alone: a body of nested parts takes the parser of mails long, or its recursion too deep.
    headers = _BODY.split(metadata, maxsplit=1)[0]
    for text in parse_email(headers)[0].get("requires_dist", ()):
        try:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate(markers):
                key = ("wheel", canonicalize_name(wanted.name))
                needs.append((frozenset({key}), lambda have, key=key, wanted=wanted: _has(wanted, have(key))))
        except (InvalidRequirement, ValueError, RecursionError):
            continue
    return Package(((("wheel", canonicalize_name(name)), version),), tuple(needs))


def _has(wanted: Requirement, versions: Iterable[str]) -> bool:
    return any(wanted.specifier.contains(version, prereleases=True) for version in versions)


def of_deb(name: str, version: str, fields: Mapping[str, str]) -> Package:
    """What a control file says. fields: by name in small letters."""
    provides = [(("deb", name), version)]
    for wanted, operator, stated in _RELATION.findall(fields.get("provides", "")):
        provides.append((("deb", wanted), stated if operator else ""))
    needs = []
    for field, good in (("depends", True), ("pre-depends", True), ("breaks", False), ("conflicts", False)):
        for group in filter(None, (text.strip() for text in fields.get(field, "").split(","))):
            relations = [(("deb", found[0]), found[1], found[2]) for found in _RELATION.findall(group)]
            # A package does not conflict with itself, nor with what it provides.
            own = [] if good else provides
            names = frozenset(key for key, _, _ in relations)
            if names:
                needs.append((names, partial(_related, relations, own, good)))
    return Package(tuple(provides), tuple(needs))


def _related(
    relations: Sequence[tuple[Key, str, str]], own: Collection[tuple[Key, str]], good: bool, have: Versions
) -> bool:
    """Whether an image has a package of the relations, other than one's own, and is to have it (good)."""
    found = Counter((key, version) for key in {key for key, _, _ in relations} for version in have(key)) - Counter(own)
    return good == any(
        key == name and _matches(version, operator, stated)
        for key, operator, stated in relations
        for name, version in found
    )


def _matches(version: str, operator: str, stated: str) -> bool:
    """Whether a version is as a relation says. Only a relation without a version takes an unknown one."""
    if not operator:
        return True
    if not version:
        return False
    have, wanted = debian_version(version), debian_version(stated)
    return {
        "<<": have < wanted,
        "<=": have <= wanted,
        "=": have == wanted,
        ">=": have >= wanted,
        ">>": have > wanted,
    }[operator]


def implied(good: Plan, bad: Plan, changes: Sequence[Change], store: Store) -> dict[Change, frozenset[Change]]:
    """For each change, the changes that an image with it must have too, itself among them. store: has the packages."""
    by_key = {(change.kind, change.name): change for change in changes}
    read = cache(partial(read_package, store))
    sides = [
        {key: [read(key[0], item, python) for item in items] for key, items in packages(plan).items()}
        for plan, python in ((good, python_of(good)), (bad, python_of(bad)))
    ]
    edges = {change: {change} for change in changes}
    for key, others in needs_between(sides[0], sides[1], by_key.keys()).items():
        edges[by_key[key]] |= {by_key[other] for other in others}
    for first, second in _ties(good, bad, by_key):
        edges[first].add(second)
    return {change: _closure(change, edges) for change in changes}


def needs_between(good: Contents, bad: Contents, changed: Collection[Key]) -> dict[Key, set[Key]]:
    """For each changed package, the others that must be changed with it.

    A new package may need other new ones, and an old one may not work with a new one.
    """
    worlds = (_provided(good), _provided(bad))
    found: dict[Key, set[Key]] = {key: set() for key in changed}
    for side, contents in enumerate((good, bad)):
        for key in contents.keys() & found.keys():
            for names, holds in (need for package in contents[key] for need in package.needs):
                if not holds(_versions(worlds, side, None)):
                    # What an image as a whole does not meet, no change repairs.
                    continue
                owners = {owner for world in worlds for name in names for owner, _ in world.get(name, ())}
                for other in owners & found.keys() - {key}:
                    if not holds(_versions(worlds, side, other)):
                        needing, needed = (key, other) if side else (other, key)
                        found[needing].add(needed)
    return found


def _provided(contents: Contents) -> Provided:
    found: dict[Key, list[tuple[Key, str]]] = {}
    for key, (package, *_) in contents.items():
        for name, version in package.provides:
            found.setdefault(name, []).append((key, version))
    return found


def _versions(worlds: tuple[Provided, Provided], side: int, other: Key | None) -> Versions:
    """Those of one image, in which one package is that of the other image."""

    def versions(name: Key) -> Iterator[str]:
        yield from (version for owner, version in worlds[side].get(name, ()) if owner != other)
        yield from (version for owner, version in worlds[1 - side].get(name, ()) if owner == other)

    return versions


def _ties(good: Plan, bad: Plan, by_key: Mapping[Key, Change]) -> Iterator[tuple[Change, Change]]:
    """What no package says: a wheel of one Python version needs this version; a command is one of its vLLM."""
    command, vllm = by_key.get(("command", "")), by_key.get(("wheel", "vllm"))
    if command is not None and vllm is not None:
        yield command, vllm
    python = by_key.get(("python", ""))
    for plan in (good, bad) if python is not None else ():
        for (kind, name), items in packages(plan).items():
            change = by_key.get((kind, name))
            if change is None:
                continue
            if (kind == "deb" and "python3" in name) or any(_is_compiled(item) for item in items if kind == "wheel"):
                assert python is not None
                yield from ((python, change), (change, python))


def _is_compiled(wheel: Input) -> bool:
    parts = wheel_name(wheel.file)
    return parts is None or any(tag.interpreter.startswith("cp") and tag.abi != "abi3" for tag in parts[3])


def _closure(change: Change, edges: Mapping[Change, Iterable[Change]]) -> frozenset[Change]:
    found, left = {change}, [change]
    while left:
        new = set(edges[left.pop()]) - found
        found |= new
        left += new
    return frozenset(found)
