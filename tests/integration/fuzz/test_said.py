"""Damaged texts about an image: bundles, signed statements, entries of a layer cache, results of checks and SBOMs.

Signatures are right: what is damaged is what was signed, as by a builder with a bug or a bad intention.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.attest import cyclonedx, spdx
from builder.attest.envelope import read_envelope, sign
from builder.attest.keys import public_key, signing_key
from builder.attest.policy import Policy, RebuiltRule, judge
from builder.attest.score import image_level, scores
from builder.attest.statement import LAYER, REBUILT, Statement, read_statement, write_statement
from builder.cache.entry import predicate
from builder.cache.verdict import sort_out
from builder.choices import load_choices
from builder.digest import Digest
from builder.errors import BuilderError
from builder.model.yamlfile import load
from builder.plan.bundle import read_bundle, write_bundle
from builder.registry.signed import Said
from builder.smoke.results import parse_results
from builder.store.records import LayerRecord
from tests.support.fixtures import MakePlan
from tests.support.fuzz import SEED, times
from tests.support.hostile import limit
from tests.support.mutate import Mutator
from tests.support.statements import new_key

IMAGE, OTHER = Digest.of(b"image"), Digest.of(b"other")
NOW = datetime(2026, 11, 1, tzinfo=UTC)
KEY = "k" * 64
RECORD = LayerRecord(IMAGE, 5, OTHER, 9, "application/vnd.oci.image.layer.v1.tar+zstd", 1, OTHER, OTHER)
BUILT = predicate("a" * 64, "one", RECORD, (3, 4), machine={"architecture": "arm64"}, finished="2026-10-30T00:00:00Z")
SHOWN = {
    "verdict": "identical",
    "finishedOn": "2026-10-30T00:00:00Z",
    "verifier": {"architecture": "arm64", "engine": "buildah 1.28"},
    "parts": [{"part": "one", "outcome": "identical", "expected": IMAGE, "actual": IMAGE}],
    "variations": [{"variation": "time", "layers": ["one"], "changed": []}],
}


def ends(read: Callable[[], object]) -> str:
    """How reading ends: with a value, or with an expected error."""
    try:
        with limit():
            read()
    except BuilderError as error:
        assert error.what and error.id
        return error.id
    except ValueError as error:
        return str(error)[:30]
    return "read"


def texts(text: str, name: str, count: int) -> Sequence[bytes]:
    return list(Mutator(text, "json", f"{SEED} {name}").some(times(count)))


def test_bundles(make_plan: MakePlan) -> None:
    found: Counter[str] = Counter()
    for data in texts(write_bundle(make_plan()).decode(), "bundle", 100):
        found[ends(lambda data=data: read_bundle(data, "here"))] += 1  # type: ignore[misc]
    # Any change of the plan changes a key, or is no canonical JSON.
    assert found.pop("read", 0) <= sum(found.values()) / 10


@pytest.mark.parametrize(("kind", "said"), [(LAYER, BUILT), (REBUILT, SHOWN)], ids=["layer", "rebuilt"])
def test_signed_statements(kind: str, said: dict[str, Any], tmp_path: Path) -> None:
    private, public = new_key(tmp_path, "own")
    key, own = signing_key(private.read_bytes(), None, "own.pem"), public_key(public.read_bytes(), "own.pub")
    rule = RebuiltRule(keys=("own.pub",), days=30)
    policy = Policy(rebuilt=rule)
    text = write_statement(IMAGE, kind, said).decode()
    found: Counter[str] = Counter()

    def read(data: bytes) -> None:
        envelope = read_envelope(sign(data, key), "here")
        assert envelope.signer([own]) is own
        judged(envelope.statement())

    def judged(statement: Statement) -> None:
        entry = sort_out("a" * 64, [Said(OTHER, statement, replace(own, name="own.pub"))], rule, NOW, "here")
        assert entry.trusted is None or entry.trusted.layer.media_type == RECORD.media_type
        entry.compare(RECORD, "here")
        pairs = [("own.pub", statement)]
        judge(policy, pairs, NOW)
        image_level(scores([IMAGE, OTHER], pairs), pairs)

    for data in texts(text, kind, 400):
        found[ends(lambda data=data: read(data))] += 1  # type: ignore[misc]
    assert min(found["read"], found["statement-invalid"]) > times(400) / 20


def test_envelopes(tmp_path: Path) -> None:
    private, public = new_key(tmp_path, "own")
    keys = [public_key(public.read_bytes(), "own.pub")]
    bundle = sign(write_statement(IMAGE, REBUILT, SHOWN), signing_key(private.read_bytes(), None, "own.pem"))
    payload = read_envelope(bundle, "here").payload
    for data in texts(bundle.decode(), "envelope", 300):

        def read(data: bytes = data) -> None:
            envelope = read_envelope(data, "here")
            # Whatever else was changed, only the signed bytes count.
            assert envelope.signer(keys) is None or envelope.payload == payload
            read_statement(envelope.payload, "here")

        ends(read)


RESULTS = json.dumps(
    {
        "digest": IMAGE,
        "results": [{"id": "a", "name": "a", "tier": "static", "status": "pass", "message": "m", "seconds": 0.1}],
        "notes": ["n"],
    }
)
DOCUMENTS: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "results": (RESULTS, lambda data: parse_results(data, IMAGE, "here").as_dict()),
    "cyclonedx": (
        json.dumps({"components": [{"purl": "pkg:pypi/a@1", "hashes": [{"alg": "SHA-256", "content": "a" * 64}]}]}),
        lambda data: cyclonedx.listed(json.loads(data)),
    ),
    "spdx": (
        json.dumps(
            {
                "packages": [
                    {
                        "externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:pypi/a@1"}],
                        "checksums": [{"algorithm": "SHA256", "checksumValue": "a" * 64}],
                    }
                ]
            }
        ),
        lambda data: spdx.listed(json.loads(data)),
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(name: str) -> None:
    text, read = DOCUMENTS[name]
    for data in texts(text, name, 300):
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            given = None
        if isinstance(given, dict) or name == "results":
            ends(lambda data=data: read(data))  # type: ignore[misc]


POLICY = yaml.safe_dump(
    {
        "signed": [{"key": "own.pub", "about": ["image", "sbom"]}],
        "rebuilt": {"count": 1, "keys": ["own.pub"], "architectures": ["arm64"], "days": 30},
        "bases": ["hermetic*"],
        "layers": {"count": 1, "keys": ["own.pub"]},
    }
)
TOML = 'base = "a"\nengine = "docker"\ncache = "x.lan/cache"\n[set.nccl]\nversion = "2.29.7-1"\nparts = ["a", "b"]\n'


def test_policies_and_choices(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    for name, reader, mutator in (
        ("policy.yaml", lambda path: load(path, Policy), Mutator(POLICY, "yaml", SEED)),
        ("builder.toml", load_choices, Mutator("{}", "json", SEED)),
    ):
        mutator.text = mutator.text if name == "policy.yaml" else TOML
        for number in range(times(300)):
            is_text = name == "builder.toml" or number % 3 == 0
            (tmp_path / name).write_bytes(mutator.damaged() if is_text else mutator.changed())
            found[ends(lambda: reader(tmp_path / name))] += 1  # noqa: B023
    assert found["read"] > times(300) / 20
    assert len(found) > 3
