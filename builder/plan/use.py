"""A use of a layer in a recipe or base: its parameters checked, and the names that its templates see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from builder.errors import InvalidError, UsageError
from builder.model.base import Base
from builder.model.condition import Condition, holds
from builder.model.layer import Layer, Parameter
from builder.model.recipe import Recipe
from builder.plan.template import Quoted, is_line, render_text
from builder.project import LayerSource, Project

IDENTITY = r"[a-z][a-z0-9._-]{0,127}"
"""Ids of layers are names of build stages; an engine reads a name that begins with a digit as a stage's number."""

RESERVED = ("scratch", "context", "image", "toolchain")


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
        """The template with its values, which must be one line. Raises InvalidError."""
        text = render_text(template, self.values, self.where)
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
    suffix = params.get("group")
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
    unknown = sorted(set(given) - set(layer.parameters))
    if unknown:
        known = ", ".join(layer.parameters) or "none"
        raise UsageError(
            f"layer {layer.name} has no parameter {unknown[0]!r}",
            id="parameter-unknown",
            where=where,
            cause=f"its parameters: {known}",
        )
    values = {}
    for name, parameter in layer.parameters.items():
        if name in given:
            values[name] = _value(f"{layer.name}.{name}", parameter, given[name], where)
        elif parameter.default is None:
            raise UsageError(
                f"layer {layer.name} needs the parameter {name!r}",
                id="parameter-missing",
                where=where,
                cause=parameter.help,
            )
        else:
            values[name] = parameter.value(parameter.default)
    return values


def _value(label: str, parameter: Parameter, given: object, where: str) -> object:
    try:
        return parameter.value(given)
    except ValueError as error:
        raise UsageError(
            f"{label}: {given!r} is not a valid value: {error}",
            id="parameter-value-invalid",
            where=where,
            cause=parameter.help,
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
        )
    for requirement in layer.needs:
        if not scope.holds(requirement.when):
            raise UsageError(
                f"layer {layer.name} does not apply to base {base.name}",
                id="layer-needs-unmet",
                where=use.where,
                cause=requirement.why,
            )
