"""The cpu checks of the CUDA user space: the libnccl that torch maps, Triton's ptxas, FlashInfer's modules."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.cpu.execution import Execution, last_line_is, require_status
from builder.smoke.probes.allreduce import mapped
from builder.versions import nccl_version, same_nccl

_MAPPED = f"import ctypes, torch\n{inspect.getsource(mapped)}print(mapped())\n"


@check_kind("cpu", "nccl-mapped")
def nccl_mapped(check: Check, *, under: str = "/opt/nccl", version: str | None = None) -> Execution:
    """After `import torch`, exactly one libnccl is in memory: a file below `under`, of this version.

    torch.cuda.nccl.version() is the version that torch was compiled with; only ncclGetVersion of the mapped file tells
    which one runs.
    """

    def judge(status: int, output: str) -> str:
        require_status(status, output)
        found: dict[str, int] = _literal(output.strip().rpartition("\n")[2])
        versions = {path: nccl_version(number) for path, number in found.items()}
        text = ", ".join(f"{path} ({name})" for path, name in versions.items()) or "none"
        if len(versions) != 1 or not next(iter(versions)).startswith(under.rstrip("/") + "/"):
            raise CheckFailed(f"libnccl in memory: {text}; expected one below {under}")
        if version is not None and not same_nccl(next(iter(versions.values())), version):
            raise CheckFailed(f"libnccl in memory: {text}; expected version {version}")
        return text

    return Execution(check, judge, code=_MAPPED)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except SyntaxError as error:
        raise ValueError(f"the output is not a result: {text[-500:]!r}") from error


_ASSEMBLES = """
import os, subprocess, tempfile
path = {path!r}
if path is None:
    from triton.backends.nvidia import compiler
    try:
        tool = compiler.get_ptxas(121)
    except TypeError:
        tool = compiler.get_ptxas()
    path = getattr(tool, "path", None) or tool[0]
with tempfile.TemporaryDirectory() as folder:
    source, target = os.path.join(folder, "a.ptx"), os.path.join(folder, "a.cubin")
    with open(source, "w") as file:
        file.write(".version 8.8\\n.target {arch}\\n.address_size 64\\n.visible .entry kernel()\\n{{\\n ret;\\n}}\\n")
    subprocess.run([path, "-arch={arch}", source, "-o", target], check=True)
    with open(target, "rb") as file:
        head = file.read(64)
    assert head[:4] == b"\\x7fELF" and head[18] == 190, "the output of ptxas is not a cubin"
    # The second byte of the flags since ABI version 8 (from 12.9 on, for targets that are new there), else the first.
    number = head[49] if head[8] >= 8 else head[48]
    assert number == {number}, "ptxas made code for sm_%d instead of {arch}" % number
print(path)
"""


@check_kind("cpu", "ptxas-assembles")
def ptxas_assembles(check: Check, *, arch: str = "sm_121a", path: str | None = None) -> Execution:
    """The ptxas that Triton calls for compute capability 12.1 (or the one at `path`) assembles a kernel for `arch`.

    The cubin must be for `arch` too: wrappers exist that assemble for an older architecture instead.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not match:
        raise InvalidError(f"check {check.id} ({check.kind}): not an architecture: {arch}", id="check-arch-wrong")
    code = _ASSEMBLES.format(path=path, arch=arch, number=int(match[1]))
    return Execution(check, last_line_is(None), code=code)


_LOADS = """
import ctypes, os, subprocess, tempfile
with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"FLASHINFER_CUDA_ARCH_LIST": "12.1a", "FLASHINFER_DISABLE_JIT": "1"}
    os.environ["FLASHINFER_WORKSPACE_BASE"] = folder
    driver = os.path.join(folder, "libcuda.so.1")
    words = ["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull]
    subprocess.run(["gcc", *words, "-o", driver], check=True)
    ctypes.CDLL(driver, ctypes.RTLD_GLOBAL)
    from flashinfer.jit import core, env
    names = sorted(path.stem for path in env.FLASHINFER_AOT_DIR.glob("*/*.so"))
    for name in names:
        core.gen_jit_spec(name, []).build_and_load()
        with open("/proc/self/maps") as maps:
            assert f"{env.FLASHINFER_AOT_DIR}/{name}/{name}.so" in maps.read(), f"{name} was loaded from elsewhere"
    assert names, f"{env.FLASHINFER_AOT_DIR} has no module"
print(", ".join(names))
"""


@check_kind("cpu", "flashinfer-loads")
def flashinfer_loads(check: Check) -> Execution:
    """FlashInfer loads each of its modules in the image and compiles none. An empty library replaces the driver."""
    return Execution(check, last_line_is(None), code=_LOADS, alone=True)
