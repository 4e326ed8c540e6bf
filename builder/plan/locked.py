"""The locked inputs of a use of a layer: the Debian packages, wheels and sources that its layer.yaml names."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from builder.errors import PinError, UsageError
from builder.model.base import Base
from builder.model.inputs import Input, from_deb, from_source, from_wheel
from builder.model.layer import PackageGroup, Patch, WheelGroup
from builder.model.lock import DebLock, LockSection, Wheel, WheelLock
from builder.plan.template import render_text
from builder.plan.use import Scope, Use, check_applies
from builder.project import Project
from builder.text import first_few


@dataclass(frozen=True)
class PlacedWheel:
    """A locked wheel and where its files go. strip and into: as in `WheelGroup`; None installs the distribution."""

    input: Input
    strip: str | None = None
    into: str | None = None


@dataclass(frozen=True)
class LockedPatch:
    """Files of a source for an installed distribution. info: the folder of the distribution's metadata."""

    wheel: Input
    source: Input
    folder: str
    files: tuple[str, ...]

    @property
    def info(self) -> str:
        name, version, _ = self.wheel.file.split("-", 2)
        return f"{name}-{version}.dist-info"


@dataclass(frozen=True)
class Locked:
    """The locked inputs of one use, in the order of the layer.yaml and the lock."""

    debs: tuple[Input, ...]
    wheels: tuple[PlacedWheel, ...]
    sources: tuple[Input, ...]
    packages: tuple[Input, ...] = ()
    patches: tuple[LockedPatch, ...] = ()

    @property
    def inputs(self) -> list[Input]:
        """All of them."""
        patched = (item for patch in self.patches for item in (patch.wheel, patch.source))
        return [*self.debs, *self.packages, *(wheel.input for wheel in self.wheels), *self.sources, *patched]


def locked_inputs(project: Project, use: Use, base: Base | None, recipe: Any, siblings: Sequence[Use]) -> list[Input]:
    """The locked inputs of a use of a layer. siblings: all uses of the image.

    Raises UsageError when the layer does not apply to the base, PinError for what the lock does not have.
    """
    scope = Scope(project, use, base, recipe)
    if base is not None:
        check_applies(use, scope, base)
    return find_locked(project, use, scope, siblings).inputs


def find_locked(project: Project, use: Use, scope: Scope, siblings: Sequence[Use]) -> Locked:
    """The inputs by kind. Raises PinError for what the lock does not have."""
    inputs = use.source.definition.inputs
    if inputs.debs is not None and not use.source.definition.root:
        _check_below(project, scope, scope.text(inputs.debs), use, siblings)
    return Locked(
        debs=_debs(project, scope.text(inputs.debs), scope.where) if inputs.debs is not None else (),
        wheels=tuple(
            wheel
            for group in inputs.wheels
            if scope.holds(group.when)
            for wheel in _wheels(project, group, use, scope, siblings)
        ),
        sources=tuple(_source(project, scope.text(text), use.where) for text in inputs.sources),
        packages=tuple(item for group in inputs.packages for item in _packages(project, group, scope)),
        patches=tuple(_patch(project, patch, use, scope) for patch in inputs.patches),
    )


def dates_of(project: Project, use: Use, scope: Scope) -> set[str]:
    """The dates of the lock sections that a use of a layer takes inputs from. Raises PinError as `find_locked` does."""
    inputs = use.source.definition.inputs
    names = {scope.text(group.lock) for group in inputs.wheels if scope.holds(group.when)}
    names |= {scope.text(group.lock) for group in inputs.packages} | {scope.text(each.lock) for each in inputs.patches}
    names |= {scope.text(inputs.debs)} if inputs.debs is not None else set()
    sources = [scope.text(text) for text in (*inputs.sources, *(patch.source for patch in inputs.patches))]
    return {project.section(name).locked for name in names} | {
        date for (name, version), (_, date) in project.sources.items() if f"{name}/{version}" in sources
    }


def one_per_file(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """The inputs, each once. Raises PinError when two different inputs share a file name: a context holds one."""
    found: dict[str, Input] = {}
    for item in inputs:
        if found.setdefault(item.file, item).sha256 != item.sha256:
            raise PinError(
                f"the lock has two different files {item.file}",
                id="lock-file-ambiguous",
                where="recipes/locks",
                cause=f"{found[item.file].digest} and {item.digest}",
                next="lock both again: builder lock --update sections",
            )
    return tuple(found.values())


def _debs(project: Project, name: str, where: str) -> tuple[Input, ...]:
    section = project.section(name)
    if not isinstance(section, DebLock):
        raise _wrong_kind(name, "Debian packages", where)
    return tuple(from_deb(item, section.locked) for item in section.packages)


def _check_below(project: Project, scope: Scope, name: str, use: Use, siblings: Sequence[Use]) -> None:
    """Packages over a root were resolved for exactly this root, and beside the other layers. Raises PinError."""
    section = project.section(name)
    if not isinstance(section, DebLock):
        return
    roots: dict[str, str] = {}
    others: dict[str, str] = {}
    earlier: dict[str, str] = {}
    for each in siblings:
        definition = each.source.definition
        if each.id == use.id:
            earlier = dict(others)
        if definition.inputs.debs is not None and each.id != use.id:
            found = render_text(definition.inputs.debs, {**scope.values, "params": each.params}, each.where)
            (roots if definition.root else others)[found] = definition.name
    without = dict.fromkeys(section.request.without or ())
    if roots.keys() - without or without.keys() - roots.keys() - others.keys():
        raise PinError(
            f"the packages of {name} are locked for another root, or beside a layer that the recipe does not have",
            id="debs-of-another-root",
            where=use.where,
            cause=f"it leaves out {', '.join(without) or 'nothing'}; "
            f"the image has {', '.join((*roots, *others)) or 'no root'}",
            next=f"add that layer to the recipe, or lock the packages again: {_locking(section, use, scope)}",
        )
    for other, layer in earlier.items():
        _check_brought_once(section, project.section(other), use, scope, layer)


def _check_brought_once(section: DebLock, other: LockSection, use: Use, scope: Scope, layer: str) -> None:
    """Raises PinError when two sections over one root share a package: their layers would have the same files."""
    if not isinstance(other, DebLock):
        return
    theirs = {item.package for item in other.packages}
    if both := [item.package for item in section.packages if item.package in theirs]:
        raise PinError(
            f"layers {use.source.definition.name} and {layer} both bring {first_few(both)}",
            id="debs-twice",
            where=use.where,
            cause="each was locked without the other",
            next=_locking(section, use, scope, "--beside", layer),
        )


def _locking(section: DebLock, use: Use, scope: Scope, *more: str) -> str:
    """The command that locks the packages of a layer again."""
    words = ["builder", "add", "debs", use.source.definition.name, *section.request.packages]
    return shlex.join([*words, "--base", str(scope.base["name"]), *more])


def _wheels(
    project: Project, group: WheelGroup, use: Use, scope: Scope, siblings: Sequence[Use]
) -> tuple[PlacedWheel, ...]:
    name = scope.text(group.lock)
    section = project.section(name)
    if not isinstance(section, WheelLock):
        raise _wrong_kind(name, "wheels", scope.where)
    chosen = _chosen(section, group, use, scope, siblings)
    into = scope.text(group.into or "") if group.strip is not None else None
    return tuple(PlacedWheel(from_wheel(wheel), group.strip, into) for wheel in section.wheels if wheel.name in chosen)


def _chosen(section: WheelLock, group: WheelGroup, use: Use, scope: Scope, siblings: Sequence[Use]) -> set[str]:
    """The names of the distributions that the group takes from the section."""
    names = {wheel.name for wheel in section.wheels}
    if group.only is None:
        return names
    only = scope.names(group.only)
    if missing := sorted(only - names):
        raise PinError(
            f"{missing[0]} is not in the lock section {section.name}",
            id="wheel-not-locked",
            where=use.where,
            next=f"require it in recipes/locks/requests.yaml, then: builder lock {section.name}",
        )
    if only:
        return only
    taken: set[str] = set(use.params.get("leave_out", ()))
    for other in siblings:
        if other.id != use.id and other.source is use.source and other.params.get("lock") == use.params.get("lock"):
            taken |= set(other.params.get("only", ()))
    return names - taken


def _packages(project: Project, group: PackageGroup, scope: Scope) -> list[Input]:
    section = scope.text(group.lock)
    found = {item.package: item for item in _debs(project, section, scope.where)}
    wanted = [scope.text(name) for name in group.only]
    if missing := next((name for name in wanted if name not in found), None):
        raise PinError(
            f"{missing} is not in the lock section {section}",
            id="package-not-locked",
            where=scope.where,
            next=f"request it in recipes/locks/requests.yaml, then: builder lock {shlex.quote(section)}",
        )
    return [found[name] for name in wanted]


def _patch(project: Project, patch: Patch, use: Use, scope: Scope) -> LockedPatch:
    name, version = scope.text(patch.distribution), scope.text(patch.version)
    section = project.section(scope.text(patch.lock))
    wheel = next((each for each in section.entries if isinstance(each, Wheel) and each.name == name), None)
    if wheel is None:
        raise PinError(
            f"{name} is not in the lock section {section.name}",
            id="wheel-not-locked",
            where=use.where,
            next="patch a distribution that the base installs",
        )
    if wheel.version != version:
        raise PinError(
            f"the patch is for {name} {version}, and the base has {wheel.version}",
            id="patch-version-differs",
            where=use.where,
            cause=f"{section.name} locks {wheel.file}",
            next=f"take the files of a commit that fits {wheel.version}, then set against: {wheel.version}",
        )
    files = scope.params[patch.files.removeprefix("params.")]
    if not files:
        raise UsageError(f"layer {use.id} names no files", id="patch-without-files", where=use.where)
    source = _source(project, scope.text(patch.source), use.where)
    return LockedPatch(from_wheel(wheel), source, scope.text(patch.folder), tuple(files))


def _source(project: Project, text: str, where: str) -> Input:
    name, _, wanted = text.partition("/")
    if found := project.sources.get((name, wanted)):
        return from_source(*found)
    known = ", ".join(version for other, version in project.sources if other == name)
    raise PinError(
        f"the lock has no source {name} {wanted}",
        id="source-not-locked",
        where=where,
        cause=f"it has {known or 'none of that name'}",
        next=f"request it under sources in your recipes/locks/requests.yaml, then: builder lock {shlex.quote(name)}",
    )


def _wrong_kind(section: str, expected: str, where: str) -> PinError:
    return PinError(f"the lock section {section!r} does not hold {expected}", id="lock-section-kind", where=where)
