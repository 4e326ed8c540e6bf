"""Whether a layer may be taken from a cache: who vouches for it, and who says something else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from builder.attest.policy import Judged, RebuiltRule, is_recent, judge_layer
from builder.cache.entry import Entry, read_entry
from builder.errors import DiffersError
from builder.registry.signed import Ignored, Said
from builder.store.records import LayerRecord


@dataclass(frozen=True)
class Found:
    """What a cache says of a layer key.

    entries: of builders in the policy, which agree. strangers: entries that nobody vouches for. ignored: what does
    not count, and why. rules: of the policy; empty without one.
    """

    entries: tuple[Entry, ...] = ()
    strangers: tuple[Entry, ...] = ()
    ignored: tuple[str, ...] = ()
    rules: tuple[Judged, ...] = ()

    @property
    def trusted(self) -> Entry | None:
        """The layer that the policy allows to take."""
        return self.entries[0] if self.rules and self.entries and all(rule.met for rule in self.rules) else None

    def compare(self, layer: LayerRecord, where: str) -> str:
        """What this says of a layer that was built here; "" for nothing.

        Raises DiffersError when a builder of the policy has signed another one.
        """
        if other := next((entry for entry in self.entries if not entry.agrees(layer)), None):
            raise DiffersError(
                "another builder has other bytes for a layer that was built here",
                id="cache-differs",
                where=where,
                cause=f"this machine built {layer.digest}; {other.said}",
                next=_NEXT,
            )
        same = [entry for entry in (*self.entries, *self.strangers) if entry.agrees(layer)]
        others = [entry for entry in self.strangers if not entry.agrees(layer)]
        texts = [f"{len(same)} of {len(same) + len(others)} builders in the cache have the same bytes"] if same else []
        texts += [f"{_unknown(others)} other bytes: {others[0].said}"] if others else []
        return "; ".join(texts)


_NEXT = "find out which build is wrong, then remove its key from the policy; without --cache nothing is compared"


def sort_out(key: str, said: Iterable[Said | Ignored], rule: RebuiltRule | None, now: datetime, where: str) -> Found:
    """What the statements that are attached to a layer key amount to. where: the layer, for messages.

    Raises DiffersError when two statements of builders in the policy disagree about the layer.
    """
    entries: list[Entry] = []
    strangers: list[Entry] = []
    ignored: list[str] = []
    for item in said:
        who = item.signer.name if item.signer is not None else ""
        problem = item.problem if isinstance(item, Ignored) else ""
        try:
            if item.statement is None:
                raise ValueError(problem)
            entry = read_entry(item.statement, key, who, item.artifact)
            if not who:
                strangers.append(entry)
            elif rule is not None and not is_recent(item.statement, rule.days, now):
                problem = problem or f"it is older than {rule.days} days, or of a time to come"
            if not problem:
                entries.append(entry)
        except ValueError as error:
            problem = str(error)
        if problem and rule is not None:
            ignored.append(f"statement {item.artifact.short}{f' of {who}' if who else ''} does not count: {problem}")
    _check_agreement(entries, where)
    rules = judge_layer(rule, [(entry.builder, entry.statement) for entry in entries], now) if rule else []
    return Found(tuple(entries), tuple(strangers), tuple(ignored), tuple(rules))


def _check_agreement(entries: Sequence[Entry], where: str) -> None:
    for one, other in combinations(entries, 2):
        if not one.agrees(other.layer):
            alone = one.builder == other.builder
            raise DiffersError(
                f"{one.builder} has signed two different layers under one key"
                if alone
                else f"{one.builder} and {other.builder} disagree about the bytes of a layer",
                id="cache-builders-disagree",
                where=where,
                cause=f"{one.said}; {other.said}",
                next=_NEXT,
            )


def _unknown(entries: Sequence[Entry]) -> str:
    return "a builder that nobody vouches for has" if len(entries) == 1 else f"{len(entries)} unknown builders have"
