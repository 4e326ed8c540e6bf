"""The layer `extension`: what it reads, and the flags that it leaves out. Compiled: tests/e2e/small_extension.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from builder.errors import InvalidError, PinError, UsageError
from builder.project import Project
from tests.support.errors import fails
from tests.support.one_layer import planned
from tests.support.project import ROOT, Sample, write_files

FOLDER = ROOT / "dockerfiles/layers/extension"
GIVEN = {"name": "twice", "version": "1.0", "module": "twice._C"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Sample()
    made.add_sources({"twice/1.0": b"source"})
    return Project((write_files(tmp_path / "own", made.files), *Project().roots))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plan_has_the_headers_of_the_base(project: Project) -> None:
    for base, torch in (("hermetic-0.20", "2.11.0"), ("hermetic-0.32", "2.13.0")):
        layer = planned("extension", base, project=project, **GIVEN, environment=["FORCE=1", "PATHS=/a:/b"])
        names = {item.name for item in layer.inputs}
        assert {f"torch {torch}", "twice 1.0"} <= names
        assert any(name.startswith("libpython3.13-dev ") for name in names)
        assert layer.id == "extension-twice"
        assert " FORCE=1 PATHS=/a:/b " in layer.stages


def test_what_cannot_be_compiled_is_refused(project: Project) -> None:
    with fails(PinError, "source-not-locked"):
        planned("extension", "hermetic-0.20", project=project, **{**GIVEN, "version": "2.0"})
    with fails(UsageError, "layer-family-wrong"):
        planned("extension", "vllm-openai-0.20", project=project, **GIVEN)
    for wrong in ({"module": "a b"}, {"environment": ["x"]}, {"environment": ["X=$(id)"]}, {"name": "../x"}):
        with fails(InvalidError, "layer-parameter-invalid"):
            planned("extension", "hermetic-0.20", project=project, **{**GIVEN, **wrong})


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["-O3", "-gencode", "arch=compute_80,code=sm_80", "-DX"], ["-O3", "-DX"]),
        (["-gencode=arch=compute_90a,code=sm_90a", "--generate-code=arch=a,code=b", "-arch=sm_90"], []),
        (["-g", "-g3", "-ggdb", "-lineinfo", "--threads", "4", "-t=8", "-march=native", "-split-compile=4"], []),
        (["-gcc-toolchain", "--use_fast_math", "-std=c++20"], ["-gcc-toolchain", "--use_fast_math", "-std=c++20"]),
    ],
)
def test_flags_that_depend_on_the_machine_or_the_run_are_left_out(words: list[str], kept: list[str]) -> None:
    assert script("build").kept(words) == kept


def test_the_flags_are_those_of_the_bases_torch() -> None:
    text = "COMMON_NVCC_FLAGS = ['-DX']\ndef f(c):\n    c += ['-std=c++17']\n    c += ['-std=c++20']\n"
    assert script("headers").flags(text) == {"nvcc": ["-DX"], "standard": "c++20"}
    with pytest.raises(SystemExit):
        script("headers").flags("pass")
