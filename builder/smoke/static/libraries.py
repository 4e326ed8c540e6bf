"""The static checks of ELF files: machine, damage, needed symbol versions, where the loader looks."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.elf.fatbin import describe, inventory
from builder.smoke.elf.object import AARCH64, CUDA, machine_name, reader
from builder.smoke.image.index import Entry
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.tree import LONGEST_PATH, PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import allowed_by, is_open
from builder.smoke.static.loader import DEFAULT_FOLDERS, Loader
from builder.text import first_few
from builder.versions import symbol_version

ELF = ScanOptions(elf=True)
LOADER_FILES = ("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d/*")
_MOUNTED = re.compile(
    r"(?<!/stubs)/lib(?:cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[a-z0-9-]+|nccl-[a-z-]+)\.so(?:\.[0-9]+)*$"
)
_PROCESSORS = ("tls", "atomics", "aarch64")
_HWCAPS = "glibc-hwcaps"
"""Names of folders for some processors; those of the last one are in a folder of this name."""
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
        elif entry.object is not None and entry.object.dynamic is not None:
            wanted = entry.object.dynamic
            bad += [
                f"/{path} loads from {problem}"
                for folder in sorted({*wanted.rpath, *wanted.runpath})
                if (problem := _place(context, folder, wanted.needed))
            ]
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{count} ELF files"


def _place(context: Context, folder: str, needed: Sequence[str]) -> str:
    """What is wrong with a folder in which a library looks for others, those that it needs; "" for nothing."""
    text = repr(folder[:200])
    if not folder:
        # NVIDIA's libcusparseLt has "$ORIGIN:", which is harmless where the working directory has no such library.
        where = str(context.image.settings.get("WorkingDir") or "/")[:LONGEST_PATH]
        found = [name for name in needed if context.tree.exists(f"{where}/{name}")]
        if found or is_open(context, where):
            return f"{text}, which is the working directory {where}" + (f": {found[0][:200]}" if found else "")
        return ""
    if "$" in folder.replace("${ORIGIN}", "").replace("$ORIGIN", ""):
        return f"{text}, to which the loader gives another name"
    if not folder.startswith(("/", "$ORIGIN", "${ORIGIN}")):
        return f"{text}, a folder of the working directory"
    return f"{text}, where everyone may write" if is_open(context, folder) else ""


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


@check_kind("static", "libraries", Reads(keeps=lambda image, args: LOADER_FILES, scan=ELF))
def libraries(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No library of NVIDIA's driver, which the container runtime mounts, no plugin that NCCL loads by its name, and no
    two files of one name in the folders where the loader looks. allowed: patterns of exempt files."""
    bad = [
        f"/{path} belongs to the driver or is loaded by its name"
        for path, entry in context.tree.entries.items()
        if ".so" in path and _MOUNTED.search(path) and entry.kind != "dir" and context.is_ours(entry.layer)
    ]
    bad += _before(context)
    loader = Loader(context.tree, context.image.env)
    if not context.base:
        opened = (folder for folder in loader.configured() if is_open(context, folder))
        bad += [f"{folder[:200]}, where everyone may write, is in ld.so.conf" for folder in opened]
    for name, paths in loader.cache.items():
        # ldconfig does not write that, and no check compares libraries of other names.
        renamed = [path for path in paths if posixpath.basename(path) != name and context.tree.exists(path)]
        bad += [f"{path} is loaded in place of {name}, by ld.so.cache" for path in renamed if _is_ours(context, path)]
    first: dict[str, str] = {}
    for path in searched(context):
        name, real = posixpath.basename(path), context.tree.resolve(path)
        other = first.setdefault(name, real)
        layers = {context.tree.entries[each].layer for each in (real, other)}
        if other != real and any(map(context.is_ours, layers)):
            bad.append(f"/{other} is loaded in place of /{real}")
    bad = [text for text in dict.fromkeys(bad) if not allowed_by(text.partition(" ")[0].lstrip("/"), allowed)]
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(first)} libraries where the loader looks"


def _is_ours(context: Context, path: str) -> bool:
    return context.is_ours(context.tree.stat(path).layer)


def _before(context: Context) -> Iterator[str]:
    """Our libraries in folders for some processors, where the loader of glibc before 2.37 looks first."""
    for path, entry in context.tree.entries.items():
        if ".so" not in path or not context.is_ours(entry.layer):
            continue
        *folders, name = path.split("/")
        while folders and (folders[-1] in _PROCESSORS or folders[-2:-1] == [_HWCAPS]):
            del folders[-2 if folders[-2:-1] == [_HWCAPS] else -1 :]
        other = "/".join([*folders, name])
        if other != path and other in context.tree.entries:
            yield f"/{path} is loaded in place of /{other}"


def searched(context: Context) -> list[str]:
    """The libraries where the loader looks: in LD_LIBRARY_PATH, ld.so.cache, ld.so.conf and the default folders."""
    return context.once("searched", lambda: list(_searched(context)))


def _searched(context: Context) -> Iterator[str]:
    loader = Loader(context.tree, context.image.env)
    folders = context.image.env.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":", 64)[:64]
    # Debian's and Ubuntu's ld.so.conf name /usr/local/lib.
    folders += [*loader.configured(), "/usr/local/lib", *DEFAULT_FOLDERS]
    places = [context.tree.resolve(folder) for folder in folders if folder[:1] == "/" and context.tree.exists(folder)]
    paths = [path for named in loader.cache.values() for path in named]
    paths += [path for folder in dict.fromkeys(places) for path in context.tree.inside(folder) if ".so" in path]
    paths = [*dict.fromkeys(paths)]
    yield from (path for path in paths if context.tree.exists(path) and context.tree.stat(path).machine == AARCH64)
