"""A mirror of a recipe on a base of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import NetworkError, PinError
from builder.model.plan import Plan
from tests.support.errors import fails
from tests.support.http_registry import Answer, Server, digest_of, image_manifest
from tests.support.mirror_bench import Bench
from tests.support.project import Sample, vendor_base

MakePlan = Callable[..., Plan]
Spoil = Callable[[Path], None]


@pytest.fixture
def vendor(make_plan: MakePlan, small: Sample, server: Server) -> Plan:
    """The small recipe, without its compiled layer, on a base of a registry."""
    layer = b"the base's own layer"
    config = json.dumps({"os": "linux", "architecture": "arm64", "rootfs": {"diff_ids": ["sha256:" + "d" * 64]}})
    data = image_manifest(config.encode(), layer)
    for blob in (config.encode(), layer):
        server.on("GET", f"/v2/team/app/blobs/{digest_of(blob)}", Answer(200, blob))
    small.files["recipes/bases/vendor.yaml"] = vendor_base(f"{server.host}/team/app:1", server.serve_manifest(data))
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    return make_plan(base="vendor")


def test_a_bases_manifest_and_config_are_mirrored_and_its_layers_only_when_asked(
    vendor: Plan, bench: Bench, server: Server
) -> None:
    online = bench.build(vendor, None, offline=False)
    report = bench.fill(vendor)
    artifact, _ = report.artifacts["tiny.vendor"]
    assert {"base-manifest", "base-config"} <= {item.kind for item in artifact.contents}
    assert "base-layer" not in {item.kind for item in artifact.contents}
    more = bench.fill(vendor, base_layers=True)
    assert list(more.sent) == [digest_of(b"the base's own layer")]
    bench.cut()
    server.routes.clear()
    server.requests.clear()
    assert bench.build(vendor, bench.source()).image.digest == online.image.digest
    assert bench.build(vendor, bench.source(), offline=False).image.digest == online.image.digest
    assert server.requests == []


@pytest.mark.parametrize("kind", ["base-manifest", "base-config"])
def test_a_base_with_a_wrong_byte_in_the_mirror_is_refused(vendor: Plan, bench: Bench, spoil: Spoil, kind: str) -> None:
    artifact, _ = bench.fill(vendor).artifacts["tiny.vendor"]
    spoil(bench.backend().blob(next(item.digest for item in artifact.contents if item.kind == kind)))
    store = bench.store()
    with fails(PinError, "mirror-base-missing") as caught:
        bench.build(vendor, bench.source(), store)
    assert "got sha256:" in caught.value.cause
    assert list((store.root / "blobs/sha256").iterdir()) == []


def test_offline_a_base_missing_in_the_mirror_is_a_pin_error(vendor: Plan, bench: Bench) -> None:
    bench.fill(vendor)
    assert vendor.base_manifest is not None
    bench.backend().discard(vendor.base_manifest)
    with fails(PinError, "mirror-base-missing"):
        bench.build(vendor, bench.source())


def test_a_registry_that_does_not_answer_fails_its_own_artifact_only(
    vendor: Plan, make_plan: MakePlan, bench: Bench, server: Server
) -> None:
    server.close()
    report = bench.fill(vendor, make_plan())
    assert set(report.artifacts) == {"tiny.tiny"}
    assert isinstance(report.failed["tiny.vendor"][0], NetworkError)
