"""A small project whose image has real files: Debian's C and C++ libraries, Python and setuid programs for arm64,
wheels with libraries, CUDA code and the assembler; and stubs of torch, Triton and NCCL in the form that checks read.

Inputs come from this repository's locks, by hash, and are kept below ~/.cache/builder-tests.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from builder.engine.interface import BuildRequest
from builder.plan.resolve import resolve
from builder.produce.image import Built, build_image
from builder.store.store import Store
from tests.support.debs import PASSWD, deb
from tests.support.engine import FakeEngine
from tests.support.images import SM_121, elf, fatbin
from tests.support.project import ROOT, Sample, hashed, sample, shipped
from tests.support.tars import File, Link, Members
from tests.support.wheels import wheel, wheel_name

SITE = "usr/local/lib/python3.13/dist-packages"
DEBS = (
    "base-files", "base-passwd", "ca-certificates", "dash", "gcc-14-base", "libc6", "libexpat1", "libgcc-s1",
    "libstdc++6", "libpython3.13-minimal", "passwd", "python3-minimal", "python3.13-minimal", "util-linux", "zlib1g",
)  # fmt: skip
WHEELS = {"real-libraries": ("torchaudio", "msgspec"), "audio-0.20.0-cp313": ("av", "soundfile", "soxr")}
NVCC = "nvidia-cuda-nvcc"


def locked(section: str, *names: str) -> dict[str, Any]:
    """A section of this repository's lock with only these packages."""
    data: dict[str, Any] = json.loads((ROOT / "recipes" / "locks" / f"{section}.json").read_text("utf-8"))
    members = "packages" if data["kind"] == "debs" else "wheels"
    data[members] = [item for item in data[members] if item.get("package", item.get("name")) in names]
    assert len(data[members]) == len(names), sorted(names)
    return data


def static(name: str, kind: str, /, **args: Any) -> dict[str, Any]:
    """A static check in its YAML form."""
    return {"id": name, "tier": "static", "kind": kind, "args": args}


def made_wheels() -> dict[str, bytes]:
    """Stub wheels by name and version, for wheels that are too large, in the form that checks read."""
    torch = elf(needed=["libnccl.so.2", "libc.so.6"], rpath="$ORIGIN/../../nvidia/nccl/lib")
    blackwell = elf(more=b"Cuda compilation tools, release 12.9, V12.9.86\0sm_121a\0")
    script = "[console_scripts]\nvllm = vllm:main\n"
    return {
        "torch 2.11.0": wheel("torch", {"torch/lib/libtorch_cuda.so": torch}, version="2.11.0"),
        "nvidia-nccl-cu13 2.28.9": wheel(
            "nvidia-nccl-cu13", {"nvidia/nccl/lib/libnccl.so.2": elf(gpu=fatbin((2, 120, 0)))}, version="2.28.9"
        ),
        "triton 3.6.0": wheel(
            "triton",
            {
                "triton/backends/nvidia/bin/ptxas": elf(more=b"release 12.8, V12.8.93\0sm_120a\0"),
                "triton/backends/nvidia/bin/ptxas-blackwell": blackwell,
            },
            version="3.6.0",
            modes={f"triton/backends/nvidia/bin/ptxas{suffix}": 0o755 for suffix in ("", "-blackwell")},
        ),
        "vllm 0.20.0": wheel("vllm", {"vllm/__init__.py": "def main(): ...\n"}, version="0.20.0", entry_points=script),
    }


def project(store: Store) -> Sample:
    """The project; stub wheels are put into the store."""
    made = Sample(files=dict(sample().files))
    for name in list(made.files):
        if name.startswith(("recipes/", "dockerfiles/layers/")):
            del made.files[name]
    layers = ("root", "wheels", "nccl", "ptxas", "marlin", "audio", "entrypoint")
    made.files |= shipped(*(f"dockerfiles/layers/{name}/layer.yaml" for name in layers))
    made.files |= shipped("dockerfiles/layers/nccl/Dockerfile.j2")
    for path in sorted((ROOT / "dockerfiles" / "layers" / "nccl").rglob("*")):
        if path.is_file():
            made.files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    made.files["dockerfiles/layers/toolchain/layer.yaml"] = sample().files["dockerfiles/layers/toolchain/layer.yaml"]
    made.files["dockerfiles/layers/cuda/layer.yaml"] = {
        "name": "cuda",
        "title": "The assembler",
        "producer": "dockerfile",
        "inputs": {"wheels": [{"lock": "cuda-tools"}]},
        "env": [{"name": "CUDA_HOME", "value": "/usr/local/cuda"}],
        "checks": [static("ptxas-file", "file", path="/usr/local/cuda/bin/ptxas", executable=True)],
    }
    made.files["dockerfiles/layers/cuda/Dockerfile.j2"] = "FROM scratch AS {{ id }}\nCOPY ptxas /\n"
    made.files["recipes/bases/real.yaml"] = {
        "name": "real",
        "family": "hermetic",
        "title": "Real libraries",
        "aliases": ["hermetic"],
        "vllm": "0.20.0",
        "python": "3.13",
        "site": f"/{SITE}",
        "nccl": "wheel",
        "triton": "3.6.0",
        "entrypoint": "vllm-serve",
        "path": ["/usr/local/cuda/bin", "/usr/local/bin", "/usr/bin"],
        "env": {"VLLM_USE_DEEP_GEMM": "0"},
        "layers": [
            {"root": {"lock": "real-root"}},
            "cuda",
            {"wheels": {"lock": "made", "group": "torch"}},
            {"wheels": {"lock": "real-libraries", "group": "libraries"}},
        ],
        "checks": [
            static("vllm-version", "distribution", name="vllm", version="0.20.0"),
            static("links", "no-dangling-links", prefix="/opt"),
        ],
    }
    made.files["recipes/real.yaml"] = {
        "name": "real",
        "title": "A real small image",
        "model": {"id": "someone/small"},
        "base": "real",
        "layers": ["nccl", "ptxas", "marlin", "audio", "entrypoint"],
        "serve": {"model": "someone/small", "flags": {"port": 8000}},
        "checks": [static("nccl-is-small", "layer-budget", layer="nccl", most_mb=1)],
    }
    made.files["recipes/locks/real-root.json"] = {**locked("trixie-root-arm64", *DEBS), "name": "real-root"}
    made.files["recipes/locks/cuda-tools.json"] = {**locked("cuda-13.0-arm64", NVCC), "name": "cuda-tools"}
    real = {**locked("vllm-0.20.0-cp313", *WHEELS["real-libraries"]), "name": "real-libraries"}
    made.files["recipes/locks/real-libraries.json"] = real
    made.files["recipes/locks/audio-0.20.0-cp313.json"] = locked("audio-0.20.0-cp313", *WHEELS["audio-0.20.0-cp313"])
    made.files["recipes/locks/made.json"] = {**real, "name": "made", "wheels": locked_wheels(made_wheels(), store)}
    made.add_sources({"nccl/2.29.7-1": b"sources"})
    store.put(b"sources")
    for architecture in ("amd64", "arm64"):
        data = deb("base-passwd", {**PASSWD, "usr/bin/make": architecture})
        made.add_debs(f"toolchain-{architecture}", {"base-passwd": data}, architecture)
        store.put(data)
    return made


def locked_wheels(wheels: Mapping[str, bytes], store: Store) -> list[dict[str, Any]]:
    """Lock entries of stub wheels, by name and version; puts the wheels into the store."""
    entries = []
    for key, data in wheels.items():
        name, version = key.split()
        entries.append({"name": name, "version": version, "file": wheel_name(name, version), **hashed(data)})
        store.put(data)
    return entries


class Tools(FakeEngine):
    """A fake engine: takes the assembler from its wheel, and writes an NCCL in the form that checks read."""

    nccl = elf(
        soname="libnccl.so.2",
        needed=["libc.so.6"],
        gpu=fatbin(SM_121),
        versions={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.34"], "libstdc++.so.6": ["GLIBCXX_3.4.29"]},
    )

    def members(self, request: BuildRequest) -> Members:
        """The files of one target."""
        if request.target == "cuda":
            (path,) = (request.context / "inputs").glob("nvidia_cuda_nvcc-*.whl")
            with zipfile.ZipFile(path) as archive:
                return {"usr/local/cuda/bin/ptxas": File(archive.read("nvidia/cu13/bin/ptxas"), 0o755)}
        return {
            "opt/nccl/lib/libnccl.so.2.29.7": File(self.nccl, 0o755),
            "opt/nccl/lib/libnccl.so.2": Link("libnccl.so.2.29.7"),
            f"{SITE}/nvidia/nccl/lib/libnccl.so.2": Link("/opt/nccl/lib/libnccl.so.2"),
            "etc/ld.so.conf.d/000-nccl.conf": b"/opt/nccl/lib\n",
        }


def build(
    folder: Path, project: Callable[[Store], Sample] = project, tools: type[Tools] = Tools
) -> tuple[Built, Store]:
    """The image of a project, built by the product."""
    store = Store(folder / "store")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "builder-tests" / "inputs"
    made = project(store).write(folder / "project")
    plan = resolve(made, made.recipe("real"))
    inputs = [item for layer in plan.layers for item in layer.inputs if item.kind in ("deb", "wheel")]
    for item in inputs:
        kept = cache / "blobs" / "sha256" / item.sha256
        if kept.exists() and not store.has(item.digest):
            shutil.copyfile(kept, store.blob(item.digest))
    built = build_image(
        store,
        plan,
        engine=tools,
        offline=False,
        listener=lambda event: None,
        log=lambda line: None,
        announce=lambda needs: None,
    )
    for item in inputs:
        kept = cache / "blobs" / "sha256" / item.sha256
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f".{kept.name}.{os.getpid()}")
            shutil.copyfile(store.blob(item.digest), part)
            part.replace(kept)
    return built, store
