"""A small image for an OCI layout, and readers of a layout."""

from __future__ import annotations

import json
from pathlib import Path

from builder.digest import Digest
from builder.oci.assemble import Image, ImageLayer
from builder.store.store import Store


def digest(data: bytes) -> str:
    """The digest of some bytes."""
    return Digest.of(data)


def image(store: Store, *layers: bytes, base: tuple[bytes, ...] = (), config: str = "x") -> Image:
    """An image of these layers, those of the store put there."""
    made = [ImageLayer(digest(data), len(data), "kind", digest(data), of_base=True) for data in base]
    made += [ImageLayer(store.put(data), len(data), "kind", digest(data), of_base=False) for data in layers]
    text = json.dumps({"os": "linux", "architecture": "arm64", "config": config}).encode()
    manifest = json.dumps({"layers": [layer.digest for layer in made], "config": digest(text)}).encode()
    return Image(digest(manifest), manifest, text, digest(text), tuple(made), None)


def names(folder: Path) -> dict[str, str]:
    """The digest of each name in the index."""
    index = json.loads((folder / "index.json").read_text())
    key = "org.opencontainers.image.ref.name"
    return {entry["annotations"][key]: entry["digest"] for entry in index["manifests"]}


def blobs(folder: Path) -> dict[str, bytes]:
    """Every blob by the digest in its file name."""
    return {Digest.from_hex(path.name): path.read_bytes() for path in (folder / "blobs/sha256").iterdir()}
