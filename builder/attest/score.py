"""How reproducible an image has been shown to be: a score of each layer, from signed statements alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from builder.attest.statement import PROVENANCE, REBUILT, Statement
from builder.digest import Digest

Level = Literal["differs", "unpinned", "version-identical", "content-identical", "bit-identical"]
LEVELS: tuple[Level, ...] = ("differs", "unpinned", "version-identical", "content-identical", "bit-identical")
"""From the worst. bit-identical: every signed rebuild made the same blob. content-identical: the same unpacked files.
version-identical: nobody signed a rebuild, and signed provenance names every input by its hash. unpinned: not even
that. differs: somebody signed that a rebuild, or one under a variation, differs; nothing outvotes it."""


@dataclass(frozen=True)
class Score:
    """What is shown of one layer. name: its id; its short digest where no statement has one.

    signers, machines: of the rebuilds; a machine is `arm64 buildah 1.28.2`, for example. variations: those under which
    it stayed the same. differs: who says that it does not stay the same, and under which variation.
    """

    name: str
    digest: Digest
    level: Level
    signers: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    variations: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


def scores(layers: Sequence[Digest], said: Sequence[tuple[str, Statement]]) -> list[Score]:
    """The score of each layer of an image, from the lowest. said: valid statements about it, and who signed them."""
    locked = any(statement.type == PROVENANCE for _, statement in said)
    rebuilds = [(signer, statement) for signer, statement in said if statement.type == REBUILT]
    return [_score(digest, rebuilds, "version-identical" if locked else "unpinned") for digest in layers]


def image_level(layers: Sequence[Score], said: Sequence[tuple[str, Statement]]) -> Level:
    """The score of the image: that of its worst layer; above version-identical only after a rebuild of all of it."""
    levels: list[Level] = [score.level for score in layers] or ["unpinned"]
    level = min(levels, key=LEVELS.index)
    if level == "bit-identical" and any(statement.rebuilt_differs for _, statement in said):
        return "differs"
    if level == "bit-identical" and not any(statement.rebuilt_identical for _, statement in said):
        return "version-identical"
    return level


def _score(digest: Digest, rebuilds: Sequence[tuple[str, Statement]], without: Level) -> Score:
    found = [
        (signer, statement, str(row.get("part"))[:80], row.get("outcome"))
        for signer, statement in rebuilds
        for row in _rows(statement.predicate.get("parts"))
        if row.get("expected") == digest and row.get("outcome") in ("identical", "content identical", "differs")
    ]
    same, differs = set(), [signer for signer, _, _, outcome in found if outcome == "differs"]
    for signer, statement, name, _ in found:
        for variation, identical in _variations(statement, name):
            if identical:
                same.add(variation)
            else:
                differs.append(f"{signer} ({variation})")
    outcomes = {outcome for *_, outcome in found}
    level: Level = "bit-identical" if outcomes else without
    if differs:
        level = "differs"
    elif "content identical" in outcomes:
        level = "content-identical"
    return Score(
        name=found[0][2] if found else digest.short,
        digest=digest,
        level=level,
        signers=tuple(dict.fromkeys(signer for signer, *_ in found)),
        machines=tuple(dict.fromkeys(_machine(statement) for _, statement, *_ in found)),
        variations=tuple(sorted(same)),
        differs=tuple(differs),
    )


def _variations(statement: Statement, layer: str) -> Iterator[tuple[str, bool]]:
    """The variations under which a statement says that a layer was rebuilt, and whether it stayed the same."""
    for row in _rows(statement.predicate.get("variations")):
        names, changed = row.get("layers"), row.get("changed")
        if isinstance(names, list) and layer in names:
            yield str(row.get("variation"))[:80], isinstance(changed, list) and layer not in changed


def _machine(statement: Statement) -> str:
    verifier = statement.predicate.get("verifier")
    about = verifier if isinstance(verifier, dict) else {}
    return " ".join(str(about[name])[:60] for name in ("architecture", "engine") if about.get(name)) or "unknown"


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
