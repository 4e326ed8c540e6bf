"""Policies: what counts, and what does not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from builder.attest.policy import Policy, judge
from builder.attest.statement import CYCLONEDX, PROVENANCE, REBUILT, SIGNED, TESTED, Statement
from builder.digest import Digest
from builder.errors import InvalidError
from builder.model.yamlfile import load
from tests.support.errors import fails

NOW = datetime(2026, 11, 22, tzinfo=UTC)
IMAGE = Digest.of(b"image")
Said = tuple[str, Statement]


def says(key: str, type: str, **predicate: Any) -> Said:
    return key, Statement((IMAGE,), type, predicate)


def rebuilt(key: str, machine: str = "arm64", day: str = "2026-11-20", verdict: str = "identical") -> Said:
    return says(key, REBUILT, verdict=verdict, verifier={"architecture": machine}, finishedOn=f"{day}T01:02:03Z")


def provenance(key: str, base: object) -> Said:
    return says(key, PROVENANCE, buildDefinition={"externalParameters": {"base": base}})


def met(policy: dict[str, Any], *said: Said) -> bool:
    return all(rule.met for rule in judge(Policy.model_validate(policy), said, NOW))


TEAM = {"signed": [{"key": "team.pub", "about": ["image", "sbom"]}]}
TWO = {"rebuilt": {"count": 2, "keys": ["a.pub", "b.pub", "c.pub"], "architectures": ["amd64", "arm64"], "days": 30}}


def test_every_kind_must_be_signed_by_the_key() -> None:
    image, sbom = says("team.pub", SIGNED), says("team.pub", CYCLONEDX)
    assert met(TEAM, image, sbom)
    assert not met(TEAM, image)
    assert not met(TEAM, sbom)
    assert not met(TEAM, image, says("other.pub", CYCLONEDX))
    assert not met(TEAM)


def test_checks_that_failed_do_not_count() -> None:
    policy = {"signed": [{"key": "team.pub", "about": ["checks"]}]}
    assert met(policy, says("team.pub", TESTED, result="PASSED"))
    assert not met(policy, says("team.pub", TESTED, result="FAILED"))
    assert not met(policy, says("team.pub", TESTED))


@pytest.mark.parametrize(
    ("said", "enough"),
    [
        ((rebuilt("a.pub"), rebuilt("b.pub", "amd64")), True),
        ((rebuilt("a.pub"), rebuilt("a.pub", "amd64")), False),  # one key twice
        ((rebuilt("a.pub"), rebuilt("b.pub")), False),  # no amd64
        ((rebuilt("a.pub"), rebuilt("b.pub", "amd64", "2026-10-01")), False),  # too old
        ((rebuilt("a.pub"), rebuilt("b.pub", "amd64", "2027-10-01")), False),  # in the future
        ((rebuilt("a.pub"), rebuilt("b.pub", "amd64", "yesterday")), False),
        ((rebuilt("a.pub"), rebuilt("stranger.pub", "amd64")), False),
        ((rebuilt("a.pub"), rebuilt("b.pub", "amd64", verdict="identical as far as compared")), False),
        ((rebuilt("a.pub"), says("b.pub", REBUILT, verdict="identical", verifier="amd64")), False),
        ((), False),
    ],
)
def test_independent_rebuilds(said: tuple[Said, ...], enough: bool) -> None:
    assert met(TWO, *said) == enough


def test_a_signed_difference_is_never_outvoted() -> None:
    said = [rebuilt("a.pub"), rebuilt("b.pub", "amd64"), rebuilt("c.pub", verdict="differs")]
    rules = judge(Policy.model_validate(TWO), said, NOW)
    assert [rule.text for rule in rules if not rule.met] == ["c.pub has signed that a rebuild differs"]
    assert [rule.differs for rule in rules if not rule.met] == [True]


def test_bases_are_those_of_signed_provenance() -> None:
    policy = {"signed": [{"key": "team.pub"}], "bases": ["hermetic-*"]}
    image = says("team.pub", SIGNED)
    assert met(policy, image, provenance("team.pub", "hermetic-0.23"))
    assert not met(policy, image, provenance("team.pub", "vllm-openai"))
    assert not met(policy, image, provenance("team.pub", ["hermetic-0.23"]))
    assert not met(policy, image, provenance("team.pub", "hermetic-0.23"), provenance("team.pub", "vllm-openai"))
    assert not met(policy, image, provenance("other.pub", "hermetic-0.23"))
    assert not met(policy, image)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("{}", "value-invalid"),
        ("bases: [hermetic]", "value-invalid"),
        ("signed: [{key: a.pub, about: []}]", "value-invalid"),
        ("signed: [{key: a.pub, about: [everything]}]", "value-invalid"),
        ("rebuilt: {count: 2, keys: [a.pub, a.pub]}", "value-invalid"),
        ("rebuilt: {keys: []}", "value-invalid"),
        ("rebuilt: {keys: [a.pub], days: 0}", "value-invalid"),
        ("signed: [{key: a.pub}]\nunknown: 1", "key-unknown"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_with_file_and_line(tmp_path: Path, text: str, id: str) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    with fails(InvalidError, id) as caught:
        load(tmp_path / "policy.yaml", Policy)
    assert "policy.yaml" in caught.value.where
