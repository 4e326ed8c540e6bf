"""Static checks of Python distributions, and of what the image's vLLM reads."""

from __future__ import annotations

import csv
import posixpath
from collections import defaultdict
from collections.abc import Sequence

from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import first_few

_VLLM_LABEL = "org.builder.vllm.version"


@check_kind("static", "distribution", Reads())
def distribution(context: Context, *, name: str, version: str | None = None) -> str:
    """A Python distribution is installed, once, in this version."""
    found = distributions(context, name)
    if not found:
        raise PathNotFound(f"{name}-{version or '*'}.dist-info")
    if len(set(found)) > 1:
        raise CheckFailed(f"{name} is installed more than once: {', '.join(sorted(set(found)))}")
    if version is not None and found[0] != version:
        raise CheckFailed(f"{name} is {found[0]}, expected {version}")
    return found[0]


def distributions(context: Context, name: str) -> list[str]:
    """The versions of a Python distribution that are installed, by the names of their metadata folders."""
    versions = []
    for _, found, version, _ in _installed(context):
        if _normal(found) == _normal(name):
            versions.append(version)
    return versions


@check_kind("static", "distributions", Reads("ours"))
def distributions_once(context: Context) -> str:
    """Each Python distribution is installed once: of two versions, which one is imported depends on the search path."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for folder, name, version, layer in _installed(context):
        found[_normal(name)].append((f"{version} in /{folder}", layer))
    bad = [
        f"{name}: {', '.join(sorted({text for text, _ in copies}))}"
        for name, copies in sorted(found.items())
        # What a base does on its own is the base's.
        if len(copies) > 1 and any(context.is_ours(layer) for _, layer in copies)
    ]
    if bad:
        raise CheckFailed(f"installed more than once: {first_few(bad)}")
    return f"{len(found)} distributions"


@check_kind("static", "records", Reads("ours", keeps=lambda image, args: ("*-packages/*.dist-info/RECORD",)))
def records(context: Context) -> str:
    """Every file that a distribution's RECORD lists is there, with the size that it lists.

    Files that a later layer replaces are passed over (nothing-covered judges those), and so is bytecode.
    """
    sizes: dict[tuple[str, int], set[int]] = defaultdict(set)
    for folder, name, version, layer in _installed(context):
        path = f"{folder}/{name}-{version}.dist-info/RECORD"
        if not context.is_ours(layer) or context.tree.get(path) is None:
            continue
        text = context.tree.read(path, 64 << 20).decode("utf-8", "surrogateescape")
        for row in csv.reader(text.splitlines()):
            if len(row) == 3 and row[2].isdigit() and not row[0].endswith(".pyc"):
                listed = posixpath.normpath(posixpath.join("/", folder, row[0])).lstrip("/")
                # Two distributions may list one file; which one has it is the first's or the last's to say.
                sizes[listed, layer].add(int(row[2]))
    bad = []
    for (listed, layer), said in sizes.items():
        entry = context.tree.get(listed)
        if entry is None:
            bad.append(f"/{listed} is not there")
        elif entry.layer == layer and entry.kind == "file" and entry.size not in said:
            bad.append(f"/{listed} has {entry.size} bytes, not {' or '.join(map(str, sorted(said)))}")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(sizes)} files as recorded"


@check_kind("static", "vllm-env", Reads())
def vllm_env(context: Context, *, version: str | None = None, names: Sequence[str] | None = None) -> str:
    """Every VLLM_* variable of the image is one that its vLLM reads, by the option table of that version.

    names: the variables to judge, where others are the base's own.
    """
    from builder.knowledge.table import load_table

    judged = sorted(name for name in context.image.env if name.startswith("VLLM_"))
    judged = [name for name in judged if names is None or name in names]
    if not judged:
        return "no VLLM_* variable is set"
    installed = distributions(context, "vllm")
    labels = context.image.settings.get("Labels") or {}
    have = version or (installed[0] if installed else labels.get(_VLLM_LABEL))
    if have is None:
        raise CheckNotRun("which vLLM this image has is not known")
    table = load_table(have)
    if table is None:
        raise CheckNotRun(f"there is no option table for vLLM {have}")
    unknown = [name for name in judged if name not in table.env]
    if unknown:
        raise CheckFailed(f"vLLM {have} does not read {first_few(unknown)}")
    return f"vLLM {have} reads all {len(judged)}"


def _installed(context: Context) -> list[tuple[str, str, str, int]]:
    """Every distribution: the folder it is in, its name, version and layer."""
    found = []
    for path in context.tree.match("*-packages/*.dist-info/METADATA"):
        folder, info, _ = path.rsplit("/", 2)
        if not folder.endswith("-packages"):
            # What a distribution brings along for itself (setuptools/_vendor) is not on the search path.
            continue
        name, _, version = info.removesuffix(".dist-info").partition("-")
        found.append((folder, name, version, context.tree.stat(path).layer))
    return found


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
