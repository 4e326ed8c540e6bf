"""What of a store nobody needs any more, and its removal while other processes may be at work.

Kept are images, and what they are made of and from. Everything is a cache: what goes can be fetched or built again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from builder.digest import Digest
from builder.jsontext import parse_json
from builder.store.blobs import remove
from builder.store.records import read_record
from builder.store.store import Store

Kind = Literal["images", "layers", "inputs", "unpacked"]
KINDS: tuple[Kind, ...] = ("images", "layers", "inputs", "unpacked")


@dataclass(frozen=True)
class Rules:
    """What is to go. older_than: seconds since something was last used; None: whatever no kept image needs.

    Without an age, the last image of each recipe and base is kept; with one, every image that was used since then.
    """

    keep_inputs: bool = False
    older_than: float | None = None


@dataclass
class Tally:
    """A number of things and their bytes on the disk. linked: bytes that other folders have links to as well."""

    count: int = 0
    size: int = 0
    linked: int = 0


@dataclass
class Account:
    """What a collection removed, or would, and what it left. images: the kept ones. busy: others are at work."""

    removed: dict[Kind, Tally] = field(default_factory=lambda: {kind: Tally() for kind in KINDS})
    kept: dict[Kind, Tally] = field(default_factory=lambda: {kind: Tally() for kind in KINDS})
    images: list[dict[str, Any]] = field(default_factory=list)
    busy: bool = False

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(tally.size for tally in self.removed.values())


def collect(store: Store, rules: Rules, *, dry_run: bool) -> Account:
    """Remove what `rules` say and no living process has claimed. Raises EngineError.

    Nothing can be claimed while it is decided what goes; what goes is first moved below tmp/, which takes no time.
    """
    with store.claims.exclusive() as claims:
        found = _Survey(store, rules, claims or set())
        account = found.account
        account.busy = claims is not None
        if dry_run:
            return account
        grave = store.scratch()
        try:
            # Records first: none may stay that names a blob which is gone.
            for number, path in enumerate(found.doomed):
                path.replace(grave / str(number))
            if claims is None:
                _remove_locks(store)
        except OSError:
            remove(grave)
            raise
    remove(grave)
    return account


class _Survey:
    """One look at a store."""

    def __init__(self, store: Store, rules: Rules, claims: set[str]) -> None:
        self.account = Account()
        self.doomed: list[Path] = []
        self._store = store
        self._rules = rules
        self._claims = claims
        self._now = time.time()
        needed, inputs, ours = set[str](), set[str](), set[str]()
        keys = self._images(needed, inputs, ours)
        self._layers(keys, needed, inputs, ours)
        self._blobs(needed, inputs, ours)
        self._unpacked()

    def _images(self, needed: set[str], inputs: set[str], ours: set[str]) -> set[str]:
        """Sort out the images; returns the keys of the layers that the kept ones have."""
        records = {path: read_record(path) or {} for path in _files(self._store.root / "images")}
        last: dict[tuple[str, str], Path] = {}
        for path, data in records.items():
            slot = str(data.get("recipe")), str(data.get("base"))
            if data and (slot not in last or path.stat().st_mtime > last[slot].stat().st_mtime):
                last[slot] = path
        keys: set[str] = set()
        for path, data in records.items():
            blobs = _image_blobs(data)
            ours |= blobs
            wanted = path in last.values() if self._rules.older_than is None else self._young(path.stat().st_mtime)
            if self._keep("images", path, wanted and bool(data)):
                needed |= blobs
                for layer in _rows(data.get("layers")):
                    keys.add(str(layer.get("key")))
                    inputs |= {f"sha256:{value}" for value in _map(layer.get("inputs")).values()}
                    inputs |= {str(item.get("digest")) for item in _rows(layer.get("used"))}
                used = path.stat().st_mtime
                self.account.images.append({**{k: data.get(k) for k in ("recipe", "base", "digest")}, "used": used})
        return keys

    def _layers(self, keys: set[str], needed: set[str], inputs: set[str], ours: set[str]) -> None:
        """Sort out the layers. A toolchain's root is kept when a kept layer was compiled in it: its digest is an input
        of that one."""
        records = {path: read_record(path) or {} for path in _files(self._store.root / "layers")}

        def wanted(path: Path, data: dict[str, Any]) -> bool:
            young = self._rules.older_than is not None and self._young(path.stat().st_mtime)
            return path.stem in keys or str(data.get("digest")) in inputs or young

        for _ in range(2):  # Once for compiled layers, once for their roots.
            for path, data in records.items():
                if wanted(path, data):
                    inputs |= _receipt_inputs(self._store, data)
        for path, data in records.items():
            blobs = {data[name] for name in ("digest", "listing", "receipt") if isinstance(data.get(name), str)} - {""}
            ours |= blobs
            if self._keep("layers", path, wanted(path, data)):
                needed |= blobs

    def _blobs(self, needed: set[str], inputs: set[str], ours: set[str]) -> None:
        for path in _files(self._store.root / "blobs" / "sha256"):
            # Names of files and records may be damaged: this is text, not a Digest.
            digest = f"sha256:{path.name}"
            kind: Kind = "layers" if digest in ours else "inputs"
            wanted = digest in needed or digest in inputs
            if kind == "inputs":
                # A link to a blob, or its renaming when it came, sets the time of its status.
                age = self._rules.older_than is not None and self._young(path.stat().st_ctime)
                wanted = wanted or self._rules.keep_inputs or age
            self._keep(kind, path, wanted, digest)

    def _unpacked(self) -> None:
        folder = self._store.unpacked
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            young = self._rules.older_than is not None and self._young(path.stat().st_ctime)
            self._keep("unpacked", path, young or "run" in self._claims)

    def _young(self, used: float) -> bool:
        return self._rules.older_than is None or self._now - used < self._rules.older_than

    def _keep(self, kind: Kind, path: Path, wanted: bool, claim: str = "") -> bool:
        """Enter one thing into the account; returns whether it stays."""
        kept = wanted or (claim or str(path.relative_to(self._store.root))) in self._claims
        tally = (self.account.kept if kept else self.account.removed)[kind]
        size, linked = _usage(path)
        tally.size += size
        tally.linked += linked
        # What a record stands for is counted once, not again as the blob that it names.
        tally.count += kind not in ("layers",) or path.suffix == ".json"
        if not kept:
            self.doomed.append(path)
        return kept


def _image_blobs(data: dict[str, Any]) -> set[str]:
    """The manifests and configs that an image's record names: its own and its base's."""
    base = _map(data.get("base_image"))
    found = (data.get("digest"), data.get("config"), base.get("manifest"), base.get("config"))
    return {item for item in found if isinstance(item, str)}


def _receipt_inputs(store: Store, data: dict[str, Any]) -> set[str]:
    try:
        used = parse_json(store.blob(Digest(data["receipt"])).read_bytes())["used"]
        return {str(item.get("digest")) for item in _rows(used)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _usage(path: Path) -> tuple[int, int]:
    """Bytes that go with it, and bytes of files that have names elsewhere too."""
    if not path.is_dir() or path.is_symlink():
        status = path.lstat()
        size = status.st_blocks * 512
        return (size, 0) if status.st_nlink == 1 else (0, size)
    # Links within an unpacked image go with it.
    seen: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            status = (Path(folder) / name).lstat()
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values()), 0


def _remove_locks(store: Store) -> None:
    """Locks of layers that nobody makes: there is no other process."""
    for path in (store.root / "locks").iterdir():
        if len(path.name) == 64:
            path.unlink(missing_ok=True)


def _rows(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.iterdir() if path.is_file())
