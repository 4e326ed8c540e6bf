"""`builder add`: a layer of wheels, its request and its lock, in one go."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.atomic import write_file
from builder.cli.output import counted, say, size
from builder.cli.recipe.new import check_new_name
from builder.errors import PinError, UsageError
from builder.lock.findings import LockReport
from builder.lock.freshness import REQUESTS
from builder.lock.refresh import refresh
from builder.lock.requesting import with_wheels
from builder.lock.selection import LockContext
from builder.model.base import Base
from builder.model.lock import WheelLock, WheelRequest
from builder.plan.use import Scope, make_use
from builder.project import Project, closest

SECTION = "{name}-{{{{ base.vllm }}}}-{{{{ base.python_tag }}}}"

LAYER = """\
name: {name}
title: {title}
producer: files
families: [{family}]
needs:
  - when: {{lock: "{section}"}}
    why: its wheels are not locked for this base; builder add wheels locks them
inputs:
  wheels:
    - {{lock: "{section}"}}
checks:
{checks}"""


def add(
    kind: Annotated[str, typer.Argument(help="wheels.")],
    name: Annotated[str, typer.Argument(metavar="LAYER", help="Name of the layer.")],
    requirements: Annotated[
        list[str], typer.Argument(metavar="REQUIREMENT...", help="Distributions, as for pip: 'librosa>=0.10'.")
    ],
    base: Annotated[str, typer.Option("--base", help="The base that the wheels are for.")] = "hermetic-0.23",
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", help="A layer of the same recipes, whose wheels are left out too. May be repeated."),
    ] = None,
) -> None:
    """Write a layer of wheels, its request and its lock into the current folder; resolves with uv.

    Distributions that the base has stay as they are and are left out. Repeat the command for another base.

    Example: builder add wheels librosa 'librosa>=0.10' --base hermetic --beside audio
    """
    if kind != "wheels":
        raise UsageError(f"cannot add {kind!r}", id="add-kind-unknown", cause="only wheels")
    check_new_name(name)
    names = [_distribution(text) for text in requirements]
    project = Project()
    chosen = _base(project, base)
    sections = _installed(project, chosen)
    sections += tuple(lock for other in beside or () for lock in _locks(project, chosen, other))
    folder = Path(os.environ.get("BUILDER_PROJECT") or ".")
    layer = folder / "dockerfiles/layers" / name / "layer.yaml"
    if name in project.layer_names() and not layer.exists():
        raise UsageError(f"builder has a layer {name} already", id="add-layer-bundled", next="choose another name")
    section = f"{name}-{chosen.vllm}-cp{str(chosen.python).replace('.', '')}"
    like = project.section(sections[0])
    assert isinstance(like, WheelLock)
    request = WheelRequest(
        requirements=tuple(requirements), without=sections, python=like.request.python, platform=like.request.platform
    )
    text = LAYER.format(
        name=name,
        title=f"{', '.join(names)} and what they need" if len(names) > 1 else f"{names[0]} and what it needs",
        family=chosen.family,
        section=SECTION.format(name=name),
        checks="".join(
            f"  - {{id: {name}-{each}, tier: static, kind: distribution, args: {{name: {each}}}}}\n" for each in names
        ),
    )
    if layer.exists() and layer.read_text("utf-8") != text:
        raise UsageError(
            f"{layer} exists already, with other contents",
            id="add-layer-exists",
            next="remove it, or choose another name",
        )
    requests = folder / "recipes/locks" / REQUESTS
    before = requests.read_text("utf-8") if requests.exists() else ""
    with _undone_after_an_error(requests, layer):
        for path, content in ((requests, with_wheels(before, section, request)), (layer, text)):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content.encode())
        Project().layer(name)
        refresh(LockContext(Project(), [section], writing=True, update=True, say=say), LockReport())
    locked = Project().section(section).entries
    for written in (layer, requests, requests.with_name(f"{section}.json")):
        print(written)
    say(f"{counted(len(locked), 'wheel')}, {size(sum(item.size for item in locked))}, on {chosen.name}")
    say(f"next: builder new recipe NAME --extends RECIPE --base {chosen.name} --layer {name}")


def _distribution(text: str) -> str:
    try:
        return str(canonicalize_name(Requirement(text).name))
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


def _locks(project: Project, base: Base, layer: str) -> list[str]:
    """The sections of a layer's wheels on this base. Raises UsageError, PinError."""
    use = make_use(project, layer, {}, set(), f"--beside {layer}")
    scope = Scope(project, use, base, None)
    names = [scope.text(group.lock) for group in use.source.definition.inputs.wheels if scope.holds(group.when)]
    if not names:
        raise UsageError(f"layer {layer} has no wheels", id="add-beside-without-wheels", next="leave out --beside")
    for name in names:
        project.section(name)
    return names


@contextlib.contextmanager
def _undone_after_an_error(*paths: Path) -> Iterator[None]:
    """Put these files back as they were when the block fails."""
    before = {path: path.read_bytes() if path.exists() else None for path in paths}
    try:
        yield
    except BaseException as error:
        for path, content in before.items():
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
