"""A ledger accepts only locked inputs and reports locked inputs that were not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from builder.attest.receipt import Ledger, Used, base_used, check_inputs, receipt, used_of
from builder.digest import Digest
from builder.errors import ExitCode, PinError
from builder.model.plan import Plan, PlannedLayer
from tests.support.errors import fails
from tests.support.project import Sample, vendor_base

MakePlan = Callable[..., Plan]
ROOT = Used("toolchain", "toolchain-amd64", Digest.from_hex("a" * 64))


@pytest.fixture
def compiled(make_plan: MakePlan) -> PlannedLayer:
    return next(layer for layer in make_plan().layers if layer.id == "compiled")


def all_of(layer: PlannedLayer) -> list[Used]:
    inputs = [Used(item.kind, item.file, item.digest) for item in layer.inputs]
    return [*inputs, *(Used("file", path, Digest.of(data)) for path, data in layer.context.items()), ROOT]


def test_locked_inputs_may_be_read_and_are_in_the_receipt(compiled: PlannedLayer) -> None:
    ledger = Ledger(compiled, [ROOT])
    for item in reversed(all_of(compiled)):
        ledger.read(item)
        ledger.read(item)
    used = ledger.close()
    assert used == tuple(sorted(all_of(compiled)))
    assert {item.kind for item in used} == {"source", "file", "toolchain"}
    data = receipt(compiled, Digest.from_hex("b" * 64), used)
    assert used_of(data) == used
    assert receipt(compiled, Digest.from_hex("b" * 64), used) == data
    assert json.loads(data)["key"] == compiled.key


@pytest.mark.parametrize("number", range(3))
def test_an_input_with_other_bytes_is_refused(compiled: PlannedLayer, number: int) -> None:
    item = all_of(compiled)[number]
    with fails(PinError, "input-not-as-locked") as caught:
        Ledger(compiled, [ROOT]).read(replace(item, digest=Digest.from_hex("c" * 64)))
    assert (caught.value.code, item.digest in caught.value.cause) == (ExitCode.PIN, True)


def test_an_input_that_is_not_locked_is_refused(compiled: PlannedLayer) -> None:
    for item in (Used("wheel", "other.whl", Digest.from_hex("c" * 64)), replace(ROOT, kind="base"), ROOT):
        with fails(PinError, "input-not-as-locked"):
            Ledger(compiled).read(item)
    with fails(PinError, "input-not-as-locked"):
        Ledger(compiled).read_input("other.whl", ROOT.digest)


@pytest.mark.parametrize("number", range(3))
def test_a_locked_input_that_was_not_read_is_an_error(compiled: PlannedLayer, number: int) -> None:
    ledger = Ledger(compiled, [ROOT])
    left = all_of(compiled)[number]
    for item in all_of(compiled):
        if item != left:
            ledger.read(item)
    with fails(PinError, "input-not-as-locked"):
        ledger.close()


def test_a_receipt_of_other_inputs_does_not_fit(compiled: PlannedLayer) -> None:
    used = all_of(compiled)
    check_inputs(compiled, used)
    for wrong in (used[1:], [*used, Used("deb", "x.deb", ROOT.digest)], [replace(used[0], digest=ROOT.digest)]):
        with fails(PinError, "receipt-differs"):
            check_inputs(compiled, wrong)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"used": [1]}', b'{"used": [{"kind": "deb"}]}', b"\xff"])
def test_a_damaged_receipt_is_refused(data: bytes) -> None:
    with fails(PinError, "receipt-unreadable"):
        used_of(data)


def test_a_base_is_named_by_its_manifest(make_plan: MakePlan, small: Sample) -> None:
    assert base_used(make_plan()) is None
    digest = Digest.from_hex("a" * 64)
    small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.lan/x:1", digest)
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    assert base_used(make_plan(base="vendor")) == Used("base", f"registry.lan/x:1@{digest}", digest)
