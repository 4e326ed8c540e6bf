"""Mirrors plans into folders or registries, and builds from these mirrors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.engine.base import Engine
from builder.mirror.artifact import tag_of
from builder.mirror.backend import FolderPlace, Place
from builder.mirror.copy import Copier, Report
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.produce.image import Built, build_image
from builder.store.store import Store
from tests.support.mirror import Mirror


@dataclass
class Bench:
    """Mirrors plans into places, and builds from those with stores of their own."""

    folder: Path
    engine: Engine
    upstream: Mirror
    stores: list[Store] = field(default_factory=list)

    def store(self) -> Store:
        """A new empty store."""
        self.stores.append(Store(self.folder / f"store-{len(self.stores)}"))
        return self.stores[-1]

    def place(self) -> FolderPlace:
        """The folder that is the mirror."""
        return FolderPlace(self.folder / "mirror")

    def fill(self, *plans: Plan, place: Place | None = None, store: Store | None = None, **more: Any) -> Report:
        """Mirror the inputs of plans."""
        settings: dict[str, Any] = {"offline": False, "source": None, "verify": False, "listener": lambda event: None}
        base_layers = more.pop("base_layers", False)
        copier = Copier(place or self.place(), store or self.store(), **{**settings, **more})
        return copier.run({tag_of(plan): plan for plan in plans}, base_layers=base_layers)

    def build(
        self, plan: Plan, source: MirrorSource | None, store: Store | None = None, *, offline: bool = True
    ) -> Built:
        """Build a plan in a store of its own, from the mirror."""
        return build_image(
            store or self.store(),
            plan,
            engine=lambda: self.engine,
            offline=offline,
            listener=lambda event: None,
            log=lambda line: None,
            announce=lambda needs: None,
            source=source,
        )

    def source(self) -> MirrorSource:
        """The mirror, to read from."""
        return MirrorSource(self.place())

    def cut(self) -> None:
        """From now on no upstream has anything."""
        self.upstream.pool.clear()
        self.upstream.wheels.clear()
        self.upstream.asked.clear()

    def contents(self) -> dict[str, bytes]:
        """Every file of the mirror."""
        root = self.folder / "mirror"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def hashes(store: Store) -> None:
    """Every blob of a store is what its name says."""
    for path in (store.root / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
