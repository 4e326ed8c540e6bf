"""A folder as a mirror: complete, the same twice, and enough for an offline build with the digest of the online one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.engine.base import host_architecture
from builder.errors import EngineError, NetworkError, PinError, UsageError
from builder.mirror.artifact import ARTIFACT, locked_contents
from builder.mirror.backend import FolderPlace, RegistryPlace, place_of
from builder.mirror.source import mirror_source
from builder.model.plan import Plan
from builder.oci.layout import read_index
from builder.store.store import Store
from tests.support.http_registry import Answer, Server, digest_of, image_manifest
from tests.support.mirror import Mirror
from tests.support.mirror_bench import Bench, hashes
from tests.support.project import Sample, vendor_base

MakePlan = Callable[..., Plan]
Spoil = Callable[[Path], None]


def inputs(plan: Plan) -> set[str]:
    return {item.digest for item in locked_contents(plan)}


def test_it_holds_every_input_and_the_toolchains_of_all_build_platforms(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    report = bench.fill(plan)
    artifact, new = report.artifacts["tiny.tiny"]
    assert new
    toolchains = {item.digest for layer in plan.toolchains for item in layer.inputs}
    assert len(toolchains) > 2
    assert toolchains <= inputs(plan) == set(report.sent)
    place = bench.place()
    for digest in inputs(plan):
        assert place.sound(digest, 0)
    assert [(item["digest"], item["artifactType"]) for item in read_index(place.root)] == [(artifact.digest, ARTIFACT)]
    manifest = json.loads(place.blob(artifact.digest).read_bytes())
    assert {layer["digest"] for layer in manifest["layers"]} == inputs(plan)
    for descriptor in (manifest["config"], *manifest["layers"]):
        assert place.blob(descriptor["digest"]).stat().st_size == descriptor["size"]
    named = {layer["annotations"]["org.opencontainers.image.title"] for layer in manifest["layers"]}
    assert {"beta-1.0-py3-none-any.whl", "widget-1.0.tar.gz"} <= named


def test_a_second_time_nothing_is_sent_and_not_a_byte_changes(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    first = bench.fill(plan)
    before = bench.contents()
    bench.upstream.asked.clear()
    second = bench.fill(plan)
    assert (second.sent, bench.upstream.asked) == ({}, [])
    assert second.present == first.sent
    assert second.artifacts == {"tiny.tiny": (first.artifacts["tiny.tiny"][0], False)}
    assert bench.contents() == before


def test_another_machine_makes_the_same_mirror(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    other = FolderPlace(bench.folder / "other")
    bench.fill(plan, place=other)
    found = {str(path.relative_to(other.root)): path.read_bytes() for path in other.root.rglob("*") if path.is_file()}
    assert found == bench.contents()


def test_the_offline_build_has_the_digest_of_the_online_one(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    online = bench.build(plan, None, offline=False)
    bench.fill(plan)
    bench.cut()
    store = bench.store()
    offline = bench.build(plan, bench.source(), store)
    assert offline.image.digest == online.image.digest
    assert bench.upstream.asked == []
    hashes(store)


def test_what_the_store_has_is_linked_and_not_fetched(make_plan: MakePlan, bench: Bench) -> None:
    plan, store = make_plan(), bench.store()
    bench.build(plan, None, store, offline=False)
    bench.upstream.asked.clear()
    bench.fill(plan, store=store)
    names = {path.rpartition("/")[2] for path in bench.upstream.asked}
    away = [item for item in plan.toolchains if item.id != f"toolchain-{host_architecture()}"]
    assert names == {item.file for layer in away for item in layer.inputs} - {
        item.file for item in locked_contents(plan) if store.has(item.digest)
    }
    wheel = next(item for item in locked_contents(plan) if item.kind == "wheel")
    assert bench.place().blob(wheel.digest).samefile(store.blob(wheel.digest))


def test_without_offline_the_mirror_comes_first_and_a_vanished_upstream_does_not_matter(
    make_plan: MakePlan, bench: Bench
) -> None:
    plan = make_plan()
    bench.fill(plan)
    bench.cut()
    source = bench.source()
    assert bench.build(plan, source, offline=False).image
    assert (bench.upstream.asked, source.warnings()) == ([], [])


def test_what_the_mirror_lacks_comes_from_upstream_with_a_warning(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    wheel = next(item for item in locked_contents(plan) if item.name == "beta 1.0")
    bench.place().discard(wheel.digest)
    bench.upstream.asked.clear()
    source = bench.source()
    assert bench.build(plan, source, offline=False).image
    assert source.warnings() == [f"the mirror {source.name} does not have it: beta 1.0"]
    assert [path for path in bench.upstream.asked if path.startswith("/files/")] == ["/files/beta/" + wheel.file]


KINDS = {"deb": "tool 1", "wheel": "beta 1.0", "source": "widget 1.0"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_byte_in_the_mirror_is_refused_and_nothing_of_it_is_kept(
    make_plan: MakePlan, bench: Bench, spoil: Spoil, kind: str
) -> None:
    plan = make_plan()
    bench.fill(plan)
    bench.cut()
    item = next(item for item in locked_contents(plan) if item.name == KINDS[kind])
    spoil(bench.place().blob(item.digest))
    store = bench.store()
    with pytest.raises(PinError, match=f"{item.file} in the mirror is not what was locked") as caught:
        bench.build(plan, bench.source(), store)
    assert "--verify" in caught.value.next
    assert not store.has(item.digest)
    assert store.image(plan.key) is None
    assert list(store.tmp.iterdir()) == []
    hashes(store)


def test_online_a_wrong_byte_in_the_mirror_is_passed_over_with_a_warning(
    make_plan: MakePlan, bench: Bench, spoil: Spoil
) -> None:
    plan = make_plan()
    digest = bench.build(plan, None, offline=False).image.digest
    bench.fill(plan)
    wheel = next(item for item in locked_contents(plan) if item.name == "beta 1.0")
    spoil(bench.place().blob(wheel.digest))
    source, store = bench.source(), bench.store()
    assert bench.build(plan, source, store, offline=False).image.digest == digest
    assert len(source.warnings()) == 1
    assert "beta 1.0" in source.warnings()[0]
    hashes(store)


def test_verify_finds_a_wrong_byte_and_mends_it(make_plan: MakePlan, bench: Bench, spoil: Spoil) -> None:
    plan = make_plan()
    bench.fill(plan)
    before = bench.contents()
    item = next(item for item in locked_contents(plan) if item.kind == "deb")
    spoil(bench.place().blob(item.digest))
    assert bench.fill(plan).sent == {}
    assert set(bench.fill(plan, verify=True).sent) == {item.digest}
    assert bench.contents() == before


def test_verify_after_a_transport_names_what_is_damaged(make_plan: MakePlan, bench: Bench, spoil: Spoil) -> None:
    plan = make_plan()
    bench.fill(plan)
    assert bench.fill(plan, verify=True, offline=True).failed == {}
    for name in ("tool 1", "beta 1.0"):
        spoil(bench.place().blob(next(item.digest for item in locked_contents(plan) if item.name == name)))
    report = bench.fill(plan, verify=True, offline=True)
    assert [error.what for error in report.failed["tiny.tiny"]] == [
        "not in the store, and this is offline: tool 1",
        "not in the store, and this is offline: beta 1.0",
    ]
    assert report.artifacts == {}


def test_a_file_that_was_cut_short_is_made_anew_without_asking(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    before = bench.contents()
    item = next(item for item in locked_contents(plan) if item.kind == "wheel")
    path = bench.place().blob(item.digest)
    path.unlink()
    path.write_bytes(b"half")
    assert set(bench.fill(plan).sent) == {item.digest}
    assert bench.contents() == before


def test_what_vanished_upstream_is_told_at_the_end_and_all_else_is_mirrored(
    make_plan: MakePlan, bench: Bench, mirror: Mirror
) -> None:
    plan = make_plan()
    mirror.wheels["beta"].clear()
    report = bench.fill(plan)
    assert report.artifacts == {}
    assert [error.what for error in report.failed["tiny.tiny"]] == [
        "beta 1.0: beta-1.0-py3-none-any.whl vanished from every mirror"
    ]
    assert len(report.sent) == len(inputs(plan)) - 1
    assert read_index(bench.place().root) == []


def test_a_mirror_fills_another_one_offline(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    bench.cut()
    other = FolderPlace(bench.folder / "other")
    report = bench.fill(plan, place=other, offline=True, source=bench.source())
    assert set(report.sent) == inputs(plan)
    assert report.failed == {}
    with pytest.raises(PinError, match="neither in the store nor in the mirror"):
        other.discard(next(item.digest for item in locked_contents(plan) if item.kind == "wheel"))
        bench.build(plan, mirror_source(str(other.root)))


def test_only_one_writes_at_a_time_and_what_a_dead_one_left_goes(make_plan: MakePlan, bench: Bench) -> None:
    plan, place = make_plan(), bench.place()
    with place.writing():
        (place.tmp / "1.abcdef01-left").write_bytes(b"half")
        with pytest.raises(EngineError, match="another builder writes to this mirror"):
            bench.fill(plan)
        place.tmp.rename(bench.folder / "kept")
    (bench.folder / "kept").rename(place.tmp)
    bench.fill(plan)
    assert {path.name for path in place.root.iterdir()} == {"blobs", "index.json", "oci-layout"}


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


@pytest.fixture
def server() -> object:
    running = Server()
    yield running
    running.close()


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
    spoil(bench.place().blob(next(item.digest for item in artifact.contents if item.kind == kind)))
    store = bench.store()
    with pytest.raises(PinError, match="base vendor") as caught:
        bench.build(vendor, bench.source(), store)
    assert "it was changed there" in caught.value.cause or "got sha256:" in caught.value.cause
    assert list((store.root / "blobs/sha256").iterdir()) == []


def test_a_base_that_the_mirror_lacks_is_told(vendor: Plan, bench: Bench) -> None:
    bench.fill(vendor)
    assert vendor.base_manifest is not None
    bench.place().discard(vendor.base_manifest)
    with pytest.raises(PinError, match="neither in the store nor in the mirror"):
        bench.build(vendor, bench.source())


def test_a_registry_that_does_not_answer_fails_its_own_artifact_only(
    vendor: Plan, make_plan: MakePlan, bench: Bench, server: Server
) -> None:
    server.close()
    report = bench.fill(vendor, make_plan())
    assert set(report.artifacts) == {"tiny.tiny"}
    assert isinstance(report.failed["tiny.vendor"][0], NetworkError)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("oci:registry.lan/x", FolderPlace),
        ("/srv/mirror", FolderPlace),
        ("./registry.lan/x", FolderPlace),
        ("../up", FolderPlace),
        ("mirror", FolderPlace),
        ("mirrors/june.2026", FolderPlace),
        ("registry.lan/team/inputs", RegistryPlace),
        ("127.0.0.1:5000/inputs", RegistryPlace),
        ("localhost/inputs", RegistryPlace),
    ],
)
def test_what_is_a_folder_and_what_a_registry(text: str, kind: type) -> None:
    assert isinstance(place_of(text), kind)


@pytest.mark.parametrize("text", ["registry.lan/x:1", f"registry.lan/x@sha256:{'a' * 64}", "", "registry.lan/X"])
def test_what_cannot_be_a_mirror_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        place_of(text)


def test_a_folder_that_is_no_mirror_is_wrong_usage(tmp_path: Path, make_plan: MakePlan, bench: Bench) -> None:
    with pytest.raises(UsageError, match="is not a mirror"):
        mirror_source(str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    with pytest.raises(UsageError, match="not an OCI layout"):
        bench.fill(make_plan(), place=FolderPlace(tmp_path / "mine"))
    assert mirror_source(None) is None
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_store_blob_that_was_damaged_does_not_reach_the_mirror(
    make_plan: MakePlan, bench: Bench, spoil: Spoil, store: Store
) -> None:
    plan = make_plan()
    bench.build(plan, None, store, offline=False)
    item = next(item for item in locked_contents(plan) if item.kind == "wheel")
    spoil(store.blob(item.digest))
    report = bench.fill(plan, store=store)
    assert [error.what for error in report.failed["tiny.tiny"]] == [f"{item.digest} is damaged in the store"]
    assert not bench.place().has(item.digest)
    assert set(bench.fill(plan, store=store).sent) == {item.digest}
