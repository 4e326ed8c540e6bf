"""Broken images: a healthy image with one change and recomputed digests."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import zstandard

from builder.digest import Digest
from builder.model.check import Check
from builder.produce.image import Built
from builder.smoke.image.layerstream import LayerStream, member_path
from builder.smoke.image.opened import LayerBlob, OpenedImage, open_image
from builder.smoke.plan_checks import checks_of, planned_check
from builder.store.store import Store
from tests.support.images import Member, tar

Tree = dict[str, Member]


@dataclass(frozen=True)
class Whole:
    """The healthy image, its checks, the layers' members."""

    image: OpenedImage
    checks: list[Check]
    trees: dict[str, Tree]

    @classmethod
    def of(cls, built: Built, store: Store) -> Whole:
        """An image that the product built."""
        diff_ids = {name: record.diff_id for name, record in built.records.items()}
        checks = [*checks_of(built.plan), planned_check(built.plan, diff_ids, built.image.base)]
        return cls(open_image(store.root, built.image.digest), checks, {})

    def members(self, name: str) -> Tree:
        """A layer's members by path; read once."""
        if name not in self.trees:
            blob = self.image.layers[self.image.names.index(name)]
            found: Tree = {}
            with LayerStream(blob.open(), name) as stream:
                for member in stream:
                    data = stream.stream.read(member.size) if member.isreg() else b""
                    found[member_path(member.name)] = Member(
                        data, member.mode, member.type, member.linkname, member.uid
                    )
            self.trees[name] = found
        return self.trees[name]


@dataclass
class Broken:
    """The healthy image, to be changed."""

    whole: Whole
    where: Path
    config: dict[str, Any]
    layers: list[LayerBlob]
    edited: dict[int, Tree] = field(default_factory=dict)
    added: Tree = field(default_factory=dict)

    @classmethod
    def of(cls, whole: Whole, where: Path) -> Broken:
        """where: a folder for the new files."""
        return cls(whole, where, copy.deepcopy(whole.image.config), list(whole.image.layers))

    def edit(self, layer: str) -> Tree:
        """The members of a layer, to be changed in place."""
        number = self.whole.image.names.index(layer)
        tree = dict(self.whole.members(layer))
        self.edited[number] = tree
        return tree

    def add(
        self,
        files: dict[str, Member | bytes],
        name: str = "extra",
        *,
        parents: bool = True,
        created_by: str | None = None,
    ) -> None:
        """Add a layer on top, in the form of builder's layers; created_by: its line in the history instead."""
        self.added |= {path: what if isinstance(what, Member) else Member(what) for path, what in files.items()}
        blob, diff_id = self._blob(tar(files, parents=parents))
        self.layers.append(blob)
        self.config["rootfs"]["diff_ids"].append(diff_id)
        self.config["history"].append({"created_by": created_by or f"builder: {name}"})

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = self.config["config"]
        return found

    def env(self, name: str, value: str | None) -> None:
        """Set a variable, or remove it."""
        words = [word for word in self.settings["Env"] if not word.startswith(f"{name}=")]
        self.settings["Env"] = [*words, *([f"{name}={value}"] if value is not None else [])]

    def _blob(self, data: bytes) -> tuple[LayerBlob, str]:
        packed = zstandard.ZstdCompressor(1).compress(data)
        value = hashlib.sha256(packed).hexdigest()
        path = self.where / value
        path.write_bytes(packed)
        media_type = self.layers[0].media_type
        return LayerBlob(Digest.from_hex(value), len(packed), path, media_type=media_type), Digest.of(data)

    def changed(self) -> Tree:
        """The new and changed members; no member is removed."""
        found: Tree = {}
        for number, tree in self.edited.items():
            before = self.whole.members(self.whole.image.names[number])
            assert before.keys() <= tree.keys()
            found |= {path: member for path, member in tree.items() if before.get(path) != member}
        return found | self.added

    def layout(self) -> tuple[Path, OpenedImage]:
        """The image as a folder of blobs, with a manifest and a digest of its own."""
        image = self.finish()
        blobs = self.where / "layout" / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for blob in image.layers:
            (blobs / blob.digest.hex).symlink_to(blob.path)
        like = image.manifest["layers"][0]
        layers = [{**like, "digest": blob.digest, "size": blob.size} for blob in image.layers]
        config = put(blobs, image.config)
        digest = put(blobs, {**image.manifest, "config": {**image.manifest["config"], **config}, "layers": layers})
        return blobs.parents[1], open_image(blobs.parents[1], Digest(digest["digest"]))

    def finish(self) -> OpenedImage:
        for number, tree in self.edited.items():
            self.layers[number], self.config["rootfs"]["diff_ids"][number] = self._blob(tar(tree, parents=False))
        return replace(self.whole.image, config=self.config, layers=tuple(self.layers))


def put(blobs: Path, value: Any) -> dict[str, Any]:
    """Write JSON as a blob; its digest and size."""
    data = json.dumps(value).encode()
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return {"digest": f"sha256:{name}", "size": len(data)}


Change = Callable[[Broken], Any]


@dataclass(frozen=True)
class Case:
    """One way to break the image. fails: the ids of the checks that fail; message: part of one of their messages."""

    name: str
    change: Change
    fails: frozenset[str]
    message: str


class Cases(list[Case]):
    """Ways to break the image, in the order of their registration."""

    def __call__(self, fails: str, message: str) -> Callable[[Change], Change]:
        """Register a case. fails: ids separated by spaces."""

        def register(change: Change) -> Change:
            self.append(Case(change.__name__.strip("_"), change, frozenset(fails.split()), message))
            return change

        return register
