"""The static checks of Python distributions, their RECORD files, and the variables of vLLM."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from builder.knowledge.table import load_table
from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.text import first_few

# Vendored distributions (setuptools/_vendor) are not on sys.path.
_METADATA = re.compile(r".*-packages/[^/]*\.dist-info/METADATA")


@check_kind("static", "distribution", Reads())
def distribution(context: Context, *, name: str, version: str | None = None) -> str:
    """A Python distribution is installed exactly once, in this version."""
    found = distributions(context, name)
    if not found:
        raise PathNotFound(f"{name}-{version or '*'}.dist-info")
    if len(set(found)) > 1:
        raise CheckFailed(f"{name} is installed more than once: {', '.join(sorted(set(found)))}")
    if version is not None and found[0] != version:
        raise CheckFailed(f"{name} is {found[0]}, expected {version}")
    return found[0]


def distributions(context: Context, name: str) -> list[str]:
    """The installed versions of a Python distribution, from the names of its metadata folders."""
    versions = []
    for _, found, version, _ in installed(context):
        if normal(found) == normal(name):
            versions.append(version)
    return versions


@check_kind("static", "distributions", Reads("ours"))
def distributions_once(context: Context) -> str:
    """Each Python distribution is installed once: with two versions, sys.path decides which is imported."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for folder, name, version, layer in installed(context):
        found[normal(name)].append((f"{version} in /{folder}", layer))
    bad = [
        f"{name}: {', '.join(sorted({text for text, _ in copies}))}"
        for name, copies in sorted(found.items())
        # Copies inside the base alone are accepted.
        if len(copies) > 1 and any(context.is_ours(layer) for _, layer in copies)
    ]
    if bad:
        raise CheckFailed(f"installed more than once: {first_few(bad)}")
    return f"{len(found)} distributions"


@check_kind("static", "vllm-env", Reads())
def vllm_env(context: Context, *, version: str | None = None, names: Sequence[str] | None = None) -> str:
    """The image's vLLM reads every VLLM_* variable of the image, by the option table of that version.

    names: the variables to check; default: all.
    """

    judged = sorted(name for name in context.image.env if name.startswith("VLLM_"))
    judged = [name for name in judged if names is None or name in names]
    if not judged:
        return "no VLLM_* variable is set"
    installed = distributions(context, "vllm")
    labels = context.image.settings.get("Labels") or {}
    have = version or (installed[0] if installed else labels.get(VLLM_LABEL))
    if have is None:
        raise CheckNotRun("the version of vLLM in this image is not known")
    table = load_table(have)
    if table is None:
        raise CheckNotRun(f"there is no option table for vLLM {have}")
    unknown = [name for name in judged if name not in table.env]
    if unknown:
        raise CheckFailed(f"vLLM {have} does not read {first_few(unknown)}")
    return f"vLLM {have} reads all {len(judged)}"


def installed(context: Context) -> list[tuple[str, str, str, int]]:
    """Every distribution: its folder, name, version and layer."""
    return context.once("installed", lambda: _installed(context))


def _installed(context: Context) -> list[tuple[str, str, str, int]]:
    entries = context.tree.entries
    return [(folder, name, version, entries[path].layer) for path, folder, name, version in find_distributions(entries)]


def find_distributions(paths: Iterable[str]) -> Iterator[tuple[str, str, str, str]]:
    """The path of the METADATA, the folder, name and version of every distribution among these paths, sorted."""
    for path in sorted(path for path in paths if _METADATA.fullmatch(path)):
        folder, info, _ = path.rsplit("/", 2)
        name, _, version = info.removesuffix(".dist-info").partition("-")
        yield path, folder, name, version


def normal(name: str) -> str:
    """The name of a distribution as package indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")
