"""`builder add`: a layer of wheels or Debian packages, its request and its lock, in one go."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.atomic import write_file
from builder.cli.output import counted, say, size
from builder.cli.recipe.new import check_new_name
from builder.cli.recipe.schema import with_schema, write_schema
from builder.errors import PinError, UsageError
from builder.lock.findings import LockReport
from builder.lock.freshness import REQUESTS, entries
from builder.lock.refresh import refresh
from builder.lock.requesting import with_request
from builder.lock.selection import LockContext, alone
from builder.model.base import Base
from builder.model.lock import DebLock, DebRequest, WheelLock, WheelRequest
from builder.model.textfile import read_own
from builder.plan.use import Scope, make_use
from builder.project import Project
from builder.regular import read_regular
from builder.text import closest
from builder.unpack.root import STATUS_D

SECTION = "{name}-{{{{ base.vllm }}}}-{{{{ base.python_tag }}}}"

LAYER = """\
name: {name}
title: {title}
producer: files
families: [{family}]
needs:
  - when: {{lock: "{section}"}}
    why: its {what} are not locked for this base; builder add {kind} locks them
inputs:
{inputs}checks:
{checks}"""

_DEB = re.compile(r"([a-z0-9][a-z0-9.+-]+)(?:>=((?:[0-9]+:)?[0-9][A-Za-z0-9.+:~-]*))?")
_LARGEST = 32 << 20


@dataclass(frozen=True)
class _Addition:
    """A layer to write. section: its name as in the layer, which may be a template, and as in the lock."""

    template: str
    section: str
    request: DebRequest | WheelRequest
    inputs: str
    checks: str


def add(
    kind: Annotated[str, typer.Argument(help="Python distributions, or Debian packages.")],
    name: Annotated[str, typer.Argument(metavar="LAYER", help="Name of the layer.")],
    requirements: Annotated[
        list[str],
        typer.Argument(metavar="PACKAGE", help="As for pip, 'librosa>=0.10'; of Debian, a name or 'jq>=1.7'."),
    ],
    base: Annotated[str, typer.Option("--base", help="The base that they are for.")] = "hermetic-0.23",
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", help="A layer of the same recipes: what it brings is left out too. May be repeated."),
    ] = None,
) -> None:
    """Write a layer of wheels or Debian packages, its request and its lock.

    They go into the current folder. Resolves with uv or apt. What the base has stays as it is and is left out. Repeat
    the command for another base.
    """
    if kind not in ("wheels", "debs"):
        raise UsageError(f"cannot add {kind!r}", id="add-kind-unknown", cause="one of wheels, debs")
    check_new_name(name, layer=True)
    names = [_distribution(text) if kind == "wheels" else _package(text) for text in requirements]
    project = Project()
    chosen = _base(project, base)
    folder = Path(os.environ.get("BUILDER_PROJECT") or ".")
    layer = folder / "dockerfiles/layers" / name / "layer.yaml"
    if name in project.layer_names() and not layer.exists():
        raise UsageError(f"builder has a layer {name} already", id="add-layer-bundled", next="choose another name")
    others = [lock for other in beside or () for lock in _locks(project, chosen, kind, other)]
    if kind == "wheels":
        made = _wheels(project, chosen, name, names, requirements, (*_installed(project, chosen), *others))
    else:
        made = _debs(project, chosen, name, names, requirements, others)
    text = LAYER.format(
        name=name,
        title=f"{', '.join(names)} and what they need" if len(names) > 1 else f"{names[0]} and what it needs",
        family=chosen.family,
        section=made.template,
        kind=kind,
        what="wheels" if kind == "wheels" else "packages",
        inputs=made.inputs,
        checks=made.checks,
    )
    text = with_schema("layer", folder, layer, text)
    with alone(folder, say):
        if read_own(layer) not in (None, text):
            raise UsageError(
                f"{layer} exists already, with other contents",
                id="add-layer-exists",
                next="remove it, or choose another name",
            )
        _write(folder, layer, text, made)
    locked = Project().section(made.section).entries
    what = "wheel" if kind == "wheels" else "package"
    say(f"{counted(len(locked), what)}, {size(sum(item.size for item in locked))}, on {chosen.name}")
    say(f"next: builder new recipe NAME --extends RECIPE --base {chosen.name} --layer {name}")


def _write(folder: Path, layer: Path, text: str, made: _Addition) -> None:
    """Write layer and request, resolve the lock, and print the files. Nothing stays written after an error."""
    requests = folder / "recipes/locks" / REQUESTS
    before = read_own(requests)
    before = before if before is not None else with_schema("requests", folder, requests, "")
    contents = {requests: with_request(before, made.section, made.request).encode(), layer: text.encode()}
    with _undone_after_an_error(contents):
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        Project().layer(layer.parent.name)
        refresh(LockContext(Project(), [made.section], writing=True, update=True, say=say), LockReport())
    for kind in ("layer", "requests"):
        write_schema(kind, folder)
    for written in (layer, requests, requests.with_name(f"{made.section}.json")):
        print(written)


def _wheels(
    project: Project, base: Base, name: str, names: list[str], requirements: list[str], sections: tuple[str, ...]
) -> _Addition:
    like = project.section(sections[0])
    assert isinstance(like, WheelLock)
    request = WheelRequest(
        requirements=tuple(requirements), without=sections, python=like.request.python, platform=like.request.platform
    )
    template = SECTION.format(name=name)
    section = f"{name}-{base.vllm}-cp{str(base.python).replace('.', '')}"
    checks = (
        f"  - {{id: {name}-{each}, tier: static, kind: distribution, args: {{name: {each}}}}}\n" for each in names
    )
    inputs = f'  wheels:\n    - {{lock: "{template}"}}\n'
    return _Addition(template, section, request, inputs, "".join(checks))


def _debs(
    project: Project, base: Base, name: str, names: list[str], packages: list[str], others: list[str]
) -> _Addition:
    """Raises UsageError for a base without a root of Debian packages, and for packages that are there already."""
    root = _root(project, base)
    sections = (root, *map(project.section, others))
    have = {deb: (section.name, item.version) for section in sections for deb, item in entries(section).items()}
    if there := next((each for each in names if each in have), None):
        section, version = have[there]
        what = f"base {base.name}" if section == root.name else f"section {section}"
        raise UsageError(f"{what} has {there} {version} already", id="add-deb-there", next=f"leave out {there}")
    request = DebRequest(
        suite=root.request.suite,
        architecture=root.request.architecture,
        packages=tuple(map(_plain, packages)),
        without=(root.name, *others),
    )
    section = f"{name}-{root.name}"
    checks = (
        f"  - {{id: {name}-{each}, tier: static, kind: file, args: {{path: /{STATUS_D}/{each}}}}}\n" for each in names
    )
    return _Addition(section, section, request, f"  debs: {section}\n", "".join(checks))


def _root(project: Project, base: Base) -> DebLock:
    """The packages that the base's root has. Raises UsageError when they are not known."""
    for each in base.layers:
        use = make_use(project, each.layer, each.set, set(), f"base {base.name}")
        debs = use.source.definition.inputs.debs
        if use.source.definition.root and debs is not None:
            section = project.section(Scope(project, use, base, None).text(debs))
            if isinstance(section, DebLock):
                return section
    raise UsageError(
        f"the Debian packages of base {base.name} are not known",
        id="base-debs-unknown",
        cause="its image comes from a registry",
        next="choose a hermetic base: builder list bases",
    )


def _plain(text: str) -> str:
    """A name and its version, without spaces around the sign: as in `strace >= 6`."""
    return re.sub(r"\s*>=\s*", ">=", text.strip())


def _package(text: str) -> str:
    found = _DEB.fullmatch(_plain(text))
    if not found:
        raise UsageError(
            f"{text!r} is not a Debian package",
            id="package-name-invalid",
            cause="a name is small letters, digits and -+., and may have an oldest version",
            next="builder add debs tools jq 'strace>=6'",
        )
    return found[1]


def _distribution(text: str) -> str:
    try:
        parsed = Requirement(text)
        if parsed.url or set("@/$\\") & set(text):
            raise InvalidRequirement("Distributions come from the package index, not from an address")
        return str(canonicalize_name(parsed.name))
    except InvalidRequirement as error:
        raise UsageError(
            f"{text!r} is not a requirement", id="requirement-invalid", cause=str(error).splitlines()[0]
        ) from None


def _base(project: Project, name: str) -> Base:
    found = project.find_bases(name)
    if not found:
        near = closest(name, project.base_names())
        raise UsageError(f"there is no base {name!r}", id="name-unknown", cause=near, next="builder list bases")
    return found[0]


def _installed(project: Project, base: Base) -> tuple[str, ...]:
    """The sections of the wheels that the base has. Raises UsageError when they are not known."""
    used = dict.fromkeys(str(use.set["lock"]) for use in base.layers if use.layer == "wheels" and "lock" in use.set)
    names = [*used] or [f"vllm-{base.vllm}-cp{str(base.python).replace('.', '')}"]
    if not all(project.has_section(name) for name in names):
        locked = [each.name for each in project.bases.values() if each.family == "hermetic"]
        raise UsageError(
            f"the wheels of base {base.name} are not known",
            id="base-wheels-unknown",
            cause=f"the lock has no section {names[0]}",
            next=f"choose a base whose wheels are locked: {', '.join(locked)}",
        )
    return tuple(names)


def _locks(project: Project, base: Base, kind: str, layer: str) -> list[str]:
    """The sections of a layer's wheels or Debian packages on this base. Raises UsageError, PinError."""
    use = make_use(project, layer, {}, set(), f"--beside {layer}")
    scope, inputs = Scope(project, use, base, None), use.source.definition.inputs
    names = [scope.text(group.lock) for group in inputs.wheels if scope.holds(group.when)]
    if kind == "debs":
        names = [scope.text(inputs.debs)] if inputs.debs is not None else []
    if not names:
        raise UsageError(f"layer {layer} has no {kind}", id="add-beside-without-wheels", next="leave out --beside")
    for name in names:
        project.section(name)
    return names


@contextlib.contextmanager
def _undone_after_an_error(contents: Mapping[Path, bytes]) -> Iterator[None]:
    """Put files back as they were when the block fails, but not one that has other contents than the block writes."""
    before = {path: read_regular(path, _LARGEST) if path.exists() else None for path in contents}
    try:
        yield
    except BaseException as error:
        for path, content in before.items():
            if not path.exists() or read_regular(path, _LARGEST) != contents[path]:
                continue
            if content is not None:
                write_file(path, content)
            else:
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    for folder in list(path.parents)[:3]:
                        folder.rmdir()
        if isinstance(error, PinError):
            # Its advice is about the file that is gone again.
            raise error.replaced(next="correct the requirements, and repeat the command") from error
        raise
