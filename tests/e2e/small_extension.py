"""A small extension of torch for the small project: a C++ file, a kernel, a setup.py as projects of the field have it.

The wheels of torch, CUDA's libraries and FlashInfer are replaced by small ones; the rest is real.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from builder.store.store import Store
from tests.e2e import small_flashinfer
from tests.support.project import ROOT, hashed
from tests.support.tars import tar
from tests.support.wheels import wheel, wheel_name

SECTION = "vllm-0.20.0-cp313"
MODULE = "twice._C"
SETUP = """from pathlib import Path
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
import torch
from wheel.bdist_wheel import bdist_wheel

assert torch.version.cuda == "13.0" and not torch.cuda.is_available()
setup(
    name="twice",
    version="1.0",
    packages=find_packages(),
    cmdclass={"bdist_wheel": bdist_wheel, "build_ext": BuildExtension.with_options(use_ninja=True)},
    ext_modules=[
        CUDAExtension(
            "twice._C",
            ["csrc/module.cpp", "csrc/twice.cu"],
            include_dirs=[Path(__file__).resolve().parent / "csrc"],
            extra_compile_args={
                "cxx": ["-O3", "-g", "-march=native"],
                "nvcc": ["-O3", "-lineinfo", "-gencode", "arch=compute_80,code=sm_80", "--threads", "4"],
            },
        )
    ],
)
"""
MODULE_CPP = """#include <Python.h>
#include "torch/answer.h"
#include "twice.h"
static PyObject *answer(PyObject *, PyObject *) { return PyLong_FromLong(launch() + ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", "", -1, methods};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
"""
TWICE_CU = """#include "twice.h"
template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; }
int launch() { twice<float><<<1, 1>>>(nullptr); twice<double><<<1, 1>>>(nullptr); return 0; }
"""
FLAGS = """COMMON_NVCC_FLAGS = ['--expt-relaxed-constexpr']
def write(cflags):
    cflags += ['-std=c++17']
"""
REAL = ("jinja2", "markupsafe", "packaging", "setuptools")
HEADERS = ("nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse", "nvidia-nvtx")


def source() -> bytes:
    """The sdist."""
    files = {
        "setup.py": SETUP,
        "twice/__init__.py": "from twice import _C\n",
        "csrc/module.cpp": MODULE_CPP,
        "csrc/twice.cu": TWICE_CU,
        "csrc/twice.h": "int launch();\n",
    }
    return gzip.compress(tar({f"twice-1.0/{name}": text for name, text in files.items()}), mtime=0)


def section(*stores: Store) -> dict[str, Any]:
    """The lock section of the base's wheels with only what compiled layers need, which go into the stores."""
    data: dict[str, Any] = json.loads((ROOT / "recipes" / "locks" / f"{SECTION}.json").read_text("utf-8"))
    real = [item for item in data["wheels"] if item["name"] in REAL]
    torch = {
        "torch/include/torch/answer.h": "#define ANSWER 42\n",
        "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\nhip = None\n",
        "torch/utils/cpp_extension.py": FLAGS,
    }
    made = {"torch": wheel("torch", torch)}
    made |= {name: wheel(name, {f"nvidia/cu13/include/{name}.h": ""}) for name in HEADERS}
    made |= {"flashinfer-python": wheel("flashinfer-python", small_flashinfer.FILES)}
    made |= {"apache-tvm-ffi": wheel("apache-tvm-ffi", small_flashinfer.HEADER)}
    for store in stores:
        for each in made.values():
            store.put(each)
    small = [{"name": name, "version": "1.0", "file": wheel_name(name), **hashed(each)} for name, each in made.items()]
    return {**data, "wheels": sorted([*real, *small], key=lambda item: str(item["name"]))}
