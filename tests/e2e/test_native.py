"""Two of NCCL's objects, compiled by the cross toolchain and by the native arm64 one: the same bytes.

The whole layer, compiled both ways, has one digest too; under qemu that takes an hour, so the nightly job compiles one
kernel and one C++ file, linked and stripped with the layer's own arguments.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builder.engine.interface import host_architecture
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.nightly import nightly

pytestmark = [pytest.mark.qemu, pytest.mark.slow, nightly]

OBJECTS = "obj/misc/param.o"
KERNEL = "obj/device/onerank.cu.o"
LIBRARIES = "-L/usr/local/cuda/targets/sbsa-linux/lib -lcudart_static -lpthread -lrt -ldl"


def layer_arguments() -> list[str]:
    """The arguments of `make src.build` in the layer's Dockerfile."""
    project = Project()
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    text = next(layer.stages for layer in plan.layers if layer.id == "nccl").replace("\\\n", " ")
    line = next(line for line in text.splitlines() if " make " in line)
    return [word for word in shlex.split(line) if "=" in word]


def compile_in(root: Path, context: Path, architecture: str) -> dict[str, str]:
    """Compile and link in a chroot of one toolchain; returns hashes by name."""
    root.mkdir()
    subprocess.run(["tar", "-xf", str(context / f"toolchain-{architecture}.tar"), "-C", str(root)], check=True)
    (root / "src").mkdir()
    shutil.copy(next((context / "inputs").glob("nccl-*.tar.gz")), root / "src" / "nccl.tar.gz")
    build = "/src/nccl/build"
    words = shlex.join([*layer_arguments(), f"BUILDDIR={build}", "ONLY_FUNCS=AllReduce Sum f32 RING LL"])
    script = "\n".join(
        [
            "set -e; umask 022; cd /src; tar -xzf nccl.tar.gz --no-same-owner; mv nccl-* nccl; cd nccl/src",
            f"make -j2 {words} {' '.join(f'{build}/{name}' for name in OBJECTS.split())}",
            f"make -C device {words} {build}/{KERNEL}",
            f"cd {build}",
            f"nvcc -ccbin aarch64-linux-gnu-g++ -gencode=arch=compute_121,code=sm_121 -dlink {KERNEL} -o obj/glue.o",
            f"aarch64-linux-gnu-g++ -shared -Wl,--build-id=none -o few.so {OBJECTS} {KERNEL} obj/glue.o {LIBRARIES}",
            f"for f in few.so {OBJECTS} {KERNEL}; do aarch64-linux-gnu-strip --strip-unneeded -R .comment $f; done",
        ]
    )
    (root / "script").write_text(script)
    mounts = f"mount --bind /dev {root}/dev && mount -t proc proc {root}/proc"
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    inner = f"{mounts} && exec chroot {root} env -i {path} LC_ALL=C TZ=UTC sh /script"
    done = subprocess.run(
        ["unshare", "-m", "-n", "sh", "-ec", inner], capture_output=True, text=True, check=False, timeout=2400
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    names = ["few.so", *OBJECTS.split(), KERNEL]
    return {name: hashlib.sha256((root / build[1:] / name).read_bytes()).hexdigest() for name in names}


def test_cross_and_native_compilers_give_the_same_bytes(context: Path, folder: Path) -> None:
    assert host_architecture() in ("amd64", "arm64")
    roots = {
        name: folder / f"root-{name}"
        for name in ("amd64", "arm64")
        if name == "arm64" or host_architecture() == "amd64"
    }
    with ThreadPoolExecutor(2) as pool:
        hashes = dict(zip(roots, pool.map(lambda name: compile_in(roots[name], context, name), roots), strict=True))
    for root in roots.values():
        shutil.rmtree(root)
    assert len(hashes) == 2, "the cross toolchain runs on amd64 machines only"
    assert hashes["amd64"] == hashes["arm64"]
