"""The archive that `docker load` reads, with both of its image stores."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from typing import IO

from builder.digest import Digest
from builder.model.canonical import canonical
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, Descriptor, parse_manifest


def write_archive(
    out: IO[bytes], name: str, manifest: bytes, config: bytes, layer: Callable[[Descriptor], Iterator[bytes]]
) -> None:
    """Write what `docker load` reads: an OCI layout with manifest.json, as `docker save` writes since version 25.

    name: [REGISTRY/]REPOSITORY[:TAG]. layer: returns the bytes of a layer as in the manifest; docker reads layers that
    are compressed with zstd since version 23. Raises UsageError for an invalid name, and what `layer` raises.
    """
    parsed = parse_manifest(manifest)
    reference = Reference.parse(name)
    tag = reference.tag or "latest"
    full_name = f"{reference.registry}/{reference.repository}:{tag}"
    entry = {
        "mediaType": parsed.media_type,
        "digest": parsed.digest,
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": full_name, "org.opencontainers.image.ref.name": tag},
    }
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    docker_manifest = [
        {
            "Config": parsed.config.digest.path,
            "RepoTags": [full_name],
            "Layers": [item.digest.path for item in parsed.layers],
        }
    ]
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        _add(archive, "manifest.json", json.dumps(docker_manifest).encode())
        _add(archive, parsed.config.digest.path, config)
        _add(archive, parsed.digest.path, manifest)
        for item in {item.digest: item for item in parsed.layers}.values():
            _add_layer(archive, item, layer)


def write_part(
    out: IO[bytes],
    name: str,
    count: int,
    manifest: bytes,
    config: bytes,
    layer: Callable[[Descriptor], Iterator[bytes]],
) -> None:
    """Write what makes a daemon with a graph driver add layer number `count` to those before it, which it has.

    `docker load` copies an archive to its disk before it unpacks it; the copy of a whole image may not fit. After the
    last part the daemon has the image. Arguments otherwise as in `write_archive`.
    """
    parsed, described = parse_manifest(manifest), json.loads(config)
    if count < len(parsed.layers):
        diff_ids = described["rootfs"]["diff_ids"][:count]
        kept = {member: described[member] for member in ("architecture", "os", "variant") if member in described}
        config = canonical({**kept, "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    path, paths = Digest.of(config).path, [item.digest.path for item in parsed.layers[:count]]
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "manifest.json", json.dumps([{"Config": path, "RepoTags": [name], "Layers": paths}]).encode())
        _add(archive, path, config)
        _add_layer(archive, parsed.layers[count - 1], layer)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _add_layer(archive: tarfile.TarFile, item: Descriptor, layer: Callable[[Descriptor], Iterator[bytes]]) -> None:
    info = tarfile.TarInfo(item.digest.path)
    info.size = item.size
    archive.addfile(info, _Stream(layer(item)))


class _Stream(io.RawIOBase):
    """A file-like object that reads from chunks."""

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
