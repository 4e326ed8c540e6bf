"""Used equals locked: one other byte in anything that a build reads is refused with exit code 4, and nothing is kept.

Bytes that come over the network are in test_failures.py, those of a mirror in tests/unit/mirror.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.attest.receipt import receipt, used_of
from builder.digest import Digest
from builder.engine.interface import BuildRequest, host_architecture
from builder.errors import ExitCode, PinError
from builder.model.plan import Plan
from builder.produce.image import assembled
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.project import Sample, stored_base, vendor_base
from tests.support.runner import Runner

MakePlan = Callable[..., Plan]
OWN = f"toolchain-{host_architecture()}"


def spoil(path: Path) -> None:
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def state(store: Store) -> set[str]:
    """Every file of a store, but its locks."""
    files = {str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.is_file()}
    return {path for path in files if not path.startswith("locks/")}


def test_the_receipt_of_each_layer_names_all_that_it_consumed(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    built = runner.build(plan)
    root = next(layer for layer in plan.toolchains if layer.id == OWN)
    toolchain = runner.store.layer(root.key)
    assert toolchain is not None
    for layer, record in [(root, toolchain), *((x, built.records[x.id]) for x in plan.layers if x.id in built.records)]:
        used = used_of(runner.store.read(record.receipt))
        locked = {(item.kind, item.file, item.digest) for item in layer.inputs}
        assert {
            (item.kind, item.name, item.digest) for item in used if item.kind not in ("file", "toolchain")
        } == locked
        assert {item.name for item in used if item.kind == "file"} == set(layer.context)
        assert [item.digest for item in used if item.kind == "toolchain"] == [toolchain.digest] * layer.toolchain
    known = runner.store.image(plan.key)
    assert known is not None
    assert [len(layer["used"]) for layer in known["layers"]] == [2, 1, 2, 3, 0, 0, 0]


@pytest.mark.parametrize("kind", ["inputs", "layers"])
def test_an_input_that_changes_while_the_engine_runs_is_refused(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, kind: str
) -> None:
    plan = make_plan()

    def change(request: BuildRequest) -> None:
        spoil(next(path for path in sorted((request.context / kind).rglob("*")) if path.is_file()))

    engine.on_build = change
    with pytest.raises(PinError) as caught:
        runner.build(plan)
    assert caught.value.code == ExitCode.PIN
    compiled = next(layer for layer in plan.layers if layer.id == "compiled")
    assert runner.store.layer(compiled.key) is None
    assert runner.store.image(plan.key) is None
    assert runner.temporary() == []
    engine.on_build = lambda request: None
    assert runner.build(plan).made >= {"compiled"}


def test_a_layers_own_file_of_another_byte_is_another_layer(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner, tmp_path: Path
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    # Changed on disk after the plan was made: the build has the bytes that its key was made from.
    spoil(tmp_path / "project/dockerfiles/layers/compiled/patch.diff")
    record = first.records["compiled"]
    runner.store.discard(record.digest)
    assert runner.build(plan).records["compiled"] == record
    assert runner.engine.seen[-1].context["layers/compiled/patch.diff"] == b"a patch\n"
    small.files["dockerfiles/layers/compiled/patch.diff"] = "another\n"
    changed = make_plan()
    assert {layer.id for layer in changed.layers if layer.key not in {old.key for old in plan.layers}} == {"compiled"}


def test_a_toolchain_root_that_was_damaged_in_the_store_is_not_used(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    root = runner.store.layer(next(layer.key for layer in plan.toolchains if layer.id == OWN))
    assert root is not None
    runner.store.discard(first.records["compiled"].digest)
    spoil(runner.store.blob(root.digest))
    before = state(runner.store)
    seen = len(runner.engine.seen)
    with fails(PinError, "store-blob-damaged") as caught:
        runner.build(plan)
    assert caught.value.code == ExitCode.PIN
    assert len(runner.engine.seen) == seen
    assert state(runner.store) <= before
    assert runner.build(plan).image.digest == first.image.digest


@pytest.mark.parametrize("kind", ["manifest", "config"])
def test_a_base_that_was_damaged_in_the_store_is_not_used(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner, kind: str
) -> None:
    manifest = stored_base(runner.store)
    config = Digest(json.loads(runner.store.read(manifest))["config"]["digest"])
    small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.lan/x:1", manifest)
    small.files["recipes/tiny.yaml"] |= {"compatible": ["vendor"], "layers": ["placed", "settings", "entrypoint"]}
    plan = make_plan(base="vendor")
    spoil(runner.store.blob(manifest if kind == "manifest" else config))
    with fails(PinError, "base-missing-offline") as caught:
        runner.build(plan, offline=True)
    assert caught.value.code == ExitCode.PIN
    assert state(runner.store) == {
        "CACHEDIR.TAG",
        f"blobs/sha256/{(config if kind == 'manifest' else manifest).removeprefix('sha256:')}",
    }


@pytest.mark.parametrize("field", ["diff_id", "media_type", "digest"])
def test_a_damaged_record_of_a_layer_is_not_used(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, field: str
) -> None:
    """The diff_id of the record goes into the image's config; no other data of the store reveals a wrong one."""
    plan = make_plan()
    first = runner.build(plan)
    one, other = (runner.store.root / "layers" / f"{layer.key}.json" for layer in plan.layers[:2])
    data = one.read_text("utf-8")
    value = json.loads(data)[field]
    one.write_text(data.replace(value, value[:-1] + ("0" if value[-1] != "0" else "1")), "utf-8")
    again = runner.build(plan)
    assert (again.image.digest, again.made) == (first.image.digest, {plan.layers[0].id})
    differing = {"check", "seconds"}
    made = json.loads(one.read_text("utf-8"))
    assert made == json.loads(data) | {name: made[name] for name in differing}
    one.write_bytes(other.read_bytes())
    assert runner.build(plan).image.digest == first.image.digest


def test_a_layer_in_the_store_whose_receipt_names_other_inputs_is_refused(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    root, record = plan.layers[0], first.records["root"]
    assert record.receipt is not None
    others = used_of(runner.store.read(first.records["wheels-alpha"].receipt))
    forged = runner.store.put(receipt(root, record.digest, others))
    runner.store.record_layer(root.key, replace(record, receipt=forged))
    with fails(PinError, "receipt-differs"):
        runner.build(plan)


def test_a_layer_in_the_store_with_the_receipt_of_another_one_is_made_again(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    swapped = replace(first.records["root"], receipt=first.records["wheels-alpha"].receipt)
    runner.store.record_layer(plan.layers[0].key, swapped)
    again = runner.build(plan)
    assert (again.image.digest, again.made) == (first.image.digest, {"root"})
    assert again.records == first.records


@pytest.mark.parametrize("what", ["manifest", "config", "record"])
@pytest.mark.parametrize("how", ["damaged", "missing", "a folder", "emptied"])
def test_what_is_damaged_of_an_image_in_the_store_is_mended(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, what: str, how: str
) -> None:
    """By the next build, or by `test`, which asks for the built image; no layer is made again."""
    plan = make_plan()
    first = runner.build(plan)
    store = runner.store
    record = store.root / "images" / f"{plan.key}.json"
    named = {"manifest": store.blob(first.image.digest), "config": store.blob(first.image.config_digest)}
    path = named.get(what, record)
    data = path.read_bytes()
    path.unlink()
    if how == "a folder":
        (path / "below").mkdir(parents=True)
    elif how == "emptied" and what == "record":
        path.write_text(json.dumps(json.loads(data) | {"layers": [], "base_image": None}))
    elif how != "missing":
        path.write_bytes(bytes(len(data)) if how == "damaged" else b"")
    assert assembled(store, plan).image.digest == first.image.digest
    assert path.read_bytes() == data


def test_a_damaged_listing_of_a_layer_is_an_error_and_made_again(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    (runner.store.root / "images" / f"{plan.key}.json").unlink()
    spoil(runner.store.blob(first.records["root"].listing))
    with fails(PinError, "store-blob-damaged"):
        runner.build(plan)
    assert runner.build(plan).image.digest == first.image.digest
