"""A small project whose image runs: Debian's Python, CUDA's assembler and a wheel with a library, all real; vLLM,
torch and Triton are stubs of a few lines with the behaviour that checks use."""

from __future__ import annotations

from typing import Any

from builder.store.store import Store
from tests.integration.sabotage_project import Tools, locked, locked_wheels, project, static
from tests.support.arm64 import arm64_nccl
from tests.support.images import SM_121, elf, fatbin
from tests.support.project import Sample
from tests.support.wheels import wheel

DEBS = (
    "base-files", "base-passwd", "ca-certificates", "dash", "gcc-14-base", "libc6", "libexpat1", "libffi8", "libgcc-s1",
    "libpython3.13-minimal", "libpython3.13-stdlib", "libstdc++6", "python3-minimal", "python3.13-minimal", "zlib1g",
)  # fmt: skip

# The comments are room: cases replace text without changing the size that the wheel's RECORD has.
VLLM = """
__version__ = "0.20.0"  # room for what a module has to say at once
"""

# Python and its parser of options take seconds under qemu.
SERVE = """#!/bin/sh
if [ "$3" = --help ] || [ "$2" = --help ]; then echo "usage: vllm serve MODEL [--port PORT]"; exit; fi
[ "$1" = serve ] || exit 2  # and nothing else
[ -e /dev/nvidiactl ] || { echo "RuntimeError: Failed to infer device type" >&2; exit 1; }
"""

TORCH = """
import ctypes
__version__ = "2.11.0"
# Where the DT_RPATH of libtorch_cuda.so leads.
nccl = ctypes.CDLL(__file__.removesuffix("torch/__init__.py") + "nvidia/nccl/lib/libnccl.so.2")
"""

TRITON = """
import os
class Tool:
    def __init__(self, path):
        self.path = path
def get_ptxas(arch):
    name = "ptxas-blackwell" if arch >= 100 else "ptxas"
    own = __file__.removesuffix("compiler.py") + "bin/" + name
    return Tool(os.environ.get("TRITON_" + name.upper().replace("-", "_") + "_PATH", own))
"""

CFFI = "import _cffi_backend as c; print(c.sizeof(c.new_primitive_type('int64_t')))"


def cpu(name: str, kind: str, /, **args: Any) -> dict[str, Any]:
    """A check of the cpu tier in its YAML form."""
    return {"id": name, "tier": "cpu", "kind": kind, "args": args}


class Running(Tools):
    """A fake engine whose NCCL is a library that can be loaded."""

    nccl = arm64_nccl(22907, gpu=fatbin(SM_121))


def running(store: Store) -> Sample:
    """The project; stub wheels are put into the store."""
    made = project(store)
    del made.files["recipes/locks/audio-0.20.0-cp313.json"]
    made.files["recipes/locks/real-root.json"] = {**locked("trixie-root-arm64", *DEBS), "name": "real-root"}
    real = {**locked("vllm-0.20.0-cp313", "cffi"), "name": "real-libraries"}
    made.files["recipes/locks/real-libraries.json"] = real
    nccl = arm64_nccl(22809, gpu=fatbin((2, 120, 0)))
    packages = ("triton", "triton/backends", "triton/backends/nvidia")
    triton = {f"{name}/__init__.py": "" for name in packages} | {
        "triton/backends/nvidia/compiler.py": TRITON,
        "triton/backends/nvidia/bin/ptxas": "replaced by a link",
    }
    torch = elf(needed=["libnccl.so.2", "libc.so.6"], rpath="$ORIGIN/../../nvidia/nccl/lib")
    wheels = {
        "torch 2.11.0": wheel(
            "torch", {"torch/__init__.py": TORCH, "torch/lib/libtorch_cuda.so": torch}, version="2.11.0"
        ),
        "nvidia-nccl-cu13 2.28.9": wheel("nvidia-nccl-cu13", {"nvidia/nccl/lib/libnccl.so.2": nccl}, version="2.28.9"),
        "triton 3.6.0": wheel("triton", triton, version="3.6.0"),
        "vllm 0.20.0": wheel("vllm", {"vllm/__init__.py": VLLM, "{data}/scripts/vllm": SERVE}, version="0.20.0"),
    }
    made.files["recipes/locks/made.json"] = {**real, "name": "made", "wheels": locked_wheels(wheels, store)}
    made.files["recipes/bases/real.yaml"]["checks"] = [
        static("vllm-version", "distribution", name="vllm", version="0.20.0"),
        cpu("torch-import", "import", module="torch", version="2.11.0"),
        cpu("vllm-import", "import", module="vllm", version="0.20.0"),
        cpu("cffi-computes", "python", code=CFFI, output="8"),
        cpu("serve-help", "command", argv=["vllm", "serve", "--help"], matches="--port"),
        cpu("starts-without-gpu", "fails-without-gpu"),
        cpu("non-root", "non-root", modules=["torch", "_cffi_backend"]),
        cpu("log", "log"),
    ]
    base = made.files["recipes/bases/real.yaml"]
    # Sets a user without an entry in passwd, like hermetic bases.
    base["env"]["LOGNAME"] = "vllm"
    made.files["recipes/real.yaml"]["layers"] = ["nccl", "ptxas", "marlin", "entrypoint"]
    return made
