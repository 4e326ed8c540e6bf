"""What a page of the catalogue shows of one image: plain values, and what images share. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from builder.digest import Digest
from builder.plan.diff import Change, Contents, Fact, Kind, differences, options, variables
from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.report import Report
from builder.versions import wheel_name

TIERS = {"static": "without running it", "cpu": "run on a CPU", "gpu": "run on a Spark"}
State = Literal["yes", "no", "unknown"]
_TEXT = 2000
"""Characters of one text of a stranger that are kept."""


@dataclass(frozen=True)
class Layer:
    """A layer. size: of its compressed blob, in bytes."""

    id: str
    title: str
    digest: Digest
    size: int


@dataclass(frozen=True, order=True)
class Package:
    """Something that was installed. kind: debian, python or source."""

    kind: Kind
    name: str
    version: str


@dataclass(frozen=True)
class Proof:
    """Something that is shown of an image, or not. state: no for what is missing, or what somebody contradicts."""

    what: str
    state: State
    text: str


@dataclass(frozen=True)
class Override:
    """A rule of the hardware that a recipe breaks, and its reason."""

    rule: str
    title: str
    reason: str


@dataclass(frozen=True)
class Page:
    """One image. place: where it was read. commands: by what they do. note: about the packages.

    vouched: whether the results of checks are this machine's, or signed by a key that counts. earlier: older images of
    this recipe and base, with their dates. previous: the one that `changes` compares with.
    """

    recipe: str
    base: str
    digest: Digest
    place: str
    commands: Mapping[str, str]
    config: Mapping[str, Any]
    layers: Sequence[Layer]
    packages: Sequence[Package]
    note: str
    proofs: Sequence[Proof]
    report: Report | None = None
    vouched: bool = True
    overrides: Sequence[Override] = ()
    earlier: Sequence[tuple[Digest, str]] = ()
    previous: Digest | None = None
    changes: Sequence[Change] = field(default_factory=tuple)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of its containers."""
        return mapping(self.config.get("config"))

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels, as text."""
        return {str(name)[:_TEXT]: str(value)[:_TEXT] for name, value in mapping(self.settings.get("Labels")).items()}

    @property
    def title(self) -> str:
        """What it is, in a line."""
        return self.labels.get("org.opencontainers.image.description", "")

    @property
    def vllm(self) -> str:
        """The version of vLLM, "" if nothing says it."""
        return self.labels.get(VLLM_LABEL, "")

    @property
    def created(self) -> str:
        """The date of its newest input."""
        return str(self.config.get("created", ""))[:10]

    @property
    def size(self) -> int:
        """Bytes that a pull downloads."""
        return sum(layer.size for layer in self.layers)

    @property
    def command(self) -> str:
        """What it runs by default."""
        return " ".join(words(self.settings.get("Entrypoint")) + words(self.settings.get("Cmd")))[:_TEXT]

    def tier(self, name: str) -> str:
        """The outcome of a tier in a few words; "" when no check of it was run."""
        mine = [item for item in self.report.results if item.tier == name] if self.report else []
        failed = sum(item.status == "fail" for item in mine)
        passed = sum(item.status in ("pass", "warn") for item in mine)
        if not passed and not failed:
            return ""
        missing = len(mine) - passed - failed
        return (
            (f"{failed} of {len(mine)} failed" if failed else f"{passed} passed")
            + (f", {missing} not run" if missing else "")
            + ("" if self.vouched else ", as anybody may say")
        )


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one: configurations are written by strangers."""
    return value if isinstance(value, dict) else {}


def words(value: Any) -> list[str]:
    """The texts of a list of a configuration."""
    return [str(item) for item in value] if isinstance(value, list) else []


def package_of(file: str) -> Package | None:
    """The package of a file that a layer was made from; None for other files."""
    if found := re.fullmatch(r"([a-z0-9][a-z0-9.+-]*)_([^_/]+)_[a-z0-9]+\.deb", file):
        return Package("debian", found[1], found[2].replace("%3a", ":"))
    if file.endswith(".whl"):
        parts = wheel_name(file)
        return Package("python", parts[0], str(parts[1])) if parts else None
    if found := re.fullmatch(r"([\w.+-]+?)-v?(\d[\w.+-]*)\.(?:tar\.\w+|tgz|zip)", file):
        return Package("source", found[1], found[2])
    return None


def contents(name: str, config: Mapping[str, Any], layers: Iterable[Layer], packages: Iterable[Package]) -> Contents:
    """The account of an image that is compared with that of another one."""
    settings = mapping(config.get("config"))
    facts: dict[Kind, dict[str, Fact]] = {"python": {}, "debian": {}, "source": {}}
    for package in packages:
        facts[package.kind][package.name] = Fact(package.version)
    facts["env"] = variables(words(settings.get("Env")))
    facts["option"] = options(words(settings.get("Entrypoint")) + words(settings.get("Cmd")))
    facts["label"] = {str(key): Fact(str(value)) for key, value in mapping(settings.get("Labels")).items()}
    facts["layer"] = {layer.id: Fact(layer.digest.short, layer.digest) for layer in layers}
    return Contents(name, "image", facts)


def changes_between(old: Contents, new: Contents) -> tuple[Change, ...]:
    """What changed from one image to the next."""
    return tuple(differences(old, new))


def shared(pages: Sequence[Page]) -> dict[Digest, list[Page]]:
    """The images that have each layer."""
    found: dict[Digest, list[Page]] = {}
    for page in pages:
        for digest in dict.fromkeys(layer.digest for layer in page.layers):
            found.setdefault(digest, []).append(page)
    return found
