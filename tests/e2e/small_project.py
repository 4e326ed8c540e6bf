"""A recipe whose image has every kind of layer and of Dockerfile stage, but little to compile.

The toolchain, the root and CUDA's compiler are this repository's own, in full. NCCL is replaced by a C program and one
kernel, the wheels of vLLM to a few small ones.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from builder.store.store import Store
from tests.e2e import small_extension, small_flashinfer
from tests.support.project import ROOT, Sample, write_files
from tests.support.tars import tar

RECIPE = "small"
WHEELS = ("jinja2", "markupsafe", "msgspec", "numpy", "tqdm")
"""Python alone, with a library, with console scripts."""

EXTENSION = {"name": "twice", "version": "1.0", "module": small_extension.MODULE}
FLASHINFER = {"modules": [small_flashinfer.MODULE]}
PROGRAM = '#include <stdio.h>\n#include "greeting.h"\nint main(void) { return puts(GREETING) < 0; }\n'
KERNEL = "__global__ void twice(float *x) { x[threadIdx.x] *= 2; }\n"

DOCKERFILE = """FROM toolchain AS {{ id }}-build
ARG JOBS
WORKDIR /src
RUN --mount=type=bind,target=/context tar -xzf /context/inputs/{{ source('hello') }} --no-same-owner \\
    && cp /context/layers/hello/greeting.h hello-1.0/
RUN umask 022 && cd hello-1.0 && mkdir -p /out/opt/hello/bin \\
    && make -j"${JOBS:-$(nproc)}" GREETING={{ params.greeting | sh }} \\
    && install -m 0755 hello /out/opt/hello/bin/ && install -m 0644 twice.cubin /out/opt/hello/ \\
    && ln -s bin/hello /out/opt/hello/run
{{ place_files('/out') }}

FROM scratch AS {{ id }}
COPY --from={{ id }}-build /out /
"""

MAKEFILE = """all: hello twice.cubin
hello: hello.c
\taarch64-linux-gnu-gcc -O2 -Wl,--build-id=none '-DGREETING="$(GREETING)" END' $< -o $@
twice.cubin: twice.cu
\tnvcc -ccbin aarch64-linux-gnu-g++ -arch=sm_121 -cubin $< -o $@
"""


def source() -> bytes:
    """The program's source archive."""
    files = {"hello.c": PROGRAM, "twice.cu": KERNEL, "Makefile": MAKEFILE}
    return gzip.compress(tar({f"hello-1.0/{name}": text for name, text in files.items()}), mtime=0)


def some_wheels(section: str) -> dict[str, Any]:
    """A section of this repository's lock with only the small wheels."""
    data: dict[str, Any] = json.loads((ROOT / "recipes" / "locks" / f"{section}.json").read_text("utf-8"))
    data["wheels"] = [item for item in data["wheels"] if item["name"] in WHEELS]
    assert len(data["wheels"]) == len(WHEELS), [item["name"] for item in data["wheels"]]
    return {**data, "name": "small-wheels"}


def write_project(folder: Path, *stores: Store) -> Path:
    """Write the project, for BUILDER_PROJECT; everything else comes from this repository.

    Its only input of its own is put into the stores.
    """
    made = Sample()
    sources = {"hello/1.0": source(), "twice/1.0": small_extension.source()}
    for store in stores:
        for archive in sources.values():
            store.put(archive)
    made.add_sources(sources)
    made.files |= {
        "recipes/locks/small-wheels.json": some_wheels("vllm-0.20.0-cp313"),
        f"recipes/locks/{small_extension.SECTION}.json": small_extension.section(*stores),
        "dockerfiles/layers/hello/layer.yaml": {
            "name": "hello",
            "title": "A program and a kernel",
            "producer": "dockerfile",
            "families": ["hermetic"],
            "parameters": {
                "greeting": {"type": "text", "pattern": "[A-Za-z $&|()]+", "default": "a (b) | c", "help": "greeting"}
            },
            "inputs": {"toolchain": True, "sources": ["hello/1.0"]},
            "files": [
                {"path": "etc/hello.conf", "content": "greeting = yes\n"},
                {"path": "opt/hello/current", "link": "/opt/hello/bin"},
            ],
            "env": [{"name": "HELLO", "value": "$HOME is not replaced"}],
            "labels": [{"name": "org.example.hello", "value": "{{ params.greeting }}"}],
        },
        "dockerfiles/layers/hello/Dockerfile.j2": DOCKERFILE,
        "dockerfiles/layers/hello/greeting.h": "#define END\n",
        "recipes/bases/small.yaml": {
            "name": "small",
            "family": "hermetic",
            "title": "Few wheels",
            "vllm": "0.20.0",
            "python": "3.13",
            "site": "/usr/local/lib/python3.13/dist-packages",
            "triton": "3.6.0",
            "entrypoint": "vllm-serve",
            "path": ["/usr/local/cuda/bin", "/usr/local/bin", "/usr/bin"],
            "env": {"LANG": "C.UTF-8"},
            "layers": [
                {"root": {"lock": "trixie-root-arm64"}},
                {"cuda": {"lock": "cuda-13.0-arm64"}},
                {"wheels": {"lock": "small-wheels", "group": "numpy", "only": ["numpy"]}},
                {"wheels": {"lock": "small-wheels", "group": "other"}},
            ],
        },
        "recipes/small.yaml": {
            "name": RECIPE,
            "title": "A small image",
            "model": {"id": "someone/small"},
            "base": "small",
            "layers": [
                "hello",
                {"extension": EXTENSION},
                {"flashinfer": FLASHINFER},
                "ptxas",
                "marlin",
                "audio",
                "entrypoint",
            ],
            "env": {"LAST": "word"},
            "serve": {"model": "someone/small", "flags": {"port": 8000}},
        },
    }
    return write_files(folder, made.files)
