"""The static checks of what runs besides the planned command: programs in PATH, the loader's preloads and its gaps."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.config import candidates
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.libraries import ELF, LOADER_FILES, searched
from builder.smoke.static.loader import Loader
from builder.smoke.static.variables import loading_variables, naming_variables
from builder.text import first_few
from builder.unpack.root import STATUS_D

_NAMES_LIBRARIES = re.compile(
    r"(?:etc|usr/lib)/ssl/openssl\.cnf|etc/nsswitch\.conf|etc/libibverbs\.d/[^/]+|etc/OpenCL/vendors/[^/]+"
    r"|.*/gconv/gconv-modules(?:\.cache|\.d/[^/]+)?"
)
"""Files that make OpenSSL, glibc, libibverbs (for NCCL) and OpenCL load libraries that they name."""
_NAMED_ONCE = frozenset(
    (
        "python",
        "python3",
        "sh",
        "bash",
        "dash",
        "env",
        "vllm",
        "ldconfig",
        "ld.so",
        "cc",
        "c++",
        "gcc",
        "g++",
        "nvcc",
        "ptxas",
    )
)
"""Programs that the server, its scripts and its compilers start by name."""
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libcudadebugger.so.1")
"""Libraries of the driver, which NVIDIA's container runtime mounts."""
_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "ld.so.cache", "ld.so.conf")
_MAPPED = ("*/torch/lib/libtorch_python.so", "*/torch/lib/libtorch_cuda.so", "*-packages/vllm/_C*.so")


@check_kind("static", "programs", Reads())
def programs(context: Context) -> str:
    """Each script in PATH has an interpreter that runs, in a line that ends as the kernel expects; no program that is
    started by name is in PATH twice."""
    bad: list[str] = []
    first: dict[str, str] = {}
    count = 0
    for path in _in_path(context):
        name = posixpath.basename(path)
        try:
            real = context.tree.resolve(path)
        except PathNotFound:
            continue
        entry = context.tree.entries[real]
        if entry.kind != "file":
            continue
        if name in _NAMED_ONCE and entry.mode & 0o001 and first.setdefault(name, real) != real:
            layers = {context.tree.entries[first[name]].layer, entry.layer}
            if any(map(context.is_ours, layers)):
                bad.append(f"/{first[name]} is in PATH before /{real}")
        if context.is_ours(entry.layer) and entry.mode & 0o111 and entry.script:
            count += 1
            bad += [f"/{path} {problem}" for problem in _script(context, entry.script)]
    if bad:
        raise CheckFailed(first_few(list(dict.fromkeys(bad))))
    return f"{count} scripts in PATH"


def _in_path(context: Context) -> Iterator[str]:
    """The entries of the folders of PATH, in the order of PATH."""
    for folder in dict.fromkeys(context.path):
        try:
            yield from sorted(context.tree.inside(context.tree.resolve(folder))) if folder.startswith("/") else ()
        except PathNotFound:
            continue


def _script(context: Context, line: bytes) -> Iterator[str]:
    """What is wrong with the first line of a script, without `#!`."""
    if line.endswith(b"\r"):
        yield "has a line that ends with a carriage return: the kernel takes it as part of the interpreter's name"
        return
    names = line.decode(errors="replace").split()
    if names[:1] and names[0].endswith("/env"):
        # What `env` starts must be in PATH.
        names = [names[0], *[word for word in names[1:] if "=" not in word and word[0] != "-"][:1]]
    else:
        names = names[:1]
    if not names:
        yield "names no interpreter"
    for name in names:
        found = [name] if "/" in name else [f"{folder}/{name}" for folder in context.path]
        if not any(_runs(context, path) for path in found) and not context.tree.absent:
            yield f"is run by {name}, which everybody can execute nowhere"


def _runs(context: Context, path: str, most: int = 4) -> bool:
    """Whether the kernel executes a file. most: how many scripts it goes through to a program."""
    try:
        entry = context.tree.stat(path)
    except PathNotFound:
        return False
    if entry.kind != "file" or not entry.mode & 0o001 or not most:
        return False
    name = (entry.script.decode(errors="replace").split() or [""])[0]
    return entry.machine is not None or (name.startswith("/") and _runs(context, name, most - 1))


def _kept_by_preloads(image: OpenedImage, args: Mapping[str, Any]) -> Sequence[str]:
    return ("etc/ld.so.preload", *LOADER_FILES)


@check_kind("static", "preloads", Reads(keeps=_kept_by_preloads, scan=ELF))
def preloads(context: Context) -> str:
    """Nothing is loaded into every process: no /etc/ld.so.preload, no file above the first layer that names libraries
    for others, and no variable of the loader, Python, the shell, compilers, CUDA or NCCL does it. Of a
    base's own variables, only the worst count. On no base, no variable names a program or library that neither
    PATH nor the loader finds."""
    bad = list(loading_variables(context))
    if not context.base:
        bad += naming_variables(context, {*searched(context), *mapped_libraries(context)[0]})
    entry = context.tree.get("etc/ld.so.preload")
    if entry is not None and (entry.size or entry.kind != "file"):
        bad.append("/etc/ld.so.preload")
    bad += [f"/{path}, which names libraries" for path in _naming(context)]
    if bad:
        raise CheckFailed(f"loads code into every process: {first_few(bad)}")
    return "none"


def _naming(context: Context) -> Iterator[str]:
    """Our files above the first layer that name libraries, but for those of Debian packages."""
    for layer in context.tree.layers:
        packages = any(path.startswith(f"{STATUS_D}/") for path in layer.entries)
        if layer.number and context.is_ours(layer.number) and not packages:
            yield from (path for path in layer.entries if _NAMES_LIBRARIES.fullmatch(path))


@check_kind("static", "mapped", Reads(keeps=lambda image, args: LOADER_FILES, scan=ELF))
def mapped(context: Context) -> str:
    """The libraries that torch and vLLM map are in the image: what they need, and what these need in turn. None comes
    from a search path of the whole image while another file has its name. The program that a container starts, or the
    interpreter of its script, has its loader and its libraries.

    Those of the driver are exempt. A base's own libraries are not judged.
    """
    seen, bad = mapped_libraries(context)
    bad = [*bad, *_unstarted(context)]
    if bad:
        raise CheckFailed(first_few(sorted(set(bad))))
    return f"{len(seen)} libraries"


def mapped_libraries(context: Context) -> tuple[set[str], list[str]]:
    """The libraries that torch and vLLM map, and what is wrong with them.

    Raises PathNotFound when one may be in the base, which is not on this machine.
    """
    return context.once("mapped", lambda: _mapped_libraries(context))


def _mapped_libraries(context: Context) -> tuple[set[str], list[str]]:
    loader = Loader(context.tree, context.image.env)
    seen: set[str] = set()
    # vLLM's libraries need those of torch, which are in memory then.
    roots = [f"/{path}" for pattern in _MAPPED for path in context.tree.match(pattern)]
    bad = list(_gaps(context, loader, roots, seen))
    files = {posixpath.basename(path): context.tree.resolve(path) for path in seen}
    for path in searched(context):
        name, real = posixpath.basename(path), context.tree.resolve(path)
        layer = context.tree.entries[real].layer
        # Debian's packages, in the first layer, have some of the libraries that wheels bring.
        if layer == 0 or not context.is_ours(layer):
            continue
        # cuDNN and others open parts of theirs by name, while they run.
        parts = [each for each in context.tree.named(name) if "-packages/" in each and each != real]
        if (other := files.get(name, next(iter(parts), real))) != real:
            bad.append(f"/{path} is a second copy of /{other}")
    return seen, bad


def _unstarted(context: Context) -> Iterator[str]:
    """What the program that a container starts lacks: its loader, and libraries."""
    loader = Loader(context.tree, context.image.env)
    words = [*(context.image.settings.get("Entrypoint") or ()), *(context.image.settings.get("Cmd") or ())][:1]
    for path in _programs_of(context, words):
        try:
            named = loader.dynamic(path).loader
        except ValueError:
            continue
        if named and not context.tree.absent and not _runs(context, named):
            yield f"{named}, the loader of {path}, is not a program that everybody can execute"
        yield from _needed(context, loader, path, set(), set(), None)


def _programs_of(context: Context, words: Sequence[str], most: int = 4) -> Iterator[str]:
    """The compiled program that a command starts, or that runs its script; also what `env` starts."""
    for path in candidates(context.image, words[0]) if words and most else ():
        if not context.tree.exists(path):
            continue
        entry = context.tree.stat(path)
        if entry.kind == "file" and entry.mode & 0o001:
            if entry.machine is not None:
                yield f"/{context.tree.resolve(path)}"
            following = entry.script.decode(errors="replace").split() if entry.machine is None else words[1:]
            if entry.machine is None or posixpath.basename(path) == "env":
                yield from _programs_of(context, following, most - 1)
            return


def _gaps(context: Context, loader: Loader, roots: Sequence[str], seen: set[str]) -> Iterator[str]:
    """What is wrong with the libraries that files need, one after the other. seen: gets those in memory."""
    names: set[str] = set()
    judged: set[tuple[str, str]] = set()
    for root in roots:
        yield from _needed(context, loader, root, seen, names, judged)


def _needed(
    context: Context, loader: Loader, root: str, seen: set[str], names: set[str], judged: set[tuple[str, str]] | None
) -> Iterator[str]:
    """The same for one file. names: of those in memory. judged: names and files that were compared with others; None:
    none is compared."""
    todo: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    while todo:
        by, parents = todo.pop()
        if by in seen:
            continue
        seen.add(by)
        names.add(posixpath.basename(by))
        try:
            needed = loader.dynamic(by).needed
        except ValueError:
            # elf-ours reports damaged files.
            continue
        # A file may name one library thousands of times.
        for name in dict.fromkeys(needed):
            try:
                found = loader.find(name, by, parents)
            except PathNotFound as error:
                if name in names or name in _DRIVER or not context.is_ours(context.tree.stat(by).layer):
                    continue
                if context.tree.absent:
                    raise
                yield str(error)
                continue
            todo.append((found.real, (by, *parents)[:32]))
            if judged is None or found.why not in _SEARCHED or (name, found.real) in judged:
                continue
            judged.add((name, found.real))
            if others := _others(context, name, found.real):
                yield f"{found.path} ({found.why}) is mapped in place of {others[0]}"


def _others(context: Context, name: str, real: str) -> list[str]:
    """Other files of a library's name, when one of the files is ours."""
    others = [f"/{path}" for path in context.tree.named(name) if f"/{path}" != real]
    return others if any(context.is_ours(context.tree.entries[path[1:]].layer) for path in [real, *others]) else []
