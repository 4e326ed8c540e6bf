"""The ptxas layer against real Triton wheels: which ptxas each version calls on a GB10, with and without the layer.

Of each wheel only the few members that decide are read, by ranges. Where Triton looks is the same in the wheels for
both architectures; which architectures an assembler knows is asked of the one for this machine.
"""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import requests

from builder.model.plan import PlannedLayer
from builder.model.recipe import LayerUse
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.project import write_files
from tests.support.ranges import RemoteWheel, wheel

pytestmark = [pytest.mark.slow]

PROJECT = Project()
HERE = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}[platform.machine()]
BIN = "triton/backends/nvidia/bin"
CUDA = "usr/local/cuda/bin/ptxas"
SITE = "usr/local/lib/python3.13/dist-packages"
GB10 = 121
VERSIONS = {
    # Triton → the file it calls for compute capability 10 and above
    "3.5.0": "ptxas",
    "3.6.0": "ptxas-blackwell",
    "3.7.1": "ptxas-blackwell",
    "3.8.0": "ptxas-blackwell",
}


def triton(version: str, machine: str = HERE) -> RemoteWheel:
    return wheel("triton", version, "-cp312-cp312-", machine)


def fetch(archive: RemoteWheel, member: str, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if member in archive.namelist():
        target.write_bytes(archive.read(member))
        target.chmod(0o755)
    return target


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    try:
        triton(str(request.param)).namelist()
    except (requests.RequestException, OSError) as error:
        pytest.skip(f"the package index cannot be read by ranges: {type(error).__name__}")
    return str(request.param)


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked compiler's ptxas, which hermetic bases have as CUDA_HOME."""
    section = PROJECT.section("cuda-13.0-amd64" if HERE == "x86_64" else "cuda-13.0-arm64")
    (locked,) = [item for item in section.wheels if item.name == "nvidia-cuda-nvcc"]  # type: ignore[union-attr]
    archive = wheel("nvidia-cuda-nvcc", locked.version, locked.file.removesuffix(".whl").rpartition("-")[2])
    return fetch(archive, "nvidia/cu13/bin/ptxas", tmp_path_factory.mktemp("cuda") / "ptxas")


@pytest.fixture(scope="module")
def members(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The members of the wheel that Triton's choice depends on."""
    folder = tmp_path_factory.mktemp("members")
    for name in (f"{BIN}/ptxas", f"{BIN}/ptxas-blackwell", "triton/knobs.py", "triton/backends/nvidia/compiler.py"):
        fetch(triton(version), name, folder / name)
    return folder


@pytest.fixture
def image(members: Path, cuda: Path, tmp_path: Path) -> Path:
    """The parts of an image with this Triton that the choice depends on."""
    shutil.copytree(members, tmp_path / SITE, copy_function=os.link)
    (tmp_path / CUDA).parent.mkdir(parents=True)
    (tmp_path / CUDA).symlink_to(cuda)
    return tmp_path


def layer(version: str | None, folder: Path) -> PlannedLayer:
    """The ptxas layer on a base with this Triton; None: a base whose Triton is not known."""
    base = PROJECT.base("hermetic-0.20").model_dump(mode="json", exclude_defaults=True)
    # Without its stack, from which the facts follow.
    del base["stack"]
    assert base.pop("triton") == "3.6.0"
    base |= {"triton": version} if version else {}
    write_files(folder, {"recipes/bases/hermetic-0.20.yaml": base})
    use = {"base": "hermetic-0.20", "compatible": (), "layers": (LayerUse(layer="ptxas"),)}
    plan = resolve(Project((folder, PROJECT.roots[-1])), PROJECT.recipe("nemotron-omni").model_copy(update=use))
    return next(item for item in plan.layers if item.layer == "ptxas")


def apply(made: PlannedLayer, image: Path) -> dict[str, str]:
    """The image's files covered by the layer's; and the layer's variables."""
    assert made.spec is not None
    for item in made.spec["files"]:
        path = image / item["path"]
        path.unlink(missing_ok=True)
        path.symlink_to(image / item["link"].lstrip("/"))
    return {item.name: f"{image}{item.value}" for item in made.env}


def chosen(image: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The ptxas that this Triton's own code calls for a GB10: its path, and the version that Triton reports."""
    # libtriton is 200 MB, and of it knobs.py takes two functions of the C library.
    library = types.ModuleType("triton._C.libtriton")
    library.getenv = os.environ.get  # type: ignore[attr-defined]
    library.getenv_bool = os.environ.get  # type: ignore[attr-defined]
    for name in ("triton", "triton._C", "triton._C.libtriton"):
        monkeypatch.setitem(sys.modules, name, library if name.endswith("libtriton") else types.ModuleType(name))
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    path = image / SITE / "triton/knobs.py"
    knobs = types.ModuleType("triton.knobs")
    knobs.__file__ = str(path)
    # Its dataclasses look their module up.
    monkeypatch.setitem(sys.modules, "triton.knobs", knobs)
    exec(compile(path.read_text("utf-8"), path, "exec"), knobs.__dict__)
    source = ast.parse((image / SITE / "triton/backends/nvidia/compiler.py").read_text("utf-8"))
    (function,) = [item for item in source.body if isinstance(item, ast.FunctionDef) and item.name == "get_ptxas"]
    scope: dict[str, Any] = {"knobs": knobs}
    exec("from __future__ import annotations\n" + ast.unparse(function), scope)
    tool = scope["get_ptxas"](*([GB10] if function.args.args else []))
    return str(tool.path), str(tool.version)


def assembles(tool: str, folder: Path) -> bool:
    """Whether this ptxas assembles a kernel for sm_121a."""
    source = folder / "kernel.ptx"
    source.write_text(".version 8.8\n.target sm_121a\n.address_size 64\n.visible .entry kernel()\n{\n ret;\n}\n")
    argv = [tool, "-arch=sm_121a", str(source), "-o", str(folder / "kernel.cubin")]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_both_architectures_have_the_same_tools_in_the_same_place(version: str) -> None:
    names = [triton(version, machine).namelist() for machine in ("aarch64", "x86_64")]
    tools = [{name for name in every if name.startswith(f"{BIN}/")} for every in names]
    assert tools[0] == tools[1]
    assert f"{BIN}/{VERSIONS[version]}" in tools[0]
    assert (f"{BIN}/ptxas-blackwell" in tools[0]) == (VERSIONS[version] == "ptxas-blackwell")


def test_without_the_layer_old_versions_call_an_assembler_that_does_not_know_the_gpu(
    version: str, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, release = chosen(image, {}, monkeypatch)
    assert path == f"{image}/{SITE}/{BIN}/{VERSIONS[version]}"
    old = VERSIONS[version] == "ptxas"
    assert assembles(path, image) is not old
    assert (release == "12.8") is old


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_with_the_layer_every_version_calls_cudas(
    version: str, known: bool, image: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = apply(layer(version if known else None, tmp_path_factory.mktemp("project")), image)
    path, release = chosen(image, env, monkeypatch)
    assert Path(path).resolve() == (image / CUDA).resolve()
    assert release == "13.0"
    assert assembles(path, image)


def test_with_the_layer_an_image_whose_triton_has_no_ptxas_works(
    version: str, image: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NGC 26.04 is such an image."""
    for path in (image / SITE / BIN).iterdir():
        path.unlink()
    with pytest.raises(RuntimeError, match="Cannot find ptxas"):
        chosen(image, {}, monkeypatch)
    env = apply(layer(None, tmp_path_factory.mktemp("project")), image)
    assert Path(chosen(image, env, monkeypatch)[0]).resolve() == (image / CUDA).resolve()


def test_the_old_variable_alone_does_not_reach_new_versions(
    version: str, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = chosen(image, {"TRITON_PTXAS_PATH": f"{image}/{CUDA}"}, monkeypatch)
    assert (path == f"{image}/{CUDA}") == (VERSIONS[version] == "ptxas")
