"""The locked inputs of a use of a layer: the Debian packages, wheels and sources that its layer.yaml names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from builder.errors import PinError
from builder.model.base import Base
from builder.model.inputs import Input, from_deb, from_source, from_wheel
from builder.model.layer import WheelGroup
from builder.model.lock import DebLock, SourceLock, WheelLock
from builder.plan.use import Scope, Use, check_applies
from builder.project import Project


@dataclass(frozen=True)
class PlacedWheel:
    """A locked wheel and where its files go. strip and into: as in `WheelGroup`; None installs the distribution."""

    input: Input
    strip: str | None = None
    into: str | None = None


@dataclass(frozen=True)
class Locked:
    """The locked inputs of one use, in the order of the layer.yaml and the lock."""

    debs: tuple[Input, ...]
    wheels: tuple[PlacedWheel, ...]
    sources: tuple[Input, ...]

    @property
    def inputs(self) -> list[Input]:
        """All of them."""
        return [*self.debs, *(wheel.input for wheel in self.wheels), *self.sources]


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
    return Locked(
        debs=_debs(project, scope.text(inputs.debs), scope.where) if inputs.debs is not None else (),
        wheels=tuple(
            wheel
            for group in inputs.wheels
            if scope.holds(group.when)
            for wheel in _wheels(project, group, use, scope, siblings)
        ),
        sources=tuple(_source(project, scope.text(text), use.where) for text in inputs.sources),
    )


def sections_of(use: Use, scope: Scope) -> set[str]:
    """The names of the lock sections that a use of a layer takes inputs from."""
    inputs = use.source.definition.inputs
    names = {scope.text(group.lock) for group in inputs.wheels if scope.holds(group.when)}
    names |= {scope.text(inputs.debs)} if inputs.debs is not None else set()
    return names | ({"sources"} if inputs.sources else set())


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


def _source(project: Project, text: str, where: str) -> Input:
    name, _, wanted = text.partition("/")
    section = project.section("sources")
    if not isinstance(section, SourceLock):
        raise _wrong_kind("sources", "sources", where)
    for item in section.sources:
        if (item.name, item.version) == (name, wanted):
            return from_source(item, section.locked)
    known = ", ".join(item.version for item in section.sources if item.name == name)
    raise PinError(
        f"the lock has no source {name} {wanted}",
        id="source-not-locked",
        where=where,
        cause=f"it has {known or 'none of that name'}",
        next=f"request it under sources in your recipes/locks/requests.yaml, then: builder lock {name}",
    )


def _wrong_kind(section: str, expected: str, where: str) -> PinError:
    return PinError(f"the lock section {section!r} does not hold {expected}", id="lock-section-kind", where=where)
