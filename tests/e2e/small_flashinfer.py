"""A small FlashInfer for the small project: a generator of one module, with a file that it has and one that it makes.

Its interface to the layer `flashinfer` is that of FlashInfer 0.6.8 to 0.7; the sources take no time to compile.
"""

from __future__ import annotations

MODULE = "norm"
CORE = """
import os, subprocess
from pathlib import Path
import jinja2, torch, tvm_ffi
from filelock import FileLock

DATA = Path(__file__).resolve().parents[1] / "data"
KERNEL = jinja2.Template(
    '#include "norm.h"\\ntemplate <typename T> __global__ void {{ name }}(T *x) { x[threadIdx.x] /= 2; }\\n'
    'void launch() { {{ name }}<float><<<1, 1>>>(nullptr); if (cuInit(0)) throw __FILE__; }\\n'
)

class JitSpec:
    name, needs_device_linking, extra_ldflags = "norm", False, ["-lnvrtc", "-lcuda"]

    def __init__(self, dtype: torch.dtype | None = None):
        made = Path(os.environ["FLASHINFER_WORKSPACE_BASE"], "generated", "norm.cu")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(KERNEL.render(name="norm"))
        self.sources = [made, DATA / "csrc" / "norm.cu"]

    def get_compile_commands(self):
        nvcc = os.environ["CUDA_HOME"] + "/bin/nvcc"
        assert "release 13.0" in subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
        folders = [DATA / "include", tvm_ffi.libinfo.find_include_path(), os.environ["CUDA_HOME"] + "/include"]
        flags = ["-ccbin", os.environ["CC"], *(f"-isystem {each}" for each in folders), "--compiler-options=-fPIC"]
        flags += ["-gencode=arch=compute_121a,code=sm_121a", "-O3", "-Xfatbin=-compress-all"]
        nvcc = os.environ["FLASHINFER_NVCC"]
        return [{"command": f"{nvcc} -c {each} {' '.join(flags)} -o /elsewhere/norm.o"} for each in self.sources]
"""
FILES = {
    "flashinfer/__init__.py": "raise ImportError('the whole library')\n",
    "flashinfer/jit/__init__.py": "from .core import JitSpec\n",
    "flashinfer/jit/core.py": CORE,
    "flashinfer/jit/norm.py": "from .core import JitSpec\n\ndef gen_norm_module():\n    return JitSpec()\n",
    "flashinfer/data/include/norm.h": '#include <ffi.h>\nextern "C" int cuInit(unsigned);\nvoid launch();\n',
    "flashinfer/data/csrc/norm.cu": '#include "norm.h"\nextern "C" int run() { launch(); return 0; }\n',
}
HEADER = {"tvm_ffi/include/ffi.h": "#pragma once\n"}
