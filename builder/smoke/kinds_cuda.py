"""Static checks of GPU code, of the libraries that processes load, and of the assembler that Triton calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builder.smoke.elf import AARCH64, machine_name, read_dynamic
from builder.smoke.fatbin import inventory
from builder.smoke.image import Image
from builder.smoke.kinds_files import distributions
from builder.smoke.loader import Loader
from builder.smoke.static import Context, Failed, kind
from builder.smoke.tree import Absent

_TORCH = "*/torch/lib/libtorch_cuda.so"
_LOADER_FILES = ("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d/*")
_TRITON = "*/triton/backends/nvidia/bin"


def _near(image: Image, args: Mapping[str, Any]) -> Iterable[str]:
    # The path may be a link; what it leads to is mostly beside it, with a longer name.
    path = str(args.get("path", ""))
    return [f"{path}*", f"{path.split('.so', maxsplit=1)[0]}.so*"]


@kind("cubin", keeps=_near)
def cubin(context: Context, *, path: str, archs: Sequence[str] = ("sm_121",), absent: Sequence[str] = ()) -> str:
    """The library has code for each of `archs` (sm_121 accepts sm_121a and sm_121f), and none for `absent`."""
    with context.tree.open(path) as file:
        found = inventory(file)
    have = ", ".join(f"{name} ({count})" for name, count in sorted(found.items(), key=_by_number)) or "no GPU code"
    for arch in archs:
        if not any(name == arch or (arch[-1:].isdigit() and name.rstrip("af") == arch) for name in found):
            raise Failed(f"{path} has no {arch} code: {have}")
    for arch in absent:
        if arch in found:
            raise Failed(f"{path} has {arch} code: {have}")
    return have


def _by_number(item: tuple[str, int]) -> tuple[str, int, str]:
    prefix, _, arch = item[0].partition("_")
    return (prefix, int(re.sub(r"\D", "", arch) or 0), arch)


@kind("torch-nccl", keeps=lambda image, args: (_TORCH, *_LOADER_FILES))
def torch_nccl(context: Context, *, under: str = "/opt/nccl", torch: str | None = None) -> str:
    """The libnccl that the dynamic loader takes for torch is, links followed, a file below `under`."""
    by = torch
    if by is None:
        found = context.tree.match(_TORCH)
        if not found:
            raise Absent("torch/lib/libtorch_cuda.so")
        by = f"/{found[0]}"
    loader = Loader(context.tree, context.image.env)
    needed = [name for name in loader.dynamic(by).needed if name.startswith("libnccl.so")]
    if not needed:
        raise Failed(f"{by} does not load libnccl")
    chosen = loader.find(needed[0], by)
    way = f"{chosen.path} ({chosen.why})" + (f", which is {chosen.real}" if chosen.real != chosen.path else "")
    if not chosen.real.startswith(under.rstrip("/") + "/"):
        raise Failed(f"torch loads {way}, not the one below {under}")
    return f"torch loads {way}"


def _ptxas_files(image: Image, args: Mapping[str, Any]) -> Iterable[str]:
    named = [value for name, value in image.env.items() if re.fullmatch(r"TRITON_PTXAS(_BLACKWELL)?_PATH", name)]
    return [f"{_TRITON}/ptxas*", *named]


@kind("ptxas", keeps=_ptxas_files)
def ptxas(context: Context, *, arch: str = "sm_121a") -> str:
    """The ptxas that the image's Triton will call for `arch` is there, runs on aarch64, and knows `arch`."""
    from packaging.version import InvalidVersion, Version

    versions = distributions(context, "triton") or distributions(context, "pytorch-triton")
    if not versions:
        raise Absent("triton-*.dist-info")
    try:
        release = Version(versions[0]).release
    except InvalidVersion as error:
        raise Failed(f"not a version of Triton: {versions[0]}") from error
    # From 3.6 on Triton has a second assembler, for compute capability 10.0 and up.
    tool = "ptxas-blackwell" if release >= (3, 6) else "ptxas"
    variable = f"TRITON_{tool.upper().replace('-', '_')}_PATH"
    folders = context.tree.match(_TRITON)
    paths = [*filter(None, [context.image.env.get(variable)]), *(f"/{folder}/{tool}" for folder in folders)]
    problems = []
    for path in paths:
        try:
            entry = context.tree.stat(path)
        except Absent as error:
            # Triton passes over a path that it cannot run.
            problems.append(str(error))
            continue
        if entry.kind != "file" or not entry.mode & 0o001:
            problems.append(f"{path} cannot be executed")
            continue
        if entry.machine != AARCH64:
            raise Failed(f"{path} is for {machine_name(entry.machine or 0)}, not aarch64")
        release_name, knows = _assembler(context, path, arch)
        if not knows:
            raise Failed(f"Triton {versions[0]} calls {path} ({release_name}), which does not know {arch}")
        return f"Triton {versions[0]} calls {path} ({release_name})"
    why = "; ".join(problems) or f"{variable} is not set and Triton brings none"
    raise (Failed if problems else Absent)(f"a {tool} that Triton {versions[0]} can call: {why}")


def _assembler(context: Context, path: str, arch: str) -> tuple[str, bool]:
    """The version that an assembler says it has, and whether it mentions an architecture."""
    version = "unknown version"
    knows = False
    last = b""
    with context.tree.open(path) as file:
        while chunk := file.read(1 << 20):
            text = last + chunk
            knows = knows or re.search(rb"\b" + re.escape(arch.encode()) + rb"\b", text) is not None
            if match := re.search(rb"release \d+\.\d+, V(\d+\.\d+\.\d+)", text):
                version = match[1].decode()
            last = text[-100:]
    return version, knows


@kind(
    "symbol-versions", keeps=lambda image, args: (*_near(image, args), *_LOADER_FILES, "*/libc.so.6", "*/libstdc++.so*")
)
def symbol_versions(
    context: Context, *, path: str, libraries: Sequence[str] = ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1")
) -> str:
    """What the library needs of the C and C++ runtime (symbol versions), the image has."""
    with context.tree.open(path) as file:
        needs = read_dynamic(file).versions
    loader = Loader(context.tree, context.image.env)
    highest = []
    for library in libraries:
        if not (wanted := needs.get(library)):
            continue
        chosen = loader.find(library, path)
        lacks = sorted(wanted - loader.dynamic(chosen.real).provides, key=_version)
        if lacks:
            raise Failed(f"{path} needs {lacks[-1]}, which {chosen.real} does not have")
        highest.append(max(wanted, key=_version))
    return f"needs at most {', '.join(highest)}" if highest else "needs no symbol version"


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))
