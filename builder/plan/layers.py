"""Plans a use of a layer: one function for each producer (files, dockerfile, config)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from builder.errors import InvalidError
from builder.model.base import Base
from builder.model.check import Check
from builder.model.layer import LayerCheck
from builder.model.plan import PlannedLayer, Variable
from builder.model.textfile import decode
from builder.plan.locked import Locked, LockedPatch, find_locked, one_per_file
from builder.plan.placed import placed_files, run_instruction
from builder.plan.template import render_dockerfile
from builder.plan.use import Scope, Use, check_applies
from builder.project import Project

TEMPLATE = "Dockerfile.j2"


def plan_layer(project: Project, use: Use, base: Base | None, recipe: Any, siblings: Sequence[Use]) -> PlannedLayer:
    """A use of a layer as a planned layer without its key. siblings: all uses of the image.

    Raises UsageError when the layer does not apply to this base, InvalidError, or PinError for what the lock does not
    have.
    """
    scope = Scope(project, use, base, recipe)
    if base is not None:
        check_applies(use, scope, base)
    locked = find_locked(project, use, scope, siblings)
    files = placed_files(use.source.definition.files, scope, use.source)
    planned = _config(use, scope, base, locked)
    if planned.producer == "files":
        return replace(planned, spec=_spec(use, base, locked, files))
    if planned.producer == "dockerfile":
        return replace(planned, stages=_stages(use, scope, locked, files), context=_context(use))
    return planned


def _config(use: Use, scope: Scope, base: Base | None, locked: Locked) -> PlannedLayer:
    """The parts that layers of all producers have; a `config` layer has no others."""
    layer = use.source.definition
    return PlannedLayer(
        id=use.id,
        layer=layer.name,
        title=layer.title,
        producer=layer.producer,
        root=layer.root,
        key="",
        params={name: list(value) if isinstance(value, tuple) else value for name, value in use.params.items()},
        inputs=one_per_file(locked.inputs),
        toolchain=layer.inputs.toolchain,
        # A hermetic base has no image to read from: its files are inputs.
        reads_base=layer.reads_base and base is not None and base.pin is not None,
        env=tuple(
            Variable(item.name, scope.text(item.value), item.mode == "prepend", use.id)
            for item in layer.env
            if scope.holds(item.when)
        ),
        labels=tuple((item.name, scope.text(item.value)) for item in layer.labels if scope.holds(item.when)),
        replaces=(
            *(scope.text(item.path) for item in layer.replacements if scope.holds(item.when)),
            *(f"{scope.base['site']}/{path}" for patch in locked.patches for path in _patched(patch)),
        ),
        checks=tuple(_check(item, use, scope) for item in layer.checks if scope.holds(item.when)),
    )


def _check(check: LayerCheck, use: Use, scope: Scope) -> Check:
    # A layer with a name or group may be used more than once, and each use has checks of its own.
    suffix = use.id.removeprefix(use.source.definition.name)
    args = {name: scope.text(value) if isinstance(value, str) else value for name, value in check.args.items()}
    return Check(id=f"{check.id}{suffix}"[:64], tier=check.tier, kind=check.kind, args=args)


def _patched(patch: LockedPatch) -> tuple[str, ...]:
    return (*patch.files, f"{patch.info}/RECORD")


def _spec(use: Use, base: Base | None, locked: Locked, files: list[dict[str, Any]]) -> dict[str, Any]:
    """The description of a `files` layer, as `builder.unpack.tree.entries` reads it."""
    site = base.site.strip("/") if base is not None and base.site else ""
    wheels = []
    for wheel in locked.wheels:
        item = {"file": wheel.input.file, "sha256": wheel.input.sha256}
        if wheel.strip is not None:
            item |= {"strip": wheel.strip, "into": wheel.into or ""}
        wheels.append(item)
    patches = [
        {
            "wheel": {"file": patch.wheel.file, "sha256": patch.wheel.sha256},
            "source": {"file": patch.source.file, "sha256": patch.source.sha256},
            "folder": patch.folder,
            "files": sorted(patch.files),
        }
        for patch in locked.patches
    ]
    return {
        "root": use.source.definition.root,
        "debs": [{"file": item.file, "sha256": item.sha256} for item in locked.debs],
        "wheels": wheels,
        "scheme": {"site": site, "interpreter": _interpreter(base)} if base is not None and site else None,
        "files": files,
        "shared": sorted(f"{site}/{name}" for name in use.params.get("shared", ())),
        # Without patches the key is absent, as it was before there were any: the keys of layers hold.
        **({"patches": patches} if patches else {}),
    }


def _interpreter(base: Base) -> str:
    return "/usr/bin/python3" if base.family == "hermetic" else f"/usr/bin/python{base.python}"


def _stages(use: Use, scope: Scope, locked: Locked, files: list[dict[str, Any]]) -> str:
    """The build stages of a `dockerfile` layer: its template, rendered."""
    template = use.source.folder / TEMPLATE
    if TEMPLATE not in use.source.files:
        raise InvalidError(f"a dockerfile layer needs a {TEMPLATE}", id="layer-template-missing", where=str(template))
    text = decode(use.source.files[TEMPLATE], str(template))
    inputs = [*(wheel.input for wheel in locked.wheels), *locked.packages, *locked.sources]
    file_names: Mapping[str, str] = {item.package: item.file for item in inputs}
    values = {
        **scope.values,
        "source": file_names.__getitem__,
        "place_files": partial(run_instruction, files),
    }
    return render_dockerfile(text, values, str(template))


def _context(use: Use) -> dict[str, bytes]:
    """The other files of a `dockerfile` layer's folder, by path in the build context."""
    folder = f"layers/{use.source.definition.name}"
    return {f"{folder}/{path}": data for path, data in use.source.files.items() if path != TEMPLATE}
