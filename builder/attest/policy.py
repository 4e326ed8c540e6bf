"""A policy: whose statements about an image are demanded before it is used. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, model_validator

from builder.attest.statement import CYCLONEDX, LAYER, PROVENANCE, SIGNED, SPDX, TESTED, Statement
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
    """Rebuilds of the whole image that were identical, or builds of a layer that agree.

    keys: public keys of those who build; each counts once. architectures: of the machines (amd64, arm64), each at
    least once. days: how old a build may be.
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
    """All rules must be met. bases: names that the base may have, `*` for any characters, in signed provenance.

    layers: who must have built a layer before it is taken from a layer cache; the other rules are about images.
    """

    signed: tuple[SignedRule, ...] = ()
    rebuilt: RebuiltRule | None = None
    bases: tuple[Line, ...] = ()
    layers: RebuiltRule | None = None

    @model_validator(mode="after")
    def _some_rule(self) -> Policy:
        if not (self.signed or self.rebuilt or self.layers):
            raise ValueError("it demands nothing: name keys under signed, rebuilt or layers")
        if self.bases and not self.signed:
            raise ValueError("bases are those of signed provenance: name a key under signed")
        return self

    @property
    def keys(self) -> list[str]:
        """The files of all keys, each once."""
        builders = [key for rule in (self.rebuilt, self.layers) if rule is not None for key in rule.keys]
        return list(dict.fromkeys([*(rule.key for rule in self.signed), *builders]))

    @property
    def judges_images(self) -> bool:
        """Whether it has a rule for images."""
        return bool(self.signed or self.rebuilt)


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
    identical = [(key, statement) for key, statement in said if statement.rebuilt_identical]
    rebuilt = _built(policy.rebuilt, identical, now, "identical rebuild") if policy.rebuilt is not None else ()
    return [*_signed(policy, said), *_bases(policy, said), *rebuilt, *_differences(said)]


def judge_layer(rule: RebuiltRule, said: Sequence[tuple[str, Statement]], now: datetime) -> list[Judged]:
    """The rule for layers. said: as for `judge`, statements of one layer key that agree on its bytes."""
    return list(_built(rule, [(key, item) for key, item in said if item.type == LAYER], now, "build"))


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


def _built(rule: RebuiltRule, said: Sequence[tuple[str, Statement]], now: datetime, noun: str) -> Iterator[Judged]:
    counted = [(key, item) for key, item in said if key in rule.keys and is_recent(item, rule.days, now)]
    signers = {key for key, _ in counted}
    age = f", at most {rule.days} days old" if rule.days is not None else ""
    yield Judged(f"{noun}s{age}: {len(signers)} of {rule.count}", len(signers) >= rule.count)
    machines = {_architecture(statement) for _, statement in counted}
    for name in rule.architectures:
        yield Judged(f"{noun} on {name}{age}: {'yes' if name in machines else 'no'}", name in machines)


def is_recent(statement: Statement, days: int | None, now: datetime) -> bool:
    """Whether a build is at most so many days old. A time in the future is not a time at which somebody built."""
    if days is None:
        return True
    try:
        finished = datetime.strptime(str(statement.predicate.get("finishedOn")), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    return now - timedelta(days=days) <= finished.replace(tzinfo=UTC) <= now + timedelta(days=1)


def _architecture(statement: Statement) -> str:
    verifier = statement.predicate.get("verifier")
    return str(verifier.get("architecture")) if isinstance(verifier, dict) else ""


def _differences(said: Sequence[tuple[str, Statement]]) -> Iterator[Judged]:
    for key, statement in said:
        if statement.rebuilt_differs:
            yield Judged(f"{key} has signed that a rebuild differs", met=False, differs=True)
