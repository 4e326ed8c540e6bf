"""Every layer of the hardware's table: the bases it applies to, its error on others, its patch on real files."""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import builder.smoke.gpu.run
import builder.smoke.static.run  # noqa: F401 (both register kinds of checks)
from builder.errors import UsageError
from builder.knowledge.sdist import fetch_sdist
from builder.knowledge.table import load_table
from builder.model.check import Check
from builder.model.plan import PlannedLayer
from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.check import bind_check, find_kind
from builder.smoke.cpu.logs import DECLARES, JUDGES, declarations
from builder.smoke.cpu.run import execution_of
from tests.support.cache import SDISTS
from tests.support.errors import fails
from tests.support.nightly import nightly_but
from tests.support.one_layer import PROJECT, planned
from tests.support.shipped import LAYERS

FOLDER = Path(__file__).resolve().parents[3] / "dockerfiles/layers"
FP8_VERSIONS = ("0.18.1", "0.19.0", "0.20.0", "0.23.0", "0.27.1", "0.31.0", "0.33.0")
W8A8 = "vllm/model_executor/layers/quantization/utils/w8a8_utils.py"


def env(layer: PlannedLayer) -> dict[str, str]:
    return {item.name: item.value for item in layer.env}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_of_the_table_exists_and_has_checks(name: str) -> None:
    layer = PROJECT.layer(name).definition
    assert layer.checks
    assert layer.needs or name in ("entrypoint", "cluster")


@pytest.mark.parametrize(
    ("layer", "base", "before", "why"),
    [
        ("gemma4-loader", "vllm-openai-0.20", (), "0.19.1 and later"),
        ("reasoning-parser", "vllm-openai-0.20", (), "nemotron_v3"),
        ("dflash", "vllm-openai-0.20", (), "0.21.0"),
        ("omni", "hermetic-0.20", (), "audio layer"),
        ("omni", "ngc-26.04", (), "families|family"),
        ("ray", "vllm-openai-0.31.0", (), "lock"),
        ("audio", "vllm-openai-0.24.0", (), "lock"),
    ],
)
def test_a_layer_that_does_not_apply_is_refused_with_the_reason(
    layer: str, base: str, before: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        planned(layer, base, *before)
    assert any(word in caught.value.cause for word in why.split("|"))


def ngc_without(folder: Path, *keys: str) -> Project:
    """A project whose ngc-26.09 lacks the facts `keys`."""
    text = (PROJECT.roots[-1] / "recipes/bases/ngc-26.09.yaml").read_text("utf-8")
    kept = [line for line in text.splitlines(keepends=True) if line.partition(":")[0] not in keys]
    assert len(kept) == len(text.splitlines()) - len(keys)
    (folder / "recipes/bases").mkdir(parents=True)
    (folder / "recipes/bases/ngc-26.09.yaml").write_text("".join(kept), "utf-8")
    return Project((folder, PROJECT.roots[-1]))


@pytest.mark.parametrize(("layer", "key"), [("cutlass-fp8", "site"), ("ptxas", "site"), ("nccl", "nccl")])
def test_a_layer_is_refused_when_a_needed_fact_of_the_base_is_unknown(layer: str, key: str, tmp_path: Path) -> None:
    assert planned(layer, "ngc-26.09").layer == layer
    with pytest.raises(UsageError) as caught:
        planned(layer, "ngc-26.09", project=ngc_without(tmp_path, key))
    assert "not known" in caught.value.cause


def test_nccl_covers_the_wheels_file_where_torch_looks_there_and_the_search_path_elsewhere(tmp_path: Path) -> None:
    link = "usr/local/lib/python3.13/dist-packages/nvidia/nccl/lib/libnccl.so.2"
    wheel, system = planned("nccl", "hermetic-0.20"), planned("nccl", "ngc-26.09")
    assert wheel.replaces == (f"/{link}",)
    assert link in wheel.stages and "LD_LIBRARY_PATH" not in env(wheel)
    assert system.replaces == ()
    assert "dist-packages" not in system.stages and env(system)["LD_LIBRARY_PATH"] == "/opt/nccl/lib"
    # Where such an image keeps Python's packages does not matter.
    assert planned("nccl", "ngc-26.09", project=ngc_without(tmp_path, "site")).stages == system.stages


def test_marlin_refuses_variables_that_the_base_does_not_have() -> None:
    with fails(UsageError, "layer-needs-unmet"):
        planned("marlin", "vllm-openai-0.24.0", nvfp4_gemm=True)
    assert "VLLM_USE_FLASHINFER_MOE_FP4" not in env(planned("marlin", "vllm-openai-0.24.0"))
    assert env(planned("marlin", "vllm-openai-0.20"))["VLLM_USE_FLASHINFER_MOE_FP4"] == "0"


def test_ray_brings_wheels_and_switches_its_memory_monitor_off() -> None:
    layer = planned("ray", "hermetic-0.20")
    assert "ray" in {item.name.partition(" ")[0] for item in layer.inputs}
    assert env(layer) == {"RAY_memory_monitor_refresh_ms": "0", "RAY_memory_usage_threshold": "1.0"}
    vendor = planned("ray", "ngc-26.04")
    assert {i.name.partition(" ")[0] for i in vendor.inputs} >= {"ray"}, "that image ships none"


def test_omni_brings_vllm_omni_of_the_same_version() -> None:
    layer = planned("omni", "hermetic-0.20", "audio")
    assert "vllm-omni 0.20.0" in {item.name for item in layer.inputs}


@pytest.mark.parametrize("base", ["hermetic-0.20", "hermetic-0.23"])
def test_ray_adds_no_wheel_that_the_base_has(base: str) -> None:
    recipe = PROJECT.recipe("qwen3.5-122b-fp8-dual")
    layers = {item.id: item for item in resolve(PROJECT, recipe, base=base, profile="ray").layers}
    below = {i.sha256 for name, item in layers.items() if name.startswith("wheels-") for i in item.inputs}
    assert not below & {item.sha256 for item in layers["ray"].inputs}


@pytest.mark.parametrize(("transport", "disabled"), [("roce", "0"), ("socket", "1")])
def test_cluster_has_two_transports_and_no_interface_names(transport: str, disabled: str) -> None:
    values = env(planned("cluster", "vllm-openai-0.20", transport=transport))
    assert values["NCCL_IB_DISABLE"] == disabled
    assert not [name for name in values if name.endswith("IFNAME") or name in ("NCCL_IB_HCA", "UCX_NET_DEVICES")]


def test_cutlass_fp8_takes_the_file_from_the_wheel_or_from_the_base() -> None:
    hermetic, registry = planned("cutlass-fp8", "hermetic-0.20"), planned("cutlass-fp8", "vllm-openai-0.20")
    assert [item.name for item in hermetic.inputs] == ["vllm 0.20.0"]
    assert not hermetic.reads_base
    assert registry.reads_base
    assert not registry.inputs
    assert "sha256:" in registry.stages


def load(layer: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"patch_{layer}", FOLDER / layer / "patch.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FP8 = """\
def cutlass_fp8_supported() -> bool:
    return ops.cutlass_scaled_mm_supports_fp8(1)


def cutlass_block_fp8_supported() -> bool:
    x = 1
    return ops.cutlass_scaled_mm_supports_block_fp8(x)


CUTLASS_FP8_SUPPORTED = cutlass_fp8_supported()
CUTLASS_BLOCK_FP8_SUPPORTED = cutlass_block_fp8_supported()
OTHER = 3
"""


def answers(text: str) -> dict[str, Any]:
    """The functions and constants of a patched file as text, without all other statements."""
    group = text.find("def cutlass_group_gemm")
    wanted = text[text.index("def cutlass_fp8_supported") : group if group > 0 else None]
    scope: dict[str, Any] = {}
    exec(wanted, scope)
    return {name: scope[name]() for name in ("cutlass_fp8_supported", "cutlass_block_fp8_supported")}


def test_the_fp8_patch_makes_functions_and_constants_false() -> None:
    text = load("cutlass-fp8").patched(FP8)
    assert answers(text) == {"cutlass_fp8_supported": False, "cutlass_block_fp8_supported": False}
    assert "CUTLASS_FP8_SUPPORTED = False\nCUTLASS_BLOCK_FP8_SUPPORTED = False\nOTHER = 3\n" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def cutlass_fp8_supported", "def gone"),
        ("supports_block_fp8(x)", "something_else(x)"),
        ("_SUPPORTED = cutlass", "_SUPPORTED = not_cutlass"),
        ("def cutlass_fp8_supported()", "def cutlass_fp8_supported(a)"),
    ],
)
def test_the_fp8_patch_fails_where_it_does_not_fit(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        load("cutlass-fp8").patched(FP8.replace(old, new))


def member(version: str, path: str) -> str:
    table = load_table(version)
    with tarfile.open(fetch_sdist(version, SDISTS, table.sdist if table else None)) as archive:
        stream = archive.extractfile(f"vllm-{version}/{path}")
        assert stream is not None
        return stream.read().decode()


@pytest.mark.network
@pytest.mark.parametrize("version", nightly_but(FP8_VERSIONS, "0.33.0"))
def test_the_fp8_patch_fits_the_real_file(version: str) -> None:
    text = load("cutlass-fp8").patched(member(version, W8A8))
    assert answers(text) == {"cutlass_fp8_supported": False, "cutlass_block_fp8_supported": False}
    table = load_table(version)
    assert table is not None
    for name in table.fp8_constants:
        assert f"\n{name} = False\n" in text


@pytest.mark.network
def test_the_loader_patch_fits_the_real_file_of_0_19_0_only() -> None:
    path = "vllm/model_executor/models/gemma4.py"
    assert '"experts.w13_"' in load("gemma4-loader").patched(member("0.19.0", path))
    with pytest.raises(ValueError, match="change 1"):
        load("gemma4-loader").patched(member("0.19.1", path))


CHECKS = [
    (where, check)
    for where, checks in (
        *((name, PROJECT.layer(name).definition.checks) for name in PROJECT.layer_names()),
        *((base.name, base.checks) for base in PROJECT.bases.values()),
    )
    for check in checks
]


@pytest.mark.parametrize(("where", "check"), CHECKS, ids=lambda value: value if isinstance(value, str) else value.id)
def test_every_check_of_a_layer_or_base_is_of_a_kind_that_takes_its_args(where: str, check: Check) -> None:
    if check.kind in (DECLARES, JUDGES):
        assert len(declarations([check])) == (check.kind == DECLARES)
    elif check.kind == "serve-command":
        assert "argv" not in check.args, "the plan says what the command is"
    elif check.tier == "cpu":
        assert execution_of(check)
    elif "{{" not in str(check.args):
        assert bind_check(check)
    else:
        assert {key.replace("-", "_") for key in check.args} <= set(find_kind(check).arguments)
