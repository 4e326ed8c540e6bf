"""A hermetic base from its `stack`: facts from its lock sections, and its wheels in layers of like size. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from builder.errors import InvalidError
from builder.model.base import Base, Stack
from builder.model.check import Check
from builder.model.layer import PLACEHOLDER
from builder.model.lock import DebLock, LockSection, Wheel, WheelLock
from builder.model.variant import merge
from builder.model.yamlfile import build

ALONE = 140_000_000
"""Bytes of a wheel that gets a layer of its own: a pull of an image takes its layers in parallel."""

MOST = 700_000_000
"""Bytes of wheels in a layer of many wheels. With another value the digests of images on hermetic bases differ."""

_DERIVED = ("vllm", "python", "site", "nccl", "torch", "triton", "cuda", "glibc", "layers")

SectionOf = Callable[[str], LockSection | None]
"""The section of the lock with this name; None when it is not there."""


def stacked(data: Mapping[str, Any], family: Mapping[str, Any], section: SectionOf, *, where: str, text: str) -> Base:
    """The base of a file with `stack`. data: the file. family: what all bases of its family share.

    Facts of sections that are not locked yet are unknown. Raises InvalidError, with `where`, the file, and the line in
    its `text`.
    """
    if repeated := [key for key in _DERIVED if key in data]:
        raise InvalidError(
            f"{repeated[0]} follows from the lock of a base with `stack`",
            id="base-fact-derived",
            where=where,
            next=f"remove {repeated[0]} from the file",
        )
    shared = family.get("checks")
    if isinstance(shared, list) and isinstance(own := data.get("checks"), list):
        # A base adds checks to those of its family.
        data = {**data, "checks": [*shared, *own]}
    base = build(merge(family, data), Base, where=where, text=text)
    assert base.stack is not None
    root, wheels = section(base.stack.root), section(base.stack.wheels)
    facts = derived(base.stack, root, wheels)
    values = {name: str(value) for name, value in facts.items() if isinstance(value, str)}
    values["cuda_release"] = re.escape(_minor(values.get("cuda", "")) or "unknown")
    given = {name: getattr(base, name) for name in base.model_fields_set}
    facts["title"] = _filled(base.title, values)
    facts["checks"] = [_check(check, values) for check in base.checks]
    facts["layers"] = layers(base.stack, wheels, values.get("cuda"))
    return build({**given, **facts}, Base, where=where)


def derived(stack: Stack, root: LockSection | None, wheels: LockSection | None) -> dict[str, Any]:
    """The facts about a base: python, site, glibc, and versions of its parts. A fact is left out when it is unknown."""
    facts: dict[str, Any] = {}
    if isinstance(root, DebLock):
        libc = next((deb.version for deb in root.packages if deb.package == "libc6"), "")
        facts["glibc"] = _minor(libc)
    if isinstance(wheels, WheelLock):
        versions = {wheel.name: wheel.version for wheel in wheels.wheels if wheel.name not in stack.leave_out}
        # Debian's scheme for packages that are not Debian's.
        facts["python"] = wheels.request.python
        facts["site"] = f"/usr/local/lib/python{wheels.request.python}/dist-packages"
        facts |= {name: versions.get(name) for name in ("vllm", "torch", "triton")}
        facts["cuda"] = cuda_version(versions)
        # torch that requires the wheel of NCCL has a DT_RPATH to the folder of that wheel.
        facts["nccl"] = "wheel" if any(name.startswith("nvidia-nccl-cu") for name in versions) else None
    return {name: value for name, value in facts.items() if value is not None}


def cuda_version(versions: Mapping[str, str]) -> str | None:
    """The CUDA that torch is built with: the toolkit that it requires, else the CUDA runtime; None without CUDA."""
    found = versions.get("cuda-toolkit") or versions.get("nvidia-cuda-runtime")
    return ".".join(found.split(".")[:3]) if found else None


def cuda_section(cuda: str) -> str:
    """The section of the lock with the compiler of this CUDA."""
    return f"cuda-{_minor(cuda)}-arm64"


def layers(stack: Stack, section: LockSection | None, cuda: str | None) -> list[dict[str, Any]]:
    """The layers of a base, the root first, as values of `Base.layers`."""
    made: list[dict[str, Any]] = [{"root": {"lock": stack.root}}]
    if cuda is not None:
        made.append({"cuda": {"lock": cuda_section(cuda)}})
    wheels = section.wheels if isinstance(section, WheelLock) else ()
    for name, only in groups(stack, wheels):
        use: dict[str, Any] = {"lock": stack.wheels, "group": name}
        if only:
            use["only"] = only
        elif stack.leave_out:
            use["leave_out"] = list(stack.leave_out)
        # The wheels of a shared file are in no layer of their own and in no group, so that only one layer has them.
        if shared := [path for path, owners in stack.shared.items() if not only or set(owners) & set(only)]:
            use["shared"] = shared
        made.append({"wheels": use})
    return made


def groups(stack: Stack, wheels: Sequence[Wheel]) -> list[tuple[str, list[str]]]:
    """The layers of wheels: name and distributions; no distributions means all that no other layer takes.

    First the stack's own groups, then each large wheel alone, then the others in as few layers as `MOST` allows, all
    of a similar size. Wheels that contain the same file share a layer, because a layer covers no file of another. vLLM
    comes last: of all wheels it changes most often.
    """
    sizes = {wheel.name: wheel.size for wheel in wheels if wheel.name not in stack.leave_out}
    vllm = sizes.pop("vllm", None)
    tied = {name for owners in stack.shared.values() for name in owners}
    made: list[tuple[str, list[str]]] = []
    for group, only in stack.groups.items():
        if there := [name for name in only if name in sizes and name not in tied]:
            made.append((group, there))
            for name in there:
                del sizes[name]
    large = [name for name, size in sizes.items() if size >= ALONE and name not in tied]
    for name in sorted(large, key=lambda name: (-sizes[name], name)):
        made.append((_short(name), [name]))
        del sizes[name]
    made += _balanced(sizes, [set(owners) & sizes.keys() for owners in stack.shared.values()])
    return [*made, *([("vllm", ["vllm"])] if vllm is not None else [])]


def _balanced(sizes: Mapping[str, int], tied: Iterable[set[str]]) -> list[tuple[str, list[str]]]:
    count = math.ceil(sum(sizes.values()) / MOST)
    if count <= 1:
        return [("other", [])]
    units = [{name} for name in sizes]
    for together in tied:
        joined = set(together).union(*(unit for unit in units if unit & together))
        units = [unit for unit in units if not unit & together] + ([joined] if joined else [])
    count = min(count, len(units))
    bins: list[list[str]] = [[] for _ in range(count)]
    weights = [0] * count
    for weight, unit in sorted(((sum(sizes[name] for name in unit), sorted(unit)) for unit in units), reverse=True):
        lightest = weights.index(min(weights))
        bins[lightest] += unit
        weights[lightest] += weight
    return [(f"other-{number}", sorted(names)) for number, names in enumerate(bins, 1)]


def _short(distribution: str) -> str:
    name = re.sub(r"[^a-z0-9-]", "-", distribution.lower())
    return re.sub(r"-cu[0-9]+$", "", name.removeprefix("nvidia-"))


def _minor(version: str) -> str | None:
    found = re.match(r"[0-9]+\.[0-9]+", version)
    return found[0] if found else None


def _filled(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda found: values.get(found["name"], "unknown"), text)


def _check(check: Check, values: Mapping[str, str]) -> Check:
    args = {name: _filled(value, values) if isinstance(value, str) else value for name, value in check.args.items()}
    return check.model_copy(update={"args": args})
