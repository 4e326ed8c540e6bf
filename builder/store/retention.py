"""Decides what `builder gc` keeps and removes: a pure function of what the store holds. `gc.py` reads and removes.

Kept are images, their layers, and the inputs of these. Everything is a cache: it can be fetched or built again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["images", "layers", "inputs", "unpacked"]
KINDS: tuple[Kind, ...] = ("images", "layers", "inputs", "unpacked")


@dataclass(frozen=True)
class Policy:
    """older_than: the age in seconds since the last use above which things are removed.

    Without an age, the last image of each recipe and base is kept; with one, every image that was used since then.
    keep_inputs: keep inputs that no kept image needs. max_used: the bytes to keep; what was used least recently goes
    until the rest fits, whatever the other rules keep.
    """

    keep_inputs: bool = False
    older_than: float | None = None
    max_used: int | None = None


@dataclass(frozen=True)
class Item:
    """A file of the store, or the folder of an unpacked image.

    path: below the root of the store. used: the time of the last use, in seconds since 1970. size: the bytes that its
    removal frees. linked: the bytes that stay on the disk because other folders have hard links to them.
    """

    path: str
    used: float
    size: int = 0
    linked: int = 0

    @property
    def stem(self) -> str:
        """The file name without `.json`: a layer key, an image's name, or the hex digits of a blob."""
        return self.path.rpartition("/")[2].removesuffix(".json")


@dataclass(frozen=True)
class Record:
    """The record of an image or layer. data: its JSON object, empty when damaged; members may have any type.

    inputs: the digests in a layer's receipt. layer: the layer's name there. names: those of its inputs, by digest.
    """

    item: Item
    data: dict[str, Any]
    inputs: frozenset[str] = frozenset()
    layer: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contents:
    """What a store holds."""

    images: tuple[Record, ...] = ()
    layers: tuple[Record, ...] = ()
    blobs: tuple[Item, ...] = ()
    unpacked: tuple[Item, ...] = ()


@dataclass
class Total:
    """A number of items and their sizes in bytes, as in Item."""

    count: int = 0
    size: int = 0
    linked: int = 0


@dataclass(frozen=True)
class Gone:
    """Something that is removed. name: of a recipe and base, a layer, or a file. size: the bytes that this frees."""

    kind: Kind
    name: str
    digest: str
    size: int


@dataclass
class GcReport:
    """What is removed and what is kept. images: the kept ones. busy: whether other processes use the store.

    paths: what is removed, below the root, records before the blobs that they name. gone: the same by name.
    """

    removed: dict[Kind, Total] = field(default_factory=lambda: {kind: Total() for kind in KINDS})
    kept: dict[Kind, Total] = field(default_factory=lambda: {kind: Total() for kind in KINDS})
    images: list[dict[str, Any]] = field(default_factory=list)
    busy: bool = False
    paths: list[str] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)

    @property
    def freed(self) -> int:
        """The bytes that the removal frees."""
        return sum(total.size for total in self.removed.values())

    @property
    def used(self) -> int:
        """The bytes of what is kept."""
        return sum(total.size + total.linked for total in self.kept.values())


def decide(contents: Contents, policy: Policy, claims: Collection[str] | None, now: float) -> GcReport:
    """What `policy` keeps and removes. now: in seconds since 1970.

    claims: the digests and paths that other living processes claim; None when there is no other process.
    """
    if policy.max_used is not None:
        return _fitting(contents, policy, policy.max_used, claims, now)
    decision = _Decision(policy, frozenset(claims or ()), now, GcReport(busy=claims is not None))
    keys = decision.images(contents.images)
    decision.layers(contents.layers, keys)
    decision.blobs(contents.blobs)
    decision.unpacked(contents.unpacked)
    decision.report.gone = _named(contents, frozenset(decision.report.paths))
    return decision.report


def _fitting(contents: Contents, policy: Policy, most: int, claims: Collection[str] | None, now: float) -> GcReport:
    """The rules without a size if what they keep fits, else the oldest age at which what was used since then fits."""
    report = decide(contents, replace(policy, max_used=None), claims, now)
    if report.used <= most:
        return report
    items = (*(record.item for record in (*contents.images, *contents.layers)), *contents.blobs, *contents.unpacked)
    # Just above an item's age, the item is kept as well. An older age keeps no less.
    ages = sorted(
        {now - item.used for item in items if policy.older_than is None or now - item.used < policy.older_than}
    )
    fits = bisect_right(ages, most, key=lambda age: _by_age(contents, math.nextafter(age, math.inf), claims, now).used)
    return _by_age(contents, math.nextafter(ages[fits - 1], math.inf) if fits else 0.0, claims, now)


def _by_age(contents: Contents, age: float, claims: Collection[str] | None, now: float) -> GcReport:
    return decide(contents, Policy(older_than=age), claims, now)


def _named(contents: Contents, paths: Collection[str]) -> list[Gone]:
    """What has these paths, by name. Blobs of images and layers count to these; a file that none uses is `?`."""
    sizes = {f"sha256:{blob.stem}": blob.size for blob in contents.blobs if blob.path in paths}
    names: dict[str, str] = {}
    for record in contents.layers:
        names |= record.names
    found: list[Gone] = []
    for image in contents.images:
        for row in rows(image.data.get("layers")):
            names |= {f"sha256:{hex}": str(name) for name, hex in _map(row.get("inputs")).items()}
        if image.item.path in paths:
            title = f"{image.data.get('recipe')} on {image.data.get('base')}" if image.data else "damaged record"
            size = image.item.size + sum(sizes.pop(blob, 0) for blob in _image_blobs(image.data))
            found.append(Gone("images", title, str(image.data.get("digest", "")), size))
    for layer in contents.layers:
        if layer.item.path in paths:
            blobs = _texts(layer.data.get(name) for name in ("digest", "listing", "receipt"))
            size = layer.item.size + sum(sizes.pop(blob, 0) for blob in blobs)
            found.append(Gone("layers", layer.layer or layer.item.stem, str(layer.data.get("digest", "")), size))
    found += [Gone("inputs", names.get(digest, "?"), digest, size) for digest, size in sizes.items()]
    found += [Gone("unpacked", item.stem, "", item.size) for item in contents.unpacked if item.path in paths]
    return found


@dataclass
class _Decision:
    """needed: blobs of kept images and layers. inputs: digests of their inputs. outputs: blobs that any record names,
    kept or not. All are text and not Digest, because records may be damaged."""

    policy: Policy
    claims: frozenset[str]
    now: float
    report: GcReport
    needed: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)

    def images(self, images: Iterable[Record]) -> set[str]:
        """Decide about images; returns the keys of the layers of the kept ones."""
        last = _last_images(images)
        keys: set[str] = set()
        for image in images:
            blobs = _image_blobs(image.data)
            self.outputs |= blobs
            wanted = image.item.path in last if self.policy.older_than is None else self._recent(image.item)
            if not self._keep("images", image.item, wanted and bool(image.data)):
                continue
            self.needed |= blobs
            for layer in rows(image.data.get("layers")):
                keys.add(str(layer.get("key")))
                self.inputs |= {f"sha256:{value}" for value in _map(layer.get("inputs")).values()}
                self.inputs |= digests(layer.get("used"))
            shown = {key: image.data.get(key) for key in ("recipe", "base", "digest")}
            self.report.images.append({**shown, "used": image.item.used})
        return keys

    def layers(self, layers: Iterable[Record], keys: set[str]) -> None:
        """Decide about layers. A toolchain's root is an input of the layers that are compiled in it."""

        def wanted(layer: Record) -> bool:
            return layer.item.stem in keys or str(layer.data.get("digest")) in self.inputs or self._recent(layer.item)

        for _ in range(2):  # Once for compiled layers, once for their roots.
            for layer in layers:
                if wanted(layer):
                    self.inputs |= layer.inputs
        for layer in layers:
            blobs = _texts(layer.data.get(name) for name in ("digest", "listing", "receipt"))
            self.outputs |= blobs
            if self._keep("layers", layer.item, wanted(layer)):
                self.needed |= blobs

    def blobs(self, blobs: Iterable[Item]) -> None:
        """Decide about blobs."""
        for blob in blobs:
            digest = f"sha256:{blob.stem}"
            wanted = digest in self.needed or digest in self.inputs
            if digest in self.outputs:
                # Its record is counted, so the blob is not counted again.
                self._keep("layers", blob, wanted, digest, count=0)
            else:
                self._keep("inputs", blob, wanted or self.policy.keep_inputs or self._recent(blob), digest)

    def unpacked(self, folders: Iterable[Item]) -> None:
        """Decide about unpacked images."""
        for folder in folders:
            self._keep("unpacked", folder, self._recent(folder) or "run" in self.claims)

    def _recent(self, item: Item) -> bool:
        """Whether the policy has an age and the last use is not that long ago."""
        return self.policy.older_than is not None and self.now - item.used < self.policy.older_than

    def _keep(self, kind: Kind, item: Item, wanted: bool, claim: str = "", count: int = 1) -> bool:
        """Add an item to the report; returns whether it is kept."""
        kept = wanted or (claim or item.path) in self.claims
        total = (self.report.kept if kept else self.report.removed)[kind]
        total.count += count
        total.size += item.size
        total.linked += item.linked
        if not kept:
            self.report.paths.append(item.path)
        return kept


def digests(found: object) -> frozenset[str]:
    """The digests in the list `used` of a receipt or of an image's record, which may be damaged."""
    return frozenset(str(row.get("digest")) for row in rows(found))


def _last_images(images: Iterable[Record]) -> set[str]:
    """The paths of the last used image of each recipe and base; of several with one time the first."""
    last: dict[tuple[str, str], Item] = {}
    for image in images:
        slot = str(image.data.get("recipe")), str(image.data.get("base"))
        if image.data and (slot not in last or image.item.used > last[slot].used):
            last[slot] = image.item
    return {item.path for item in last.values()}


def _image_blobs(data: dict[str, Any]) -> set[str]:
    """The manifests and configs that an image's record names: its own and its base's."""
    base = _map(data.get("base_image"))
    return _texts((data.get("digest"), data.get("config"), base.get("manifest"), base.get("config")))


def _texts(values: Iterable[object]) -> set[str]:
    return {value for value in values if isinstance(value, str) and value}


def rows(value: Any) -> list[dict[str, Any]]:
    """The objects in a list of a record, which may be damaged."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
