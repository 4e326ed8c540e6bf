"""One use of a layer, resolved: parameters checked, inputs found in the lock, texts rendered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.errors import InvalidError, PinError, UsageError
from builder.model.base import Base
from builder.model.inputs import Input, from_deb, from_source, from_wheel
from builder.model.layer import Layer, Parameter, PlacedFile, WheelGroup
from builder.model.lock import DebLock, SourceLock, WheelLock
from builder.model.plan import PlannedLayer, Variable
from builder.plan.template import Quoted, evaluate, is_line, render_dockerfile, render_text, sh
from builder.project import LayerSource, Project
from builder.unpack.entry import UnpackError, clean_path
from builder.versions import python_version

IDENTITY = r"[a-z][a-z0-9._-]{0,127}"
"""Ids of layers are names of build stages; an engine takes a stage's name for a number when it begins like one."""

RESERVED = ("scratch", "context", "image", "toolchain")


@dataclass(frozen=True)
class Use:
    """A layer with its parameters, before anything is looked up."""

    id: str
    source: LayerSource
    params: dict[str, Any]
    where: str


class Scope:
    """The names that a layer's templates and conditions see."""

    def __init__(self, project: Project, use: Use, base: Base | None, recipe: Any) -> None:
        self.where = str(use.source.folder / "layer.yaml")
        self.values: dict[str, Any] = {
            "params": use.params,
            "base": base,
            "recipe": recipe,
            "id": Quoted(use.id),
            "has_lock": project.has_section,
            "version": python_version,
        }

    def text(self, template: str) -> str:
        text = render_text(template, self.values, self.where)
        if not is_line(text):
            raise InvalidError(f"{template!r} gives {text!r}, which is not one line", where=self.where)
        return text

    def holds(self, condition: str | None) -> bool:
        return condition is None or bool(evaluate(condition, self.values, self.where))


def make_use(project: Project, name: str, given: Mapping[str, Any], taken: set[str], where: str) -> Use:
    """A use of layer `name`: defaults filled in, every value checked. `taken`: ids in use; the new one is added."""
    source = project.layer(name)
    params = parameters(source.definition, given, where)
    suffix = params.get("group")
    identity = f"{name}-{suffix}" if suffix else name
    in_images = bool(source.definition.families)
    if (in_images and identity in RESERVED) or not re.fullmatch(IDENTITY, identity):
        raise InvalidError(f"{identity!r} cannot be the name of a layer's build stage", where=where)
    if identity in taken:
        raise InvalidError(f"layer {identity!r} stands twice", where=where)
    taken.add(identity)
    return Use(identity, source, params, where)


def parameters(layer: Layer, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The parameters of one use: given ones checked, the others by default. Raises UsageError."""
    unknown = sorted(set(given) - set(layer.parameters))
    if unknown:
        known = ", ".join(layer.parameters) or "none"
        raise UsageError(
            f"layer {layer.name} has no parameter {unknown[0]!r}", where=where, cause=f"its parameters: {known}"
        )
    values = {}
    for name, parameter in layer.parameters.items():
        if name in given:
            values[name] = _value(f"{layer.name}.{name}", parameter, given[name], where)
        elif parameter.default is None:
            raise UsageError(f"layer {layer.name} needs the parameter {name!r}", where=where, cause=parameter.help)
        else:
            values[name] = parameter.value(parameter.default)
    return values


def _value(label: str, parameter: Parameter, given: object, where: str) -> object:
    try:
        return parameter.value(given)
    except ValueError as error:
        raise UsageError(
            f"{label}: {given!r} is not a usable value: {error}", where=where, cause=parameter.help
        ) from None


def plan_layer(project: Project, use: Use, base: Base | None, recipe: Any, siblings: Sequence[Use]) -> PlannedLayer:
    """One planned layer, its key still empty. Raises UsageError when the layer does not apply to this base."""
    layer = use.source.definition
    scope = Scope(project, use, base, recipe)
    if base is not None:
        _applies(layer, scope, base, use.where)
    debs, wheel_items, wheels, sources = _locked(project, scope, use, siblings)
    files = [_placed(item, scope, use.source) for item in layer.files if scope.holds(item.when)]
    inputs = one_per_file([*debs, *wheels, *sources])
    spec = stages = None
    if layer.producer == "files":
        site = base.site.strip("/") if base is not None and base.site else ""
        spec = {
            "root": layer.root,
            "debs": [{"file": item.file, "sha256": item.sha256} for item in debs],
            "wheels": wheel_items,
            "scheme": _scheme(base) if site else None,
            "files": files,
            "shared": sorted(f"{site}/{name}" for name in use.params.get("shared", ())),
        }
    context: dict[str, bytes] = {}
    if layer.producer == "dockerfile":
        by_name = {item.name.partition(" ")[0]: item.file for item in [*wheels, *sources]}
        values = {**scope.values, "source": by_name.__getitem__, "place_files": lambda root: _place(files, root)}
        template = use.source.folder / "Dockerfile.j2"
        if "Dockerfile.j2" not in use.source.files:
            raise InvalidError("a dockerfile layer needs a Dockerfile.j2", where=str(template))
        try:
            text = use.source.files["Dockerfile.j2"].decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidError("not UTF-8 text", where=str(template)) from None
        stages = render_dockerfile(text, values, str(template))
        context = {
            f"layers/{layer.name}/{path}": data for path, data in use.source.files.items() if path != "Dockerfile.j2"
        }
    env = tuple(
        Variable(item.name, scope.text(item.value), item.mode == "prepend", use.id)
        for item in layer.env
        if scope.holds(item.when)
    )
    return PlannedLayer(
        id=use.id,
        layer=layer.name,
        title=layer.title,
        producer=layer.producer,
        root=layer.root,
        key="",
        params={name: list(value) if isinstance(value, tuple) else value for name, value in use.params.items()},
        inputs=inputs,
        spec=spec,
        stages=stages or "",
        context=context,
        toolchain=layer.inputs.toolchain,
        # A hermetic base is no image that could be read: its files are inputs.
        reads_base=layer.reads_base and base is not None and base.pin is not None,
        env=env,
        labels=tuple((item.name, scope.text(item.value)) for item in layer.labels if scope.holds(item.when)),
        replaces=tuple(text for item in layer.replaces if (text := scope.text(item))),
        checks=tuple(
            item.model_copy(
                update={"args": {k: scope.text(v) if isinstance(v, str) else v for k, v in item.args.items()}}
            )
            for item in layer.checks
            if scope.holds(item.when)
        ),
    )


def locked_inputs(project: Project, use: Use, base: Base | None, recipe: Any, siblings: Sequence[Use]) -> list[Input]:
    """What a use of a layer takes from the lock. Raises as `plan_layer` does, PinError for what the lock lacks."""
    scope = Scope(project, use, base, recipe)
    if base is not None:
        _applies(use.source.definition, scope, base, use.where)
    debs, _, wheels, sources = _locked(project, scope, use, siblings)
    return [*debs, *wheels, *sources]


def _locked(
    project: Project, scope: Scope, use: Use, siblings: Sequence[Use]
) -> tuple[list[Input], list[dict[str, str]], list[Input], list[Input]]:
    layer = use.source.definition
    debs = _debs(project, layer, scope)
    wheel_items, wheels = _wheels(project, layer, scope, use, siblings)
    sources = [_source(project, scope.text(text), use.where) for text in layer.inputs.sources]
    return debs, wheel_items, wheels, sources


def one_per_file(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """The inputs, each once. Raises PinError for two different ones of one file name: a build context holds one."""
    found: dict[str, Input] = {}
    for item in inputs:
        if found.setdefault(item.file, item).digest != item.digest:
            raise PinError(
                f"the lock has two different files {item.file}",
                where="recipes/locks",
                cause=f"{found[item.file].digest} and {item.digest}",
                next="lock both sections anew: builder lock --update",
            )
    return tuple(found.values())


def _applies(layer: Layer, scope: Scope, base: Base, where: str) -> None:
    if base.family not in layer.families:
        raise UsageError(
            f"layer {layer.name} does not fit base {base.name}",
            where=where,
            cause=f"it is for bases of family {', '.join(layer.families) or 'none'}",
        )
    for requirement in layer.needs:
        if not scope.holds(requirement.when):
            raise UsageError(
                f"layer {layer.name} does not apply to base {base.name}", where=where, cause=requirement.why
            )


def _scheme(base: Base | None) -> dict[str, str]:
    assert base is not None and base.site is not None
    interpreter = "/usr/bin/python3" if base.family == "hermetic" else f"/usr/bin/python{base.python}"
    return {"site": base.site.strip("/"), "interpreter": interpreter}


def _debs(project: Project, layer: Layer, scope: Scope) -> list[Input]:
    if layer.inputs.debs is None:
        return []
    section = project.section(scope.text(layer.inputs.debs))
    if not isinstance(section, DebLock):
        raise PinError(f"{section.name} does not hold Debian packages", where=scope.where)
    return [from_deb(item, section.locked) for item in section.packages]


def wheel_section(project: Project, name: str, where: str) -> WheelLock:
    """A lock section that must hold wheels."""
    section = project.section(name)
    if not isinstance(section, WheelLock):
        raise PinError(f"{name} does not hold wheels", where=where)
    return section


def _wheels(
    project: Project, layer: Layer, scope: Scope, use: Use, siblings: Sequence[Use]
) -> tuple[list[dict[str, str]], list[Input]]:
    items: list[dict[str, str]] = []
    refs: list[Input] = []
    for group in layer.inputs.wheels:
        if not scope.holds(group.when):
            continue
        section = wheel_section(project, scope.text(group.lock), scope.where)
        chosen = _chosen(section, group, scope, use, siblings)
        for wheel in section.wheels:
            if wheel.name in chosen:
                refs.append(from_wheel(wheel))
                item = {"file": wheel.file, "sha256": wheel.sha256}
                if group.strip is not None:
                    item |= {"strip": group.strip, "into": scope.text(group.into or "")}
                items.append(item)
    return items, refs


def _chosen(section: WheelLock, group: WheelGroup, scope: Scope, use: Use, siblings: Sequence[Use]) -> set[str]:
    names = {wheel.name for wheel in section.wheels}
    if group.only is None:
        return names
    only = set(evaluate(group.only, scope.values, scope.where))
    if missing := sorted(only - names):
        what = f"{missing[0]} is not in the lock section {section.name}"
        raise PinError(what, where=use.where, next=f"builder lock --update {section.name}")
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
        raise PinError("the lock section 'sources' does not hold sources", where=where)
    for item in section.sources:
        if (item.name, item.version) == (name, wanted):
            return from_source(item, section.locked)
    known = ", ".join(item.version for item in section.sources if item.name == name)
    raise PinError(
        f"the lock has no source {name} {wanted}",
        where=where,
        cause=f"it has {known or 'none of that name'}",
        next=f"ask for it under sources in recipes/locks/requests.yaml, then: builder lock {name}",
    )


def _placed(item: PlacedFile, scope: Scope, source: LayerSource) -> dict[str, Any]:
    try:
        made: dict[str, Any] = {"path": clean_path(scope.text(item.path), "files")}
    except UnpackError as error:
        raise InvalidError(str(error), where=scope.where) from None
    if item.link is not None:
        made["link"] = scope.text(item.link)
    elif item.directory:
        made["directory"] = True
    elif item.source is not None:
        if item.source not in source.files:
            raise InvalidError(f"{item.source} is not in the layer's folder", where=scope.where)
        try:
            made["content"] = source.files[item.source].decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidError(f"{item.source} is not UTF-8 text", where=scope.where) from None
    else:
        made["content"] = item.content
    if item.mode is not None:
        made["mode"] = item.mode
    return made


def _place(files: Sequence[Mapping[str, Any]], root: str) -> Quoted:
    """A RUN instruction that makes the layer's `files` below `root`; empty when there are none."""
    commands = []
    for item in files:
        path = sh(f"{root}/{item['path']}")
        folder = sh(f"{root}/{item['path']}".rpartition("/")[0])
        commands.append(f"mkdir -p {path if item.get('directory') else folder}")
        if item.get("link") is not None:
            commands.append(f"ln -s {sh(item['link'])} {path}")
        elif not item.get("directory"):
            commands.append(f"printf {sh(_format(item['content']))} > {path}")
            commands.append(f"chmod {item.get('mode', '0644')} {path}")
    return Quoted("RUN umask 022 && " + " \\\n    && ".join(commands) + "\n" if commands else "")


def _format(text: str) -> str:
    """A format for printf that prints exactly this text."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%")
    escaped = "".join(c if is_line(c) else f"\\{ord(c):03o}" for c in escaped)
    # A format that begins with a dash would be an option.
    return f"\\055{escaped[1:]}" if escaped.startswith("-") else escaped
