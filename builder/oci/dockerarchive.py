"""Loading an image into docker, as one stream that both its image stores understand."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import IO

from builder.errors import EngineError
from builder.oci.assemble import Image
from builder.oci.layout import BlobSource
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.store.store import Store


def load_image(image: Image, store: Store, name: str, base_blob: BlobSource | None) -> None:
    """Stream the image into docker's daemon; nothing is written to disk on the way. Raises EngineError."""
    # Imported here: the docker SDK takes 0.3 s, and only a load needs it.
    from builder.engine.daemon import Daemon

    try:
        with Daemon() as daemon:
            daemon.load(partial(_archive, image, store, name, base_blob))
    except EngineError as error:
        steps = [error.next, "or build with --output oci:DIR and copy it with skopeo"]
        raise error.replaced(next="; ".join(filter(None, steps))) from error


def _archive(image: Image, store: Store, name: str, base_blob: BlobSource | None, out: IO[bytes]) -> None:
    """An OCI layout with a docker-archive manifest beside it, as `docker save` writes since version 25."""
    repository, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "latest")
    reference = f"{repository}:{tag}"
    entry = {
        "mediaType": OCI_MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag},
    }
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    legacy = [
        {
            "Config": image.config_digest.path,
            "RepoTags": [reference],
            "Layers": [layer.digest.path for layer in image.layers],
        }
    ]
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        _add(archive, "manifest.json", json.dumps(legacy).encode())
        _add(archive, image.config_digest.path, image.config)
        _add(archive, image.digest.path, image.manifest)
        for layer in {layer.digest: layer for layer in image.layers}.values():
            chunks = base_blob(layer) if layer.of_base and base_blob else store.chunks(layer.digest)
            info = tarfile.TarInfo(layer.digest.path)
            info.size = layer.size
            archive.addfile(info, _Stream(chunks))


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


class _Stream(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest += chunk
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
