"""Pushing tested images: the step of the job that built them, after its login."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.project import write_files
from tests.unit.workflows.checkout import DIGEST, Checkout, answers

RECORD = {"recipe": "tiny", "base": "made", "plan": "a" * 64, "digest": DIGEST, "reference": None}
PUSH = ("scripts/ci/run", "push", "ghcr.io/Someone/images")


def put(checkout: Checkout, tested: tuple[str, ...] = ("static", "cpu"), **more: Any) -> None:
    record = RECORD | {"tested": list(tested)} | more
    write_files(checkout.folder, {f"results/{record['recipe']}.json": json.dumps(record)})


def test_pushes_what_was_tested(checkout: Checkout) -> None:
    put(checkout)
    done = checkout.run(*PUSH, "--sboms", "sboms", answers=answers(sbom={"out": "{}"}))
    assert done.returncode == 0, done.stderr
    assert checkout.logged() == [
        f"push --recipe tiny --base made --with-results ghcr.io/someone/images/tiny@{DIGEST}",
        "sbom --recipe tiny --base made --format spdx",
    ]
    reference = f"ghcr.io/someone/images/tiny@{DIGEST}"
    assert checkout.outputs() == {"reference": reference}
    assert json.loads((checkout.folder / "results/tiny.json").read_text("utf-8"))["reference"] == reference
    assert (checkout.folder / "sboms/tiny.spdx.json").exists()


@pytest.mark.parametrize("tested", [(), ("static",), ("cpu",), ("gpu",)])
def test_an_untested_image_stops_all_pushes(checkout: Checkout, tested: tuple[str, ...]) -> None:
    put(checkout)
    put(checkout, tested, recipe="other")
    done = checkout.run(*PUSH, answers=answers())
    assert (done.returncode, "[publish-untested]" in done.stderr, "other" in done.stderr) == (7, True, True)
    assert checkout.logged() == []


def test_another_digest_than_the_tested_one(checkout: Checkout) -> None:
    put(checkout, digest="sha256:" + "e" * 64)
    done = checkout.run(*PUSH, answers=answers())
    assert done.returncode == 8
    assert json.loads((checkout.folder / "results/tiny.json").read_text("utf-8"))["reference"] is None


def test_a_failed_push_leaves_no_reference(checkout: Checkout) -> None:
    put(checkout)
    assert checkout.run(*PUSH, answers=answers(push={"code": 6})).returncode == 6
    assert json.loads((checkout.folder / "results/tiny.json").read_text("utf-8"))["reference"] is None


def test_no_image_passed(checkout: Checkout) -> None:
    assert checkout.run(*PUSH, answers=answers()).returncode == 2


@pytest.mark.parametrize("text", ["{}", "[", "null", json.dumps(RECORD | {"digest": "latest"}), '{"recipe": "--help"}'])
def test_a_damaged_record(checkout: Checkout, text: str) -> None:
    write_files(checkout.folder, {"results/tiny.json": text})
    assert checkout.run(*PUSH, answers=answers()).returncode == 3
    assert checkout.logged() == []
