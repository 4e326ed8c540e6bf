"""The static checks of ELF files: machine, damage, needed symbol versions, GPU code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from builder.smoke.check import CheckFailed, CheckPassed, check_kind
from builder.smoke.elf.fatbin import describe, inventory, runs_on_gb10
from builder.smoke.elf.object import AARCH64, CUDA, machine_name, reader
from builder.smoke.image.index import Entry
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import allowed_by, first_few
from builder.smoke.static.loader import Loader
from builder.versions import symbol_version

ELF = ScanOptions(elf=True)
LOADER_FILES = ("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d/*")
_RUNTIME = ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1")

_LIBSTDCXX = {"2.35": "3.4.30", "2.36": "3.4.30", "2.39": "3.4.33", "2.41": "3.4.33"}
"""glibc → the newest GLIBCXX of its distribution's libstdc++6: Ubuntu 22.04, Debian 12, Ubuntu 24.04, Debian 13."""


@check_kind("static", "elf-machine", Reads())
def elf_machine(context: Context, *, prefix: str = "/", allowed: Sequence[str] = ()) -> str:
    """Every ELF file below `prefix` is for aarch64, or GPU code. allowed: patterns of exempt files."""
    found = [(path, entry.machine) for path, entry in context.tree.below(prefix) if entry.machine is not None]
    other = [
        f"/{path} ({machine_name(machine)})"
        for path, machine in found
        if machine not in (AARCH64, CUDA) and not allowed_by(path, allowed)
    ]
    if other:
        raise CheckFailed(f"not aarch64: {first_few(other)}")
    if not found and prefix.strip("/"):
        # Without this, a wrong prefix would always pass.
        raise PathNotFound(prefix, " with an ELF file in it")
    return f"{len(found)} ELF files"


@check_kind("static", "elf-ours", Reads("ours", scan=ELF))
def elf_ours(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """Every ELF file of our layers is for aarch64 or the GPU, and not truncated. allowed: patterns of exempt files."""
    bad = []
    count = 0
    for path, entry in _ours(context):
        if entry.machine is None or allowed_by(path, allowed):
            continue
        count += 1
        if entry.machine not in (AARCH64, CUDA):
            bad.append(f"/{path} is for {machine_name(entry.machine)}")
        elif entry.object is not None and entry.object.problem:
            bad.append(f"/{path}: {entry.object.problem}")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{count} ELF files"


def _ours(context: Context) -> Iterator[tuple[str, Entry]]:
    return (
        (path, entry)
        for path, entry in context.tree.entries.items()
        if entry.kind == "file" and context.is_ours(entry.layer)
    )


@check_kind("static", "symbol-versions", Reads(keeps=lambda image, args: LOADER_FILES, scan=ELF))
def symbol_versions(
    context: Context, *, path: str | None = None, glibc: str | None = None, libraries: Sequence[str] = _RUNTIME
) -> str:
    """The image has the symbol versions of the C and C++ runtime that a library, or each one of our layers, needs.

    path: the library. glibc: the base's version; it is the limit when the base's layers are not on this machine.
    """
    loader = Loader(context.tree, context.image.env)
    paths = [path] if path is not None else [f"/{name}" for name, entry in _ours(context) if entry.object is not None]
    highest: dict[str, str] = {}
    bad = []
    unknown: PathNotFound | None = None
    for each in paths:
        try:
            needs = loader.dynamic(each).versions
        except ValueError:
            if path is not None:
                raise
            # elf-ours reports damaged files.
            continue
        for library in libraries:
            if not (wanted := needs.get(library)):
                continue
            try:
                lacks, where = _lacking(loader, library, each, wanted, glibc if context.tree.absent else None)
            except PathNotFound as reason:
                unknown = unknown or reason
                continue
            if lacks:
                bad.append(f"{each} needs {max(lacks, key=symbol_version)}, which {where} does not have")
            family = library.partition(".")[0]
            highest[family] = max(highest.get(family, ""), *wanted, key=symbol_version)
    if bad:
        raise CheckFailed(first_few(bad))
    if unknown is not None:
        raise unknown
    count = f"{len(paths)} libraries: " if path is None else ""
    return f"{count}needs at most {', '.join(highest.values())}" if highest else f"{count}needs no symbol version"


def _lacking(
    loader: Loader, library: str, by: str, wanted: frozenset[str], glibc: str | None
) -> tuple[frozenset[str], str]:
    try:
        chosen = loader.find(library, by)
    except PathNotFound:
        if glibc is None:
            raise
        limits = {"GLIBC": glibc, "GLIBCXX": _LIBSTDCXX.get(glibc)}
        over = {
            name
            for name in wanted
            for limit in [limits.get(name.partition("_")[0])]
            if limit and symbol_version(name) > symbol_version(limit)
        }
        return frozenset(over), f"a base with glibc {glibc}"
    return wanted - loader.dynamic(chosen.real).provides, chosen.real


@check_kind("static", "cubin", Reads(scan=ELF, one_path=True))
def cubin(context: Context, *, path: str, archs: Sequence[str] = ("sm_121",), absent: Sequence[str] = ()) -> str:
    """The library has GPU code for each of `archs` (sm_121a and sm_121f count as sm_121), and none for `absent`."""
    entry = context.tree.stat(path)
    if entry.object is not None and not entry.object.problem:
        found: Mapping[str, int] = entry.object.code
    else:
        with context.tree.open(path) as file:
            found = inventory(reader(file))
    have = describe(found)
    for arch in archs:
        if not any(name == arch or (arch[-1:].isdigit() and name.rstrip("af") == arch) for name in found):
            raise CheckFailed(f"{path} has no {arch} code: {have}")
    for arch in absent:
        if arch in found:
            raise CheckFailed(f"{path} has {arch} code: {have}")
    return have


@check_kind("static", "gpu-code", Reads("ours", scan=ELF))
def gpu_code(context: Context) -> CheckPassed:
    """The GPU code in the libraries of our layers: cubins and PTX by target, and what a GB10 runs."""
    libraries: dict[str, dict[str, int]] = {}
    for path, entry in _ours(context):
        if entry.object is not None and entry.object.code:
            libraries[f"/{path}"] = dict(entry.object.code)
    ways: dict[str, list[str]] = {}
    for path, code in libraries.items():
        ways.setdefault(runs_on_gb10(code), []).append(path.rpartition("/")[2])
    parts = [f"{len(ways[way])} with {way}" for way in ("sm_121", "sm_120", "PTX") if way in ways]
    if "" in ways:
        parts.append(f"{len(ways[''])} with no code for a GB10 in the fatbin ({first_few(sorted(ways['']))})")
    details = [{"path": path, "runs": runs_on_gb10(code), "code": code} for path, code in sorted(libraries.items())]
    return CheckPassed(
        f"{len(libraries)} libraries with GPU code" + (f": {', '.join(parts)}" if parts else ""), details
    )
