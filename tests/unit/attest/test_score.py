"""The score of an image: never better than what valid statements say of it."""

from __future__ import annotations

from typing import Any

import pytest

from builder.attest.score import image_level, scores
from builder.attest.statement import PROVENANCE, REBUILT, Statement
from builder.digest import Digest

ROOT, NCCL = Digest.of(b"root"), Digest.of(b"nccl")
IMAGE = Digest.of(b"image")


def rebuilt(verdict: str = "identical", **parts: object) -> Statement:
    """A rebuild of both layers. parts: outcomes by id; variations: those of the statement."""
    outcomes = {"root": "identical", "nccl": "identical", **parts}
    variations = outcomes.pop("variations", [])
    digests = {"root": ROOT, "nccl": NCCL}
    rows = [{"part": name, "outcome": outcome, "expected": digests[name]} for name, outcome in outcomes.items()]
    verifier = {"architecture": "arm64", "engine": "buildah 1.28.2"}
    predicate = {"verdict": verdict, "parts": rows, "verifier": verifier, "variations": variations}
    return Statement((IMAGE,), REBUILT, predicate)


def varied(name: str, *layers: str, changed: object = ()) -> dict[str, Any]:
    return {"variation": name, "layers": list(layers), "changed": list(changed) if isinstance(changed, tuple) else None}


LOCKED = Statement((IMAGE,), PROVENANCE, {})
PART = "identical as far as compared"


@pytest.mark.parametrize(
    ("said", "levels"),
    [
        ([], "unpinned unpinned unpinned"),
        ([LOCKED], "version-identical version-identical version-identical"),
        ([rebuilt()], "bit-identical bit-identical bit-identical"),
        ([rebuilt(), LOCKED], "bit-identical bit-identical bit-identical"),
        ([rebuilt(PART, nccl="not compared")], "bit-identical unpinned unpinned"),
        ([rebuilt(PART, nccl="not compared"), LOCKED], "bit-identical version-identical version-identical"),
        # Each layer was rebuilt, and nobody rebuilt the image with its configuration.
        ([rebuilt(PART)], "bit-identical bit-identical version-identical"),
        ([rebuilt("content identical", nccl="content identical")], "bit-identical content-identical content-identical"),
        ([rebuilt(), rebuilt("differs", nccl="differs")], "bit-identical differs differs"),
        # Only the configuration differs.
        ([rebuilt(), rebuilt("differs")], "bit-identical bit-identical differs"),
        ([rebuilt(variations=[varied("time 2001", "root", changed=("root",))])], "differs bit-identical differs"),
        ([rebuilt(variations=[varied("time 2001", "root", changed=None)])], "differs bit-identical differs"),
    ],
)
def test_levels(said: list[Statement], levels: str) -> None:
    signed = [("team.pub", statement) for statement in said]
    found = scores([ROOT, NCCL], signed)
    assert " ".join([*(item.level for item in found), image_level(found, signed)]) == levels


def test_what_is_counted() -> None:
    first = rebuilt(variations=[varied("umask 077", "root", "nccl"), varied("seed", "root")])
    second = rebuilt(variations=[varied("umask 077", "root"), varied("cpus", "nccl", changed=("nccl",))])
    root, nccl = scores([ROOT, NCCL], [("a.pub", first), ("b.pub", second), ("a.pub", first)])
    assert (root.name, root.signers, root.machines) == ("root", ("a.pub", "b.pub"), ("arm64 buildah 1.28.2",))
    assert root.variations == ("seed", "umask 077")
    assert nccl.differs == ("b.pub (cpus)",)


@pytest.mark.parametrize("value", [None, 7, "x", [], [7], [{}], [{"expected": ROOT}], {"part": "root"}])
def test_odd_predicates_show_nothing(value: object) -> None:
    predicate = {"verdict": "identical", "parts": value, "variations": value, "verifier": value}
    (found,) = scores([ROOT], [("a.pub", Statement((IMAGE,), REBUILT, predicate))])
    assert (found.level, found.name) == ("unpinned", ROOT.short)
