"""An image of some size in a store: layers of random and of repeated bytes, as weights and libraries are."""

from __future__ import annotations

import random
import tarfile
from hashlib import sha256

import zstandard

from builder.digest import Digest
from builder.model.canonical import canonical
from builder.oci.assemble import CONFIG_TYPE, Image, ImageLayer
from builder.oci.format import MEDIA_TYPES
from builder.oci.manifest import OCI_MANIFEST
from builder.store.store import Store

_PIECE = 1 << 20


def big_layer(store: Store, seed: int, megabytes: int) -> ImageLayer:
    """A layer with one file, whose compressed size is about so many megabytes, and twice that when it is unpacked."""
    source, diff = random.Random(seed), sha256()
    with store.writer() as out:
        compressor = zstandard.ZstdCompressor(level=1).compressobj()

        def write(data: bytes) -> None:
            diff.update(data)
            out.write(compressor.compress(data))

        header = tarfile.TarInfo(f"opt/big/{seed}")
        header.size = 2 * megabytes * _PIECE
        folders = [tarfile.TarInfo(name) for name in ("opt", "opt/big")]
        for folder in folders:
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        write(b"".join(entry.tobuf(tarfile.PAX_FORMAT) for entry in (*folders, header)))
        for _ in range(megabytes):
            write(source.randbytes(_PIECE))
            write(source.randbytes(64) * (_PIECE // 64))
        write(bytes(10240))
        out.write(compressor.flush())
        digest, size = out.commit(), out.size
    return ImageLayer(
        digest, size, MEDIA_TYPES["zstd"], Digest(f"sha256:{diff.hexdigest()}"), of_base=False, id=str(seed)
    )


def big_image(store: Store, layers: int, megabytes: int, seed: int = 0) -> Image:
    """An image for linux/arm64 of so many layers of so many megabytes each."""
    parts = [big_layer(store, seed + number, megabytes) for number in range(layers)]
    config = canonical(
        {
            "architecture": "arm64",
            "os": "linux",
            "config": {"Cmd": ["/none"]},
            "rootfs": {"type": "layers", "diff_ids": [part.diff_id for part in parts]},
        }
    )
    described = [{"mediaType": part.media_type, "digest": part.digest, "size": part.size} for part in parts]
    manifest = canonical(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": CONFIG_TYPE, "digest": store.put(config), "size": len(config)},
            "layers": described,
        }
    )
    digest = store.put(manifest)
    return Image(digest, manifest, config, Digest.of(config), tuple(parts), None)
