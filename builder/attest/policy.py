"""A policy: whose statements about an image are demanded before it is used. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, model_validator

from builder.attest.statement import CYCLONEDX, PROVENANCE, SIGNED, SPDX, TESTED, Statement
from builder.model.common import Line, Strict

About = Literal["image", "provenance", "sbom", "checks"]
_TYPES: dict[About, tuple[str, ...]] = {
    "image": (SIGNED,),
    "provenance": (PROVENANCE,),
    "sbom": (CYCLONEDX, SPDX),
    "checks": (TESTED,),
}


class SignedRule(Strict):
    """A key that must have signed. key: the file of a public key, relative to the policy. about: what it signed."""

    key: Line
    about: Annotated[tuple[About, ...], Field(min_length=1)] = ("image",)


class RebuiltRule(Strict):
    """Rebuilds of the whole image that were identical.

    keys: public keys of those who rebuild; each counts once. architectures: of the machines (amd64, arm64), each at
    least once. days: how old a rebuild may be.
    """

    count: Annotated[int, Field(ge=1, le=100)] = 1
    keys: Annotated[tuple[Line, ...], Field(min_length=1)]
    architectures: tuple[Literal["amd64", "arm64"], ...] = ()
    days: Annotated[int, Field(ge=1, le=36_500)] | None = None

    @model_validator(mode="after")
    def _enough_keys(self) -> RebuiltRule:
        if self.count > len(set(self.keys)):
            raise ValueError(f"count is {self.count}, and there are {len(set(self.keys))} keys")
        return self


class Policy(Strict):
    """All rules must be met. bases: names that the base may have, `*` for any characters, in signed provenance."""

    signed: tuple[SignedRule, ...] = ()
    rebuilt: RebuiltRule | None = None
    bases: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _some_rule(self) -> Policy:
        if not self.signed and self.rebuilt is None:
            raise ValueError("it demands nothing: name keys under signed or rebuilt")
        if self.bases and not self.signed:
            raise ValueError("bases are those of signed provenance: name a key under signed")
        return self

    @property
    def keys(self) -> list[str]:
        """The files of all keys, each once."""
        return list(dict.fromkeys([*(rule.key for rule in self.signed), *(self.rebuilt.keys if self.rebuilt else ())]))


@dataclass(frozen=True)
class Judged:
    """A rule. text: the rule and what was found, for a person. differs: it is unmet because a rebuild differs."""

    text: str
    met: bool
    differs: bool = False


def judge(policy: Policy, said: Sequence[tuple[str, Statement]], now: datetime) -> list[Judged]:
    """Every rule of a policy. said: the valid statements about the image, with the policy's name of the key.

    What is not among them does not count.
    """
    return [*_signed(policy, said), *_bases(policy, said), *_rebuilt(policy, said, now), *_differences(said)]


def _signed(policy: Policy, said: Sequence[tuple[str, Statement]]) -> Iterator[Judged]:
    for rule in policy.signed:
        for about in rule.about:
            met = any(key == rule.key and _says(statement, about) for key, statement in said)
            yield Judged(f"{about} signed by {rule.key}: {'yes' if met else 'no'}", met)


def _says(statement: Statement, about: About) -> bool:
    failed = statement.type == TESTED and statement.predicate.get("result") not in ("PASSED", "WARNED")
    return statement.type in _TYPES[about] and not failed


def _bases(policy: Policy, said: Sequence[tuple[str, Statement]]) -> Iterator[Judged]:
    if not policy.bases:
        return
    signers = {rule.key for rule in policy.signed}
    found = {_base(statement) for key, statement in said if key in signers and statement.type == PROVENANCE}
    met = bool(found) and all(any(fnmatchcase(base, name) for name in policy.bases) for base in found)
    yield Judged(f"base {' or '.join(policy.bases)}: {', '.join(sorted(found)) or 'no signed provenance'}", met)


def _base(statement: Statement) -> str:
    definition = statement.predicate.get("buildDefinition")
    parameters = definition.get("externalParameters") if isinstance(definition, dict) else None
    base = parameters.get("base") if isinstance(parameters, dict) else None
    return base[:80] if isinstance(base, str) else "unknown"


def _rebuilt(policy: Policy, said: Sequence[tuple[str, Statement]], now: datetime) -> Iterator[Judged]:
    rule = policy.rebuilt
    if rule is None:
        return
    oldest = now - timedelta(days=rule.days) if rule.days is not None else None
    counted = [
        (key, statement)
        for key, statement in said
        if key in rule.keys and statement.rebuilt_identical and _is_recent(statement, oldest, now)
    ]
    signers = {key for key, _ in counted}
    age = f", at most {rule.days} days old" if rule.days is not None else ""
    yield Judged(f"identical rebuilds{age}: {len(signers)} of {rule.count}", len(signers) >= rule.count)
    machines = {_architecture(statement) for _, statement in counted}
    for name in rule.architectures:
        yield Judged(f"identical rebuild on {name}{age}: {'yes' if name in machines else 'no'}", name in machines)


def _is_recent(statement: Statement, oldest: datetime | None, now: datetime) -> bool:
    if oldest is None:
        return True
    try:
        finished = datetime.strptime(str(statement.predicate.get("finishedOn")), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    # A time in the future is not a time at which somebody rebuilt.
    return oldest <= finished.replace(tzinfo=UTC) <= now + timedelta(days=1)


def _architecture(statement: Statement) -> str:
    verifier = statement.predicate.get("verifier")
    return str(verifier.get("architecture")) if isinstance(verifier, dict) else ""


def _differences(said: Sequence[tuple[str, Statement]]) -> Iterator[Judged]:
    for key, statement in said:
        if statement.rebuilt_differs:
            yield Judged(f"{key} has signed that a rebuild differs", met=False, differs=True)
