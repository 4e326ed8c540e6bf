"""A layer that reads its base uses the base's layers in the mirror."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.engine.interface import BuildRequest, LayoutError, LocalBase
from builder.errors import ExitCode, PinError
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.http_registry import Answer, Server, digest_of, image_manifest
from tests.support.mirror_bench import Bench
from tests.support.project import Sample, vendor_base

MakePlan = Callable[..., Plan]
LAYER = b"the base's own layer"


@pytest.fixture
def reading(make_plan: MakePlan, small: Sample, server: Server) -> Plan:
    """A plan on a registry base whose compiled layer reads that base."""
    config = json.dumps({"os": "linux", "architecture": "arm64", "rootfs": {"diff_ids": ["sha256:" + "d" * 64]}})
    data = image_manifest(config.encode(), LAYER)
    for blob in (config.encode(), LAYER):
        server.on("GET", f"/v2/team/app/blobs/{digest_of(blob)}", Answer(200, blob))
    small.files["recipes/bases/vendor.yaml"] = vendor_base(f"{server.host}/team/app:1", server.serve_manifest(data))
    small.files["dockerfiles/layers/compiled/layer.yaml"]["reads_base"] = True
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    return make_plan(base="vendor")


@pytest.fixture
def asked(engine: FakeEngine) -> list[tuple[LocalBase | None, bool, dict[str, bytes]]]:
    """For each build: the base that the engine was given, whether it may pull it, and the base's files."""
    found: list[tuple[LocalBase | None, bool, dict[str, bytes]]] = []

    def see(request: BuildRequest) -> None:
        root = request.base.layout if request.base else Path("/nonexistent")
        files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        found.append((request.base, request.pull is not None, files))

    engine.on_build = see
    return found


Asked = list[tuple[LocalBase | None, bool, dict[str, bytes]]]


def test_the_layers_of_a_base_that_is_read_are_mirrored_and_passed_to_the_engine(
    reading: Plan, bench: Bench, server: Server, asked: Asked
) -> None:
    online = bench.build(reading, None, offline=False)
    report = bench.fill(reading)
    assert digest_of(LAYER) in report.sent
    server.routes.clear()
    bench.cut()
    assert bench.build(reading, bench.source()).image.digest == online.image.digest
    assert bench.build(reading, bench.source(), offline=False).image.digest == online.image.digest
    (none, pulls, _), *local = asked
    assert (none, pulls) == (None, True)
    for base, pulled, files in local:
        assert base is not None
        assert (base.reference, pulled) == (f"{reading.base_image}@{reading.base_manifest}", False)
        manifest = files["blobs/sha256/" + base.digest.hex]
        assert files["blobs/sha256/manifest.json"] == manifest
        assert json.loads(files["index.json"])["manifests"][0]["digest"] == base.digest == reading.base_manifest
        assert json.loads(manifest)["config"]["digest"] == base.config
        assert files["blobs/sha256/" + digest_of(LAYER).hex] == LAYER


def test_offline_without_its_layers_is_4_and_names_the_command(reading: Plan, bench: Bench, asked: Asked) -> None:
    bench.fill(reading)
    bench.backend().discard(digest_of(LAYER))
    store = bench.store()
    with fails(PinError, "mirror-base-layers-missing") as caught:
        bench.build(reading, bench.source(), store)
    assert caught.value.code == ExitCode.PIN
    assert "--base-layers --recipe tiny --base vendor" in caught.value.next
    with fails(PinError, "base-layers-offline"):
        bench.build(reading, None, store)
    assert asked == []
    assert (list(store.tmp.iterdir()), store.image(reading.key)) == ([], None)
    source = bench.source()
    assert bench.build(reading, source, store, offline=False).image
    assert [(base, pulled) for base, pulled, _ in asked] == [(None, True)]
    assert "the layers of base vendor" in source.warnings()[0]


def test_an_engine_that_cannot_read_a_folder_pulls_or_fails(reading: Plan, bench: Bench, engine: FakeEngine) -> None:
    bench.fill(reading)
    seen: list[bool] = []

    def refuse(request: BuildRequest) -> None:
        seen.append(request.pull is not None)
        if request.base is not None:
            raise LayoutError("cannot")

    engine.on_build = refuse
    with pytest.raises(LayoutError):
        bench.build(reading, bench.source())
    assert seen == [False]
    assert bench.build(reading, bench.source(), offline=False).image
    assert seen == [False, False, True]


def test_a_damaged_layer_of_the_base_is_refused(
    reading: Plan, bench: Bench, asked: Asked, spoil: Callable[[Path], None]
) -> None:
    bench.fill(reading)
    spoil(bench.backend().blob(digest_of(LAYER)))
    store = bench.store()
    with fails(PinError, "mirror-base-layers-missing") as caught:
        bench.build(reading, MirrorSource(bench.backend()), store)
    assert "got sha256:" in caught.value.cause
    assert (asked, list(store.tmp.iterdir()), store.image(reading.key)) == ([], [], None)


def test_a_layer_of_another_size_is_not_read(reading: Plan, bench: Bench, asked: Asked) -> None:
    """A file without bytes on the disk of the mirror would fill that of the store."""
    bench.fill(reading)
    blob = bench.backend().blob(digest_of(LAYER))
    blob.chmod(0o600)
    os.truncate(blob, 1 << 40)
    with limit(20), fails(PinError, "mirror-base-layers-missing"):
        bench.build(reading, MirrorSource(bench.backend()), bench.store())
    with fails(PinError, "mirror-blob-missing"):
        bench.backend().read(digest_of(LAYER), len(LAYER))
