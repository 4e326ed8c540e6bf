"""A folder as a mirror: complete, the same twice, and enough for an offline build with the digest of the online one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.engine.interface import host_architecture
from builder.errors import EngineError, PinError, UsageError
from builder.mirror.artifact import ARTIFACT, locked_contents
from builder.mirror.copy import MirrorReport
from builder.mirror.folder import FolderBackend
from builder.mirror.source import mirror_source
from builder.model.plan import Plan
from builder.oci.layout import read_index
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.mirror_bench import Bench, assert_intact

MakePlan = Callable[..., Plan]
Spoil = Callable[[Path], None]


def errors(report: MirrorReport, tag: str) -> list[tuple[str, str]]:
    """Of each error: its id, and which of the sample's inputs it names."""
    names = ("tool 1", "beta 1.0")
    return [(error.id, next(name for name in names if name in error.what)) for error in report.failed[tag]]


def inputs(plan: Plan) -> set[str]:
    return {item.digest for item in locked_contents(plan)}


def test_a_mirror_holds_every_input_and_the_toolchains_of_all_build_platforms(
    make_plan: MakePlan, bench: Bench
) -> None:
    plan = make_plan()
    report = bench.fill(plan)
    artifact, new = report.artifacts["tiny.tiny"]
    assert new
    toolchains = {item.digest for layer in plan.toolchains for item in layer.inputs}
    assert len(toolchains) > 2
    assert toolchains <= inputs(plan) == set(report.sent)
    backend = bench.backend()
    for digest in inputs(plan):
        assert backend.is_intact(digest, 0)
    assert [(item["digest"], item["artifactType"]) for item in read_index(backend.root)] == [
        (artifact.digest, ARTIFACT)
    ]
    manifest = json.loads(backend.blob(artifact.digest).read_bytes())
    assert {layer["digest"] for layer in manifest["layers"]} == inputs(plan)
    for descriptor in (manifest["config"], *manifest["layers"]):
        assert backend.blob(Digest(descriptor["digest"])).stat().st_size == descriptor["size"]
    named = {layer["annotations"]["org.opencontainers.image.title"] for layer in manifest["layers"]}
    assert {"beta-1.0-py3-none-any.whl", "widget-1.0.tar.gz"} <= named


def test_a_second_run_sends_nothing_and_changes_no_byte(make_plan: MakePlan, bench: Bench) -> None:
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
    other = FolderBackend(bench.folder / "other")
    bench.fill(plan, backend=other)
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
    assert_intact(store)


def test_inputs_in_the_store_are_linked_and_not_fetched(make_plan: MakePlan, bench: Bench) -> None:
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
    assert bench.backend().blob(wheel.digest).samefile(store.blob(wheel.digest))


def test_online_the_mirror_is_read_before_the_upstreams(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    bench.cut()
    source = bench.source()
    assert bench.build(plan, source, offline=False).image
    assert (bench.upstream.asked, source.warnings()) == ([], [])


def test_an_input_missing_in_the_mirror_comes_from_upstream_with_a_warning(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    wheel = next(item for item in locked_contents(plan) if item.name == "beta 1.0")
    bench.backend().discard(wheel.digest)
    bench.upstream.asked.clear()
    source = bench.source()
    assert bench.build(plan, source, offline=False).image
    assert source.warnings() == [f"the mirror {source.name} lacks the file: beta 1.0"]
    assert [path for path in bench.upstream.asked if path.startswith("/files/")] == ["/files/beta/" + wheel.file]


KINDS = {"deb": "tool 1", "wheel": "beta 1.0", "source": "widget 1.0"}


@pytest.mark.parametrize("kind", KINDS)
def test_offline_a_damaged_blob_in_the_mirror_is_refused_and_not_kept(
    make_plan: MakePlan, bench: Bench, spoil: Spoil, kind: str
) -> None:
    plan = make_plan()
    bench.fill(plan)
    bench.cut()
    item = next(item for item in locked_contents(plan) if item.name == KINDS[kind])
    spoil(bench.backend().blob(item.digest))
    store = bench.store()
    with fails(PinError, "mirror-input-mismatch") as caught:
        bench.build(plan, bench.source(), store)
    assert "--verify" in caught.value.next
    assert not store.has(item.digest)
    assert store.image(plan.key) is None
    assert list(store.tmp.iterdir()) == []
    assert_intact(store)


def test_online_a_damaged_blob_in_the_mirror_is_skipped_with_a_warning(
    make_plan: MakePlan, bench: Bench, spoil: Spoil
) -> None:
    plan = make_plan()
    digest = bench.build(plan, None, offline=False).image.digest
    bench.fill(plan)
    wheel = next(item for item in locked_contents(plan) if item.name == "beta 1.0")
    spoil(bench.backend().blob(wheel.digest))
    source, store = bench.source(), bench.store()
    assert bench.build(plan, source, store, offline=False).image.digest == digest
    assert len(source.warnings()) == 1
    assert "beta 1.0" in source.warnings()[0]
    assert_intact(store)


def test_verify_finds_a_damaged_blob_and_replaces_it(make_plan: MakePlan, bench: Bench, spoil: Spoil) -> None:
    plan = make_plan()
    bench.fill(plan)
    before = bench.contents()
    item = next(item for item in locked_contents(plan) if item.kind == "deb")
    spoil(bench.backend().blob(item.digest))
    assert bench.fill(plan).sent == {}
    assert set(bench.fill(plan, verify=True).sent) == {item.digest}
    assert bench.contents() == before


def test_offline_verify_names_every_damaged_input(make_plan: MakePlan, bench: Bench, spoil: Spoil) -> None:
    plan = make_plan()
    bench.fill(plan)
    assert bench.fill(plan, verify=True, offline=True).failed == {}
    for name in ("tool 1", "beta 1.0"):
        spoil(bench.backend().blob(next(item.digest for item in locked_contents(plan) if item.name == name)))
    report = bench.fill(plan, verify=True, offline=True)
    assert errors(report, "tiny.tiny") == [("input-missing-offline", "tool 1"), ("input-missing-offline", "beta 1.0")]
    assert report.artifacts == {}


def test_a_truncated_file_is_replaced_without_verify(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    before = bench.contents()
    item = next(item for item in locked_contents(plan) if item.kind == "wheel")
    path = bench.backend().blob(item.digest)
    path.unlink()
    path.write_bytes(b"half")
    assert set(bench.fill(plan).sent) == {item.digest}
    assert bench.contents() == before


def test_a_vanished_input_is_in_the_report_and_all_others_are_mirrored(
    make_plan: MakePlan, bench: Bench, mirror: Mirror
) -> None:
    plan = make_plan()
    mirror.wheels["beta"].clear()
    report = bench.fill(plan)
    assert report.artifacts == {}
    assert errors(report, "tiny.tiny") == [("input-vanished", "beta 1.0")]
    assert len(report.sent) == len(inputs(plan)) - 1
    assert read_index(bench.backend().root) == []


def test_a_mirror_fills_another_one_offline(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    bench.fill(plan)
    bench.cut()
    other = FolderBackend(bench.folder / "other")
    report = bench.fill(plan, backend=other, offline=True, source=bench.source())
    assert set(report.sent) == inputs(plan)
    assert report.failed == {}
    with fails(PinError, "mirror-input-missing"):
        other.discard(next(item.digest for item in locked_contents(plan) if item.kind == "wheel"))
        bench.build(plan, mirror_source(str(other.root)))


def test_a_second_writer_is_refused_and_partial_files_of_an_interrupted_one_are_removed(
    make_plan: MakePlan, bench: Bench
) -> None:
    plan, backend = make_plan(), bench.backend()
    with backend.writing():
        (backend.tmp / "1.abcdef01-left").write_bytes(b"half")
        with fails(EngineError, "layout-locked"):
            bench.fill(plan)
        backend.tmp.rename(bench.folder / "kept")
    (bench.folder / "kept").rename(backend.tmp)
    bench.fill(plan)
    assert {path.name for path in backend.root.iterdir()} == {"blobs", "index.json", "oci-layout"}


def test_a_folder_that_is_no_mirror_is_a_usage_error(tmp_path: Path, make_plan: MakePlan, bench: Bench) -> None:
    with fails(UsageError, "mirror-not-layout"):
        mirror_source(str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    with fails(UsageError, "layout-folder-occupied"):
        bench.fill(make_plan(), backend=FolderBackend(tmp_path / "mine"))
    assert mirror_source(None) is None
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_damaged_blob_of_the_store_does_not_reach_the_mirror(
    make_plan: MakePlan, bench: Bench, spoil: Spoil, store: Store
) -> None:
    plan = make_plan()
    bench.build(plan, None, store, offline=False)
    item = next(item for item in locked_contents(plan) if item.kind == "wheel")
    spoil(store.blob(item.digest))
    report = bench.fill(plan, store=store)
    assert [error.what for error in report.failed["tiny.tiny"]] == [f"{item.digest} is damaged in the store"]
    assert not bench.backend().has(item.digest)
    assert set(bench.fill(plan, store=store).sent) == {item.digest}
