"""The image where it runs, under qemu for minutes. These tests come last: `emulated` runs beside all others.

The nightly job imports vLLM too, and lets a user whom the image does not know use its compilers and audio libraries.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import pytest

from tests.e2e.building import Build
from tests.e2e.emulated import Emulated
from tests.support.nightly import nightly

pytestmark = [pytest.mark.engine, pytest.mark.qemu, pytest.mark.slow]


@pytest.fixture(scope="module")
def found(emulated: Future[Emulated]) -> dict[str, Any]:
    """The output of inside.py in the sandbox."""
    return emulated.result().found


@nightly
def test_torch_and_the_audio_libraries_import_for_a_user_without_home(found: dict[str, Any]) -> None:
    assert found["uid"] == 54321
    assert found["torch"].startswith("2.11.0")
    assert len(found["audio"]) == 4


@nightly
def test_torch_maps_our_nccl_which_reports_its_version(found: dict[str, Any]) -> None:
    assert found["nccl"] == ["/opt/nccl/lib/libnccl.so.2.29.7"]
    assert found["nccl_version"] == 22907


@nightly
def test_tritons_driver_stub_compiles(found: dict[str, Any]) -> None:
    assert found["triton"] is True


@nightly
def test_flashinfer_compiles_a_module_for_sm_121a(found: dict[str, Any]) -> None:
    path, is_cuda_library = found["flashinfer"]
    assert path.startswith("/.cache/flashinfer/") and is_cuda_library
    assert found["gencode"] == ["sm_121a"]


def test_the_cpu_tier_passes(first: Build, emulated: Future[Emulated]) -> None:
    tier = emulated.result().tier
    report = json.loads(tier.stdout)
    failed = [f"{result['id']}: {result['message']}" for result in report["results"] if result["status"] != "pass"]
    assert tier.returncode == 0, "\n".join(failed)
    assert report["digest"] == first.digest and report["passed"] >= 8
    assert {"torch-import", "audio-decodes", "nccl-mapped"} <= {result["id"] for result in report["results"]}
