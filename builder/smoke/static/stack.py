"""The static checks of what must fit together: CUDA's releases, PTX and the driver, FlashInfer's parts, extensions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.elf.fatbin import describe, runs_on_gb10
from builder.smoke.elf.object import AARCH64, machine_name
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import allowed_by
from builder.smoke.static.libraries import ELF, LOADER_FILES, searched
from builder.smoke.static.python import installed, normal
from builder.text import first_few

_RELEASED = re.compile(r"nvidia-(?:cuda-(?:cccl|crt|cupti|nvcc|nvrtc|runtime)|nvjitlink|nvtx|nvvm)(?:-cu[0-9]+)?")
"""The distributions whose version begins with the release of CUDA; cuBLAS, cuDNN and others count for themselves."""
_CUDA_FILES = ("*/torch/version.py", "usr/local/cuda*/include/cuda_runtime_api.h")
_TORCH = re.compile(rb"^cuda(?::[^=\n]*)? = '([0-9]+\.[0-9]+)'$", re.MULTILINE)
_HEADER = re.compile(rb"^#define CUDART_VERSION +([0-9]+)$", re.MULTILINE)
_RUNTIME = re.compile(r"(?:^|/)libcudart\.so\.([0-9]+)$")
_DRIVER = re.compile(r"(?:^|/)libcuda\.so(?:\.[0-9]+)*$")
_PTX = {570: (8, 7), 575: (8, 8), 580: (9, 0), 590: (9, 1)}
"""The newest PTX that a branch of the driver compiles (release notes in the PTX ISA manual, and of CUDA)."""
_NCCL_FILES = ("etc/nccl.conf", "root/.nccl.conf", ".nccl.conf")
_FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


@check_kind("static", "cuda-release", Reads(keeps=lambda image, args: _CUDA_FILES))
def cuda_release(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """One release of CUDA (13.0): torch, the distributions of CUDA, the compiler's headers and the runtime agree.

    A mix that a vendor's base brings by itself is accepted: nobody can change it from above. allowed: names of
    distributions of another release.
    """
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for release, what, layer in _releases(context):
        if what.partition(" ")[0] not in allowed:
            found[release].append((what, layer))
    if len(found) > 1 and any(context.is_ours(layer) for rows in found.values() for _, layer in rows):
        parts = [f"{release} ({first_few([what for what, _ in rows])})" for release, rows in sorted(found.items())]
        raise CheckFailed(f"several releases of CUDA: {', '.join(parts)}")
    majors = {release.partition(".")[0] for release in found}
    for path, entry in context.tree.entries.items():
        runtime = _RUNTIME.search(path)
        if runtime and majors and runtime[1] not in majors and context.is_ours(entry.layer):
            raise CheckFailed(f"/{path} is of CUDA {runtime[1]}, the others are of {first_few(sorted(found))}")
    return f"CUDA {', '.join(sorted(found))}" if found else "no part of CUDA is installed"


def _releases(context: Context) -> Iterator[tuple[str, str, int]]:
    """The release of CUDA, what says it, and the layer."""
    for _, name, version, layer in installed(context):
        if _RELEASED.fullmatch(normal(name)) and (release := re.match(r"[0-9]+\.[0-9]+", version)):
            yield release[0], f"{normal(name)} {version}", layer
    for path in context.tree.match(_CUDA_FILES[0]):
        if torch := _TORCH.search(context.tree.read(path, 64 << 10)):
            yield torch[1].decode(), f"/{path}", context.tree.stat(path).layer
    for path in context.tree.match(_CUDA_FILES[1]):
        if header := _HEADER.search(context.tree.read(path, 2 << 20)):
            number = int(header[1])
            yield f"{number // 1000}.{number % 1000 // 10}", f"/{path}", context.tree.stat(path).layer


@check_kind("static", "ptx", Reads("ours", scan=ELF))
def ptx(context: Context, *, driver: int = 580) -> str:
    """No library depends on PTX that is newer than the driver (its branch): the driver cannot compile it.

    Where a library has a cubin for the GPU, its PTX is not used.
    """
    most = _PTX.get(driver)
    if most is None:
        raise CheckNotRun(f"the newest PTX of driver {driver} is not known")
    bad, count = [], 0
    for path, entry in context.tree.entries.items():
        if entry.object is None or not context.is_ours(entry.layer) or entry.object.ptx == (0, 0):
            continue
        count += 1
        if runs_on_gb10(entry.object.code) == "PTX" and entry.object.ptx > most:
            bad.append(f"/{path} (PTX {'.'.join(map(str, entry.object.ptx))})")
    if bad:
        raise CheckFailed(f"driver {driver} compiles PTX up to {'.'.join(map(str, most))}, newer is {first_few(bad)}")
    return f"{count} libraries with PTX"


@check_kind("static", "nccl-conf", Reads("ours"))
def nccl_conf(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No file from which NCCL silently reads settings for every process. allowed: patterns of exempt files.

    They would override nothing that is visible in the recipe or the environment (NCCL's user guide, nccl.conf).
    """
    home = context.image.env.get("HOME") or "/"
    at_home = [context.tree.resolve(home)] if context.tree.exists(home) else []
    names = dict.fromkeys([*_NCCL_FILES, *(f"{folder}/.nccl.conf".lstrip("/") for folder in at_home)])
    paths = [path for path in names if (entry := context.tree.get(path)) and context.is_ours(entry.layer)]
    named = context.image.env.get("NCCL_CONF_FILE")
    bad = [f"/{path}" for path in paths if not allowed_by(path, allowed)]
    if named and not allowed_by(named.lstrip("/"), allowed):
        bad.append(f"NCCL_CONF_FILE={named}")
    if bad:
        raise CheckFailed(f"NCCL reads settings that no recipe shows: {first_few(bad)}")
    return "none"


@check_kind("static", "flashinfer", Reads())
def flashinfer(context: Context) -> str:
    """FlashInfer's kernels (flashinfer-cubin, flashinfer-jit-cache) are of the version of flashinfer-python.

    The package compares them as it is imported, unless FLASHINFER_DISABLE_VERSION_CHECK is set: then it loads kernels
    of another version.
    """
    versions = {normal(name): version for _, name, version, _ in installed(context) if normal(name) in _FLASHINFER}
    plain = {name: version.partition("+")[0] for name, version in versions.items()}
    if len(set(plain.values())) > 1:
        raise CheckFailed(", ".join(f"{name} {version}" for name, version in sorted(versions.items())))
    return f"FlashInfer {next(iter(plain.values()))}" if plain else "not installed"


@check_kind("static", "compile-jobs", Reads())
def compile_jobs(context: Context, *, most: int = 20) -> str:
    """Where FlashInfer compiles kernels at the first start, the number of compilers is limited, to at most `most`.

    Without MAX_JOBS it starts one nvcc of 3 to 8 GB for each core, beside a loaded model.
    """
    if not any(normal(name) == "flashinfer-python" for _, name, _, _ in installed(context)):
        return "FlashInfer is not installed"
    if not context.tree.match("usr/local/cuda*/bin/nvcc"):
        return "there is no nvcc"
    jobs, threads = (context.image.env.get(name, "") for name in ("MAX_JOBS", "FLASHINFER_NVCC_THREADS"))
    if not re.fullmatch("[1-9][0-9]?", jobs) or int(jobs) > most:
        raise CheckFailed(f"MAX_JOBS is {jobs or 'not set'}: FlashInfer starts {jobs or 'an nvcc for each core'}")
    if threads not in ("", "1"):
        raise CheckFailed(f"FLASHINFER_NVCC_THREADS={threads} multiplies what MAX_JOBS allows")
    return f"at most {jobs} at once"


@check_kind("static", "driver", Reads(keeps=lambda image, args: LOADER_FILES, scan=ELF))
def driver(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No libcuda, and no stub of it, where the loader looks: a process would load it in place of the host's driver.

    allowed: patterns of exempt files. A base's own forward compatibility (compat) is not one of ours, and passes.
    """
    bad = []
    for path in searched(context):
        if _DRIVER.search(path) and not allowed_by(path, allowed):
            real = context.tree.resolve(path)
            if "/stubs/" in f"/{path}/{real}" or context.is_ours(context.tree.stat(path).layer):
                bad.append(f"/{path}")
    if bad:
        raise CheckFailed(f"in place of the host's driver the loader finds {first_few(bad)}")
    return "the driver is the host's"


@check_kind("static", "extension-module", Reads(scan=ELF))
def extension_module(context: Context, *, module: str) -> str:
    """A compiled Python module is installed, for aarch64, and its GPU code, if it has any, is for sm_121."""
    path = module.replace(".", "/")
    found = context.tree.match(f"*-packages/{path}.*.so")
    if len(found) != 1:
        raise PathNotFound(f"{path}.*.so" if not found else f"one {path}.*.so", " in a folder of packages")
    return f"/{found[0]}: {describe(_compiled(context, found[0]))}"


@check_kind("static", "flashinfer-modules", Reads(scan=ELF))
def flashinfer_modules(context: Context) -> str:
    """FlashInfer's compiled modules lie where it looks for them, for aarch64, with GPU code for sm_121 alone."""
    found = context.tree.match("*-packages/flashinfer/data/aot/*/*.so")
    if not found:
        raise PathNotFound("flashinfer/data/aot/*/*.so", " in a folder of packages")
    for path in found:
        folder, _, name = path.rpartition("/")
        if name != f"{folder.rpartition('/')[2]}.so":
            raise CheckFailed(f"FlashInfer does not look for /{path}: file and folder have different names")
        code = _compiled(context, path)
        if {arch.rstrip("af") for arch in code} != {"sm_121"}:
            raise CheckFailed(f"/{path} has not only code for sm_121: {describe(code)}")
    return f"{len(found)} modules"


def _compiled(context: Context, path: str) -> Mapping[str, int]:
    """The GPU code of a library for aarch64, which has none or some for sm_121. Raises CheckFailed."""
    entry = context.tree.stat(path)
    if entry.machine != AARCH64:
        raise CheckFailed(f"/{path} is for {machine_name(entry.machine or 0)}, not aarch64")
    if entry.object is None:
        raise CheckNotRun(f"/{path} was not read")
    code: Mapping[str, int] = entry.object.code
    if code and runs_on_gb10(code) != "sm_121":
        raise CheckFailed(f"/{path} has no code for sm_121: {describe(code)}")
    return code
