"""What an image holds, as its plan says it, and the differences between two such accounts. Pure.

`builder.verify.contents` makes the same account of an image's files, so that images and plans are compared alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from builder.digest import Digest
from builder.model.canonical import fingerprint
from builder.model.lock import DebLock, LockSection, WheelLock
from builder.model.plan import Plan, PlannedLayer
from builder.oci.assemble import environment
from builder.plan.bundle import write_bundle
from builder.plan.imageconfig import VLLM_LABEL

Of = Literal["plan", "image", "layer", "lock"]

Kind = Literal[
    "setting", "source", "gpu code", "python", "debian", "toolchain", "env", "option", "label", "layer", "file"
]
"""python, debian: distributions and packages in the image; source: what it is compiled from, and files of wheels;
toolchain: packages that compile it; option: of the image's command; gpu code: of a library, by architecture."""

KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
_OPTION = re.compile(r"--?[A-Za-z]")
PROGRAM = "program"
"""The name of the words of a command before its first option."""
_NCCL_FUNCTIONS = "NCCL functions"


class Fact(NamedTuple):
    """What is known of one thing. text: for a person. identity: of its bytes, "" when it is not known."""

    text: str
    identity: str = ""


@dataclass(frozen=True)
class Contents:
    """An account of an image, a layer or a lock. facts: by kind and name; a kind that is absent is not known.

    size: bytes of the image's blobs, or of a plan's inputs. vendor: a plan whose base is a vendor's image, of which
    only the name is known. identity: of all of it, "" when it is not known.
    """

    name: str
    of: Of
    facts: Mapping[Kind, Mapping[str, Fact]]
    size: int = 0
    vendor: bool = False
    identity: str = ""

    def text(self, kind: Kind, name: str) -> str | None:
        """The text of one fact; None when there is none."""
        fact = self.facts.get(kind, {}).get(name)
        return fact.text if fact is not None else None


@dataclass(frozen=True)
class Change:
    """One difference. old, new: None when the thing is absent."""

    kind: Kind
    name: str
    old: str | None
    new: str | None


CommitOf = Callable[[str, str], str | None]
"""The commit of a source, by name and version; None when it is not known."""


def no_commit(_name: str, _version: str) -> None:
    """A CommitOf that knows none."""


def compared_kinds(old: Contents, new: Contents) -> list[Kind]:
    """The kinds that both accounts know, in the order of a report."""
    # A plan names layers by key and an image by digest.
    skipped: set[Kind] = {"layer"} if old.of != new.of else set()
    return [kind for kind in KINDS if kind in old.facts and kind in new.facts and kind not in skipped]


def differences(old: Contents, new: Contents) -> list[Change]:
    """What differs, of the kinds that both accounts know: by kind, and sorted by name.

    Nothing differs only if nothing at all does, as far as both are known as a whole.
    """
    found: list[Change] = []
    for kind in compared_kinds(old, new):
        before, after = old.facts[kind], new.facts[kind]
        found += changed(kind, before, after, every=old.of == new.of)
        orders = [name for name in before if name in after], [name for name in after if name in before]
        if kind in ("layer", "option") and orders[0] != orders[1]:
            found.append(Change(kind, "their order", *(" ".join(names) for names in orders)))
    if not found and old.of == new.of and old.identity and new.identity and old.identity != new.identity:
        found.append(Change("setting", "what is not listed", old.identity[:19], new.identity[:19]))
    return found


def changed(kind: Kind, old: Mapping[str, Fact], new: Mapping[str, Fact], *, every: bool = True) -> Iterable[Change]:
    """The differences of one kind, sorted by name. every: also settings and sources that only one of the two has."""
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            # An image does not say all of what its plan says of these.
            if every or kind not in ("setting", "source"):
                yield Change(kind, name, before.text if before else None, after.text if after else None)
        elif before.text != after.text:
            yield Change(kind, name, before.text, after.text)
        elif before.identity and after.identity and before.identity != after.identity:
            # The same version in another file: another build of the wheel, a package that was uploaded again.
            yield Change(kind, name, *(f"{fact.text} (sha256 {fact.identity[:12]})" for fact in (before, after)))


def plan_contents(plan: Plan, commit_of: CommitOf = no_commit) -> Contents:
    """The account of a plan. Of a vendor's base, only the name and digest are known."""
    facts: dict[Kind, dict[str, Fact]] = {kind: {} for kind in KINDS if kind not in ("gpu code", "file")}
    for layer in plan.layers:
        placed = {item["file"] for item in (layer.spec or {}).get("wheels", ()) if "strip" in item}
        for item in layer.inputs:
            name, version = item.package, item.version
            if item.kind == "deb":
                facts["debian"][name] = Fact(version, item.sha256)
            elif item.kind == "wheel" and layer.spec is not None and item.file not in placed:
                facts["python"][name] = Fact(version, item.sha256)
            else:
                facts["source"][name] = Fact(with_commit(version, commit_of(name, version)), item.sha256)
        if layer.producer != "config":
            facts["layer"][layer.id] = Fact(f"key {layer.key[:12]}", layer.key)
        if "functions" in layer.params and layer.layer == "nccl":
            facts["setting"][_NCCL_FUNCTIONS] = Fact(str(layer.params["functions"]))
    facts["toolchain"] = toolchain_facts(plan.used_toolchains)
    facts["setting"] |= {
        "recipe": Fact(plan.recipe),
        "base": Fact(plan.base, plan.base_manifest or ""),
        "created": Fact(plan.created),
        "compression": Fact(plan.compression),
    }
    facts["env"] = variables(environment([], plan.env))
    facts["option"] = options([*(plan.entrypoint or ()), *plan.command])
    facts["label"] = {name: Fact(value) for name, value in plan.labels}
    if VLLM_LABEL in facts["label"]:
        facts["python"].setdefault("vllm", facts["label"][VLLM_LABEL])
    inputs = {item.digest: item.size for layer in plan.layers for item in layer.inputs}
    vendor = plan.base_image is not None
    name, size = f"{plan.recipe} on {plan.base}", sum(inputs.values())
    return Contents(name, "plan", facts, size, vendor, Digest.of(write_bundle(plan)))


def lock_contents(name: str, sections: Iterable[LockSection]) -> Contents:
    """The account of a whole lock: every locked file, by section."""
    facts: dict[Kind, dict[str, Fact]] = {"source": {}, "python": {}, "debian": {}}
    size, whole = 0, []
    for section in sections:
        size += sum(item.size for item in section.entries)
        whole.append(section.model_dump(mode="json"))
        if isinstance(section, DebLock):
            for deb in section.packages:
                facts["debian"][f"{section.name}/{deb.package}"] = Fact(deb.version, deb.sha256)
        elif isinstance(section, WheelLock):
            for wheel in section.wheels:
                facts["python"][f"{section.name}/{wheel.name}"] = Fact(wheel.version, wheel.sha256)
        else:
            for source in section.sources:
                text = with_commit(source.version, source.commit)
                facts["source"][f"{source.name}/{source.version}"] = Fact(text, source.sha256)
    return Contents(name, "lock", facts, size, identity=fingerprint(whole))


def toolchain_facts(roots: Iterable[PlannedLayer]) -> dict[str, Fact]:
    """The packages of toolchains, by architecture and name."""
    return {
        f"{root.id.removeprefix('toolchain-')} {item.package}": Fact(item.version, item.sha256)
        for root in roots
        for item in root.inputs
    }


def with_commit(version: str, commit: str | None) -> str:
    """A version with the beginning of its commit, as a person reads it."""
    return f"{version} ({commit[:12]})" if commit else version


def variables(environ: Iterable[str]) -> dict[str, Fact]:
    """The variables of NAME=VALUE strings. One that is there twice has both: programs differ in what they take."""
    found: dict[str, list[str]] = {}
    for name, _, value in (item.partition("=") for item in environ):
        found.setdefault(name, []).append(value)
    return {name: Fact(" and ".join(values)) for name, values in found.items()}


def options(words: Sequence[str]) -> dict[str, Fact]:
    """A command by option: `--port 8000` has the name `--port`. The words before the first option are `program`.

    A repeated option is one fact, with all its values in their order; its identity is that of the exact words.
    """
    found: dict[str, list[str]] = {}
    exact: dict[str, list[str]] = {}
    name = PROGRAM
    for word in words:
        if _OPTION.match(word):
            name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            found.setdefault(name, []).extend([value] if equals else [])
        else:
            found.setdefault(name, []).append(word)
        exact.setdefault(name, []).append(word)
    return {name: Fact(" ".join(values), fingerprint(exact[name])) for name, values in found.items()}


def details(changes: Sequence[Change]) -> Iterator[str]:
    """Every change as one line: - for what is gone, + for what is new, ~ for what changed."""
    for change in changes:
        mark = "+" if change.old is None else "-" if change.new is None else "~"
        value = " → ".join(text or '""' for text in (change.old, change.new) if text is not None)
        yield f"{mark} {change.kind} {change.name}: {value}"
