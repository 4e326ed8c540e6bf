"""A use of a layer in a recipe or base: its parameters checked, and the names that its templates see."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.errors import InvalidError, UsageError
from builder.model.base import Base
from builder.model.condition import Condition, holds
from builder.model.layer import Layer
from builder.model.recipe import Recipe
from builder.model.textfile import place_of
from builder.plan.template import Quoted, is_line, render_text
from builder.project import LayerSource, Project

IDENTITY = r"[a-z][a-z0-9._-]{0,127}"
"""Ids of layers are names of build stages; an engine reads a name that begins with a digit as a stage's number."""

RESERVED = ("scratch", "context", "image", "toolchain")
_LONGEST = 1 << 14
"""Characters of a text with its values: each of hundreds of placeholders may have a long one."""


@dataclass(frozen=True)
class Use:
    """A layer with its parameters. where: the file that uses the layer, for messages."""

    id: str
    source: LayerSource
    params: dict[str, Any]
    where: str


class Scope:
    """The plain data that a layer's templates and conditions see: `base`, `params`, and the layers of the recipe."""

    def __init__(self, project: Project, use: Use, base: Base | None, recipe: Recipe | None) -> None:
        self.where = str(use.source.folder / "layer.yaml")
        self.base: dict[str, Any] = base.model_dump() if base is not None else {}
        if base is not None and base.python is not None:
            # The tag of wheels for this Python: cp313 of 3.13.
            self.base["python_tag"] = "cp" + base.python.replace(".", "")
        self.params = use.params
        self.layers = frozenset(each.layer for each in recipe.layers) if recipe is not None else frozenset()
        self.values: dict[str, Any] = {"params": self.params, "base": self.base, "id": Quoted(use.id)}
        self._project = project

    def text(self, template: str) -> str:
        """The template with its values, which must be one line of a bounded length. Raises InvalidError."""
        text = render_text(template, self.values, self.where)
        if len(text) > _LONGEST:
            raise InvalidError(
                f"{template[:100]!r} gives more than {_LONGEST} characters", id="template-too-long", where=self.where
            )
        if not is_line(text):
            raise InvalidError(
                f"{template!r} gives {text!r}, which is not one line", id="template-not-one-line", where=self.where
            )
        return text

    def holds(self, condition: Condition | None) -> bool:
        """Whether the condition holds; no condition holds always."""
        return condition is None or holds(condition, self)

    def has_section(self, template: str) -> bool:
        """Whether the lock has the section with this name, which is a template."""
        try:
            return self._project.has_section(self.text(template))
        except InvalidError:
            return False

    def names(self, only: tuple[str, ...] | str) -> set[str]:
        """Names of distributions: these, or those of the parameter in `params.NAME`."""
        return set(self.params[only.removeprefix("params.")] if isinstance(only, str) else only)


def make_use(project: Project, name: str, given: Mapping[str, Any], taken: set[str], where: str) -> Use:
    """A use of layer `name`: given parameters checked, the others by default.

    taken: the ids in use; the new id is added. Raises UsageError or InvalidError.
    """
    source = project.layer(name)
    params = parameters(source.definition, given, where)
    suffix = params.get("group") or params.get("name")
    identity = f"{name}-{suffix}" if suffix else name
    in_images = bool(source.definition.families)
    if (in_images and identity in RESERVED) or not re.fullmatch(IDENTITY, identity):
        raise InvalidError(
            f"{identity!r} cannot be the name of a layer's build stage", id="layer-id-invalid", where=where
        )
    if identity in taken:
        raise InvalidError(f"layer {identity!r} is used twice", id="layer-used-twice", where=where)
    taken.add(identity)
    return Use(identity, source, params, where)


def parameters(layer: Layer, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The parameters of one use: given ones checked, the others by default. Raises UsageError."""
    values = check_given(layer, given)
    for name, parameter in layer.parameters.items():
        if name in values:
            continue
        if parameter.default is None:
            raise InvalidError(
                f"layer {layer.name} needs the parameter {name!r}",
                id="parameter-missing",
                where=where,
                cause=parameter.help,
                next=f"builder show {layer.name}",
            )
        values[name] = parameter.value(parameter.default)
    return {name: values[name] for name in layer.parameters}


def check_given(layer: Layer, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are given to parameters of a layer, as the layer takes them. Raises UsageError."""
    values = {}
    for name, value in given.items():
        parameter = layer.parameters.get(name)
        if parameter is None:
            raise UsageError(
                f"layer {layer.name} has no parameter {name!r}",
                id="parameter-unknown",
                cause=f"its parameters: {', '.join(layer.parameters) or 'none'}",
                next=f"builder show {layer.name}",
            )
        try:
            values[name] = parameter.value(value)
        except ValueError as error:
            raise UsageError(
                f"{layer.name}.{name}: {value!r} is not a valid value: {error}",
                id="parameter-value-invalid",
                cause=parameter.help,
                next=f"builder show {layer.name}",
            ) from None
    return values


def check_written(layer: Layer, given: Mapping[str, Any], files: Callable[[], Sequence[Path]]) -> None:
    """Check the values that a file gives to parameters of a layer. Raises InvalidError with file and line.

    files: those that may have the value, the one that wins first.
    """
    for name, value in given.items():
        try:
            check_given(layer, {name: value})
        except UsageError as error:
            paths: Sequence[Path] = ()
            # A recipe of a test, or of a bundle, has no file.
            with contextlib.suppress(InvalidError):
                paths = files()
            # A key of YAML, or of TOML with dots.
            places = [place_of(paths, word) for word in (name, f"set.{layer.name}.{name}")]
            where = next((place for place in places if re.search(r":\d+$", place)), places[0])
            raise InvalidError(
                error.what, id="layer-parameter-invalid", where=where, cause=error.cause, next=error.next
            ) from None


def check_applies(use: Use, scope: Scope, base: Base) -> None:
    """Raises UsageError when the layer does not apply to this base, by its families or its `needs`."""
    layer = use.source.definition
    if base.family not in layer.families:
        raise UsageError(
            f"layer {layer.name} does not fit base {base.name}",
            id="layer-family-wrong",
            where=use.where,
            cause=f"it is for bases of family {', '.join(layer.families) or 'none'}",
            next="name another base with --base, or leave the layer out of the recipe; builder list bases",
        )
    for requirement in layer.needs:
        if not scope.holds(requirement.when):
            raise UsageError(
                f"layer {layer.name} does not apply to base {base.name}",
                id="layer-needs-unmet",
                where=use.where,
                cause=requirement.why,
                next="name another base with --base, or leave the layer out of the recipe; builder list bases",
            )
