"""The static checks of the CUDA user space: the libnccl that torch loads, the ptxas that Triton calls."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping
from typing import Any

from builder.smoke.check import CheckFailed, CheckPassed, check_kind
from builder.smoke.elf.fatbin import describe, runs_on_gb10
from builder.smoke.elf.object import AARCH64, machine_name
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.libraries import ELF, LOADER_FILES
from builder.smoke.static.loader import Loader
from builder.smoke.static.programs import mapped_libraries
from builder.smoke.static.python import distributions
from builder.text import first_few

_TORCH = "*/torch/lib/libtorch_cuda.so"
_RUNS = re.compile(r"/libnccl\.so|/torch/lib/|-packages/vllm/_")
_TRITON = "*/triton/backends/nvidia/bin"


@check_kind("static", "torch-nccl", Reads(keeps=lambda image, args: LOADER_FILES, scan=ELF))
def torch_nccl(context: Context, *, under: str = "/opt/nccl", torch: str | None = None) -> str:
    """The libnccl that the dynamic loader chooses for torch is, symlinks followed, a file below `under`."""
    by = torch
    if by is None:
        found = context.tree.match(_TORCH)
        if not found:
            raise PathNotFound("torch/lib/libtorch_cuda.so")
        by = f"/{found[0]}"
    loader = Loader(context.tree, context.image.env)
    needed = [name for name in loader.dynamic(by).needed if name.startswith("libnccl.so")]
    if not needed:
        raise CheckFailed(f"{by} does not load libnccl")
    chosen = loader.find(needed[0], by)
    way = f"{chosen.path} ({chosen.why})" + (f", which is {chosen.real}" if chosen.real != chosen.path else "")
    if not chosen.real.startswith(under.rstrip("/") + "/"):
        raise CheckFailed(f"torch loads {way}, not the one below {under}")
    return f"torch loads {way}"


def _ptxas_files(image: OpenedImage, args: Mapping[str, Any]) -> Iterable[str]:
    named = [value for name, value in image.env.items() if re.fullmatch(r"TRITON_PTXAS(_BLACKWELL)?_PATH", name)]
    return [f"{_TRITON}/ptxas*", *map(glob.escape, named)]


@check_kind("static", "ptxas", Reads(keeps=_ptxas_files))
def ptxas(context: Context, *, arch: str = "sm_121a") -> str:
    """The ptxas that the image's Triton calls for `arch` exists, is for aarch64, and knows `arch`."""
    from packaging.version import InvalidVersion, Version

    versions = distributions(context, "triton") or distributions(context, "pytorch-triton")
    if not versions:
        raise PathNotFound("triton-*.dist-info")
    try:
        release = Version(versions[0]).release
    except InvalidVersion as error:
        raise CheckFailed(f"not a version of Triton: {versions[0]}") from error
    # From 3.6 on Triton has a second assembler, for compute capability 10.0 and up.
    tool = "ptxas-blackwell" if release >= (3, 6) else "ptxas"
    variable = f"TRITON_{tool.upper().replace('-', '_')}_PATH"
    folders = context.tree.match(_TRITON)
    paths = [*filter(None, [context.image.env.get(variable)]), *(f"/{folder}/{tool}" for folder in folders)]
    problems = []
    for path in paths:
        try:
            entry = context.tree.stat(path)
        except PathNotFound as error:
            # Triton skips a path that it cannot run.
            problems.append(str(error))
            continue
        if entry.kind != "file" or not entry.mode & 0o001:
            problems.append(f"{path} cannot be executed")
            continue
        if entry.machine != AARCH64:
            raise CheckFailed(f"{path} is for {machine_name(entry.machine or 0)}, not aarch64")
        release_name, knows = _assembler(context, path, arch)
        if not knows:
            raise CheckFailed(f"Triton {versions[0]} calls {path} ({release_name}), which does not know {arch}")
        return f"Triton {versions[0]} calls {path} ({release_name})"
    why = "; ".join(problems) or f"{variable} is not set and Triton has none of its own"
    raise (CheckFailed if problems else PathNotFound)(f"a {tool} that Triton {versions[0]} can call: {why}")


def _assembler(context: Context, path: str, arch: str) -> tuple[str, bool]:
    """The version in an assembler's binary, and whether the binary names an architecture."""
    version, knows, last = "unknown version", False, b""
    name = arch.encode()
    with context.tree.open(path) as file:
        while chunk := file.read(1 << 20):
            text = last + chunk
            # The search for plain bytes is much faster, and most chunks hold neither text.
            knows = knows or (name in text and re.search(rb"\b" + re.escape(name) + rb"\b", text) is not None)
            if b"release " in text and (match := re.search(rb"release \d+\.\d+, V(\d+\.\d+\.\d+)", text)):
                version = match[1].decode()
            last = text[-100:]
    return version, knows


@check_kind("static", "gpu-code", Reads(keeps=lambda image, args: LOADER_FILES, scan=ELF))
def gpu_code(context: Context) -> CheckPassed:
    """The GPU code in the libraries of our layers: cubins and PTX by target, and what a GB10 runs.

    torch, vLLM and the NCCL that they map have code that a GB10 runs, when they have any. Others may be for other GPUs,
    or keep their code elsewhere, as cuFFT does.
    """
    libraries: dict[str, dict[str, int]] = {}
    for path, entry in context.tree.entries.items():
        if entry.object is not None and entry.object.code and context.is_ours(entry.layer):
            libraries[f"/{path}"] = dict(entry.object.code)
    ways: dict[str, list[str]] = {}
    for path, code in libraries.items():
        ways.setdefault(runs_on_gb10(code), []).append(path)
    other = ways.pop("", [])
    mapped = {f"/{context.tree.resolve(path)}" for path in mapped_libraries(context)[0]} if other else ()
    if bad := sorted(path for path in other if path in mapped and _RUNS.search(path)):
        raise CheckFailed(f"no code for a GB10: {first_few([f'{path} ({describe(libraries[path])})' for path in bad])}")
    parts = [f"{len(ways[way])} with {way}" for way in ("sm_121", "sm_120", "PTX") if way in ways]
    if other:
        names = sorted(path.rpartition("/")[2] for path in other)
        parts.append(f"{len(other)} with no code for a GB10 in the fatbin ({first_few(names)})")
    details = [{"path": path, "runs": runs_on_gb10(code), "code": code} for path, code in sorted(libraries.items())]
    return CheckPassed(
        f"{len(libraries)} libraries with GPU code" + (f": {', '.join(parts)}" if parts else ""), details
    )
