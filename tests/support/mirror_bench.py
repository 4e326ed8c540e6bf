"""Mirrors plans into a folder or registry and builds from the mirror, in tests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.engine.interface import Engine
from builder.mirror.artifact import artifact_tag
from builder.mirror.backend import Backend
from builder.mirror.copy import Copier, MirrorReport
from builder.mirror.folder import FolderBackend
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.produce.image import Built, build_image
from builder.store.store import Store
from tests.support.mirror import Mirror


@dataclass
class Bench:
    """Mirrors plans into backends, and builds from the mirrors with stores of their own."""

    folder: Path
    engine: Engine
    upstream: Mirror
    stores: list[Store] = field(default_factory=list)

    def store(self) -> Store:
        """Creates an empty store."""
        self.stores.append(Store(self.folder / f"store-{len(self.stores)}"))
        return self.stores[-1]

    def backend(self) -> FolderBackend:
        """The folder that is the mirror."""
        return FolderBackend(self.folder / "mirror")

    def fill(
        self, *plans: Plan, backend: Backend | None = None, store: Store | None = None, **more: Any
    ) -> MirrorReport:
        """Mirror the inputs of plans."""
        settings: dict[str, Any] = {"offline": False, "source": None, "verify": False, "listener": lambda event: None}
        base_layers = more.pop("base_layers", False)
        copier = Copier(backend or self.backend(), store or self.store(), **{**settings, **more})
        return copier.run({artifact_tag(plan): plan for plan in plans}, base_layers=base_layers)

    def build(
        self, plan: Plan, source: MirrorSource | None, store: Store | None = None, *, offline: bool = True
    ) -> Built:
        """Build a plan from the mirror, in an empty store unless one is given."""
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
        return MirrorSource(self.backend())

    def cut(self) -> None:
        """Remove every file from the upstreams."""
        self.upstream.pool.clear()
        self.upstream.wheels.clear()
        self.upstream.asked.clear()

    def contents(self) -> dict[str, bytes]:
        """Every file of the mirror."""
        root = self.folder / "mirror"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def assert_intact(store: Store) -> None:
    """Every blob of a store has the digest that names it."""
    for path in (store.root / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
