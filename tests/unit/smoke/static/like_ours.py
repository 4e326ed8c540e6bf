"""The files of an image like ours, without a plan, and what the static tier finds in it."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from builder.smoke.static.run import run_static
from tests.support.images import SITE, Files, distribution, elf, layout, program, record

SCRIPT = program(b"#!/usr/bin/python3\n")
LIB = elf()
PACKAGES: Files = {f"{SITE}/vllm/__init__.py": b"good", f"{SITE}/nvidia/cudnn/lib/libcudnn_ops.so.9": LIB}
ROOT: Files = {
    "usr/bin/python3": program(LIB),
    "usr/bin/vllm": SCRIPT,
    "usr/bin/uname": program(LIB),
    "usr/lib/libx.so.1": LIB,
    "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n",
    **distribution("vllm", "0.20.0", PACKAGES),
    **PACKAGES,
}
PATH = "PATH=/usr/local/cuda/bin:/usr/local/bin:/usr/bin"
NCCL: Files = {"opt/nccl/lib/libnccl.so.2": LIB, "etc/ld.so.conf.d/000-nccl.conf": b"/opt/nccl/lib\n"}
CUDA: Files = {"usr/local/cuda/bin/nvcc": program(LIB), "usr/local/cuda/include/cuda.h": b""}


def found(where: Path, layers: list[Files], *words: str, **settings: Any) -> dict[str, str]:
    """The messages of the checks that did not pass."""
    image = layout(
        where / "image", list(layers), **{"Env": [PATH, *words], "Entrypoint": ["vllm", "serve"], **settings}
    )
    return {row.kind: row.message for row in run_static(image, None, []).results if row.status != "pass"}


def wheel(files: Files, name: str = "x") -> Files:
    """A distribution whose RECORD lists these files, wherever they are."""
    made = distribution(name, "1", {})
    rows = b""
    for path, what in files.items():
        _, _, rest = record({path: what}).partition(b",")
        rows += f"{posixpath.relpath(path, SITE)},".encode() + rest
    listed = f"{SITE}/{name}-1.dist-info/RECORD"
    return {**made, listed: made[listed] + rows, **files}  # type: ignore[operator]
