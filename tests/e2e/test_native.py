"""Two of NCCL's objects and a small extension, compiled by the cross toolchain and by the native arm64 one: the same
bytes.

The whole layer of NCCL, compiled both ways, has one digest too; under qemu that takes an hour, so the nightly job
compiles one kernel and one C++ file, linked and stripped with the layer's own arguments.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builder.engine.interface import host_architecture
from builder.model.plan import PlannedLayer
from builder.plan.resolve import resolve
from builder.project import Project
from builder.store.store import Store
from tests.e2e import small_project
from tests.support.cache import seed_inputs
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
    run_in(root, context, script)
    names = ["few.so", *OBJECTS.split(), KERNEL]
    return {name: hashlib.sha256((root / build[1:] / name).read_bytes()).hexdigest() for name in names}


def run_in(root: Path, context: Path, script: str) -> None:
    """Run a script in a chroot, as an engine runs a stage's steps: with the context and without network."""
    (root / "script").write_text(script)
    (root / "context").mkdir()
    mounts = f"mount --bind /dev {root}/dev && mount -t proc proc {root}/proc && mount --bind {context} {root}/context"
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    inner = f"{mounts} && exec chroot {root} env -i {path} LC_ALL=C TZ=UTC JOBS=2 sh /script"
    done = subprocess.run(
        ["unshare", "-m", "-n", "sh", "-ec", inner], capture_output=True, text=True, check=False, timeout=2400
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def extension(folder: Path, inputs: Path) -> PlannedLayer:
    """The layer of the small project's extension."""
    roots = (small_project.write_project(folder / "project", Store(inputs)), *Project().roots)
    project = Project(roots)
    plan = resolve(project, project.recipe(small_project.RECIPE))
    return next(layer for layer in plan.layers if layer.layer == "extension")


def compile_extension(root: Path, toolchain: Path, layer: PlannedLayer, store: Store) -> dict[str, str]:
    """Run the layer's steps in a chroot of one toolchain; returns the hashes of its files."""
    root.mkdir()
    subprocess.run(["tar", "-xf", str(toolchain), "-C", str(root)], check=True)
    context = root.with_name(f"{root.name}-context")
    (context / "inputs").mkdir(parents=True)
    for item in layer.inputs:
        shutil.copy(store.blob(item.digest), context / "inputs" / item.file)
    for path, data in layer.context.items():
        (context / path).parent.mkdir(parents=True, exist_ok=True)
        (context / path).write_bytes(data)
    lines = layer.stages.replace("\\\n", " ").splitlines()
    steps = [re.sub(r"^RUN (--mount=\S+ )?", "", line) for line in lines if line.startswith("RUN ")]
    run_in(root, context, "\n".join(["set -e; mkdir -p /src/twice; cd /src/twice", *(f"({step})" for step in steps)]))
    files = sorted(path for path in (root / "out").rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.skipif(host_architecture() != "amd64", reason="the cross toolchain runs on amd64 machines only")
def test_cross_and_native_compilers_give_one_extension(context: Path, folder: Path, inputs: Path) -> None:
    layer, store = extension(folder / "extension", inputs), Store(inputs)
    seed_inputs(item.digest for item in layer.inputs)
    made = {
        name: compile_extension(folder / f"extension-{name}", context / f"toolchain-{name}.tar", layer, store)
        for name in ("amd64", "arm64")
    }
    assert any(name.endswith("/twice/_C.cpython-313-aarch64-linux-gnu.so") for name in made["amd64"])
    assert made["amd64"] == made["arm64"]


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
