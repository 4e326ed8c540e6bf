"""Library: the images of a store as a registry names them, with their manifests and blobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from builder.digest import Digest, is_digest
from builder.errors import BuilderError, PinError
from builder.model.reference import Reference, is_repository, is_tag
from builder.oci.manifest import Descriptor, Manifest, parse_manifest
from builder.store.images import read_image
from builder.store.store import Store

if TYPE_CHECKING:
    from builder.registry.client import Registry


@dataclass(frozen=True)
class Offer:
    """An image that is served. name: of its repository. tag: None for one that a stranger's plan named, which has its
    digest alone. base: the reference of its base, whose layers are elsewhere.

    used: when it was built or used last, in seconds since 1970.
    """

    name: str
    tag: str | None
    digest: Digest
    base: str | None
    used: float


@dataclass(frozen=True)
class Blob:
    """A blob of a served image; size in bytes. file: None for a layer of the base, which `chunks` reads from its
    registry."""

    digest: Digest
    size: int
    file: Path | None
    chunks: Iterator[bytes]


class Library:
    """The images of a store, each in the repository of its recipe's name, with the base's name as tag. Thread-safe.

    Images that are built later are there, too. offers: exactly these images instead. What is served is claimed, so
    that `builder gc` keeps it.
    """

    def __init__(self, store: Store, offers: Iterable[Offer] | None = None) -> None:
        self._store = store
        self._fixed = tuple(offers) if offers is not None else None
        self._manifests: dict[Digest, Manifest] = {}
        self._records: dict[str, tuple[tuple[int, int], Offer | None]] = {}
        self._client: Registry | None = None
        self._lock = Lock()

    def offers(self) -> list[Offer]:
        """All images whose manifests are in the store, the last used first."""
        if self._fixed is not None:
            return list(self._fixed)
        folder = self._store.root / "images"
        found = [offer for path in folder.glob("*.json") if (offer := self._offer(path)) is not None]
        return sorted(found, key=lambda offer: (-offer.used, offer.digest))

    def tags(self, name: str) -> dict[str, Digest]:
        """The tags of a repository: the last used image of each base, and `latest`."""
        found: dict[str, Digest] = {}
        for offer in self.offers():
            if offer.name == name and offer.tag is not None:
                found.setdefault("latest", offer.digest)
                found.setdefault(offer.tag, offer.digest)
        return found

    def manifest(self, name: str, selector: str) -> Manifest | None:
        """The manifest of a tag or digest; None when this repository has none."""
        digest = Digest(selector) if is_digest(selector) else self.tags(name).get(selector)
        known = {offer.digest for offer in self.offers() if offer.name == name}
        return self._manifest(digest) if digest is not None and digest in known else None

    def blob(self, name: str, digest: Digest) -> Blob | None:
        """A blob that an image of this repository consists of; None when there is none."""
        for offer in self.offers():
            manifest = self._manifest(offer.digest) if offer.name == name else None
            if manifest is None:
                continue
            parts: tuple[Descriptor, ...] = (manifest.config, *manifest.layers)
            for part in parts:
                if part.digest == digest:
                    return self._blob(part, offer)
        return None

    def _offer(self, path: Path) -> Offer | None:
        """The image of a record; a record is read again when its file has changed."""
        try:
            status = path.lstat()
        except OSError:
            return None
        stamp = status.st_mtime_ns, status.st_ino
        known = self._records.get(path.name)
        if known is None or known[0] != stamp:
            known = self._records[path.name] = stamp, self._read(path)
        return known[1]

    def _read(self, path: Path) -> Offer | None:
        image = read_image(path)
        if image is None or not (is_repository(image.recipe) and is_tag(image.base)):
            return None
        if self._manifest(image.digest) is None:
            return None
        return Offer(image.recipe, image.base if image.named else None, image.digest, image.base_image, image.used)

    def _manifest(self, digest: Digest) -> Manifest | None:
        with self._lock:
            if digest in self._manifests:
                return self._manifests[digest]
        try:
            manifest = parse_manifest(self._store.read(digest))
        except (BuilderError, OSError):
            return None
        self._store.claim(digest, manifest.config.digest, *(layer.digest for layer in manifest.layers))
        with self._lock:
            self._manifests[digest] = manifest
        return manifest

    def _blob(self, part: Descriptor, offer: Offer) -> Blob | None:
        if self._store.has(part.digest):
            file = self._store.blob(part.digest)
            if file.stat().st_size == part.size:
                return Blob(part.digest, part.size, file, iter(()))
        if offer.base is None:
            return None
        return Blob(part.digest, part.size, None, self._of_base(Reference.parse(offer.base), part))

    def _of_base(self, base: Reference, part: Descriptor) -> Iterator[bytes]:
        """A layer of a base, streamed from the base's registry. Raises NetworkError and PinError."""
        # Imported here: the client takes 0.1 s, and most images need nothing from another registry.
        from builder.registry.client import Registry

        with self._lock:
            self._client = self._client or Registry()
        try:
            yield from self._client.blob(base, part.digest, part.size)
        except PinError as error:
            raise error.replaced(where=f"{base.registry}/{base.repository}") from None
