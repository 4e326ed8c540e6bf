"""The format of layer blobs: modification time, normaliser version, compressors and media types. Constants only.

Layer keys hold these constants (`format_id`), so a change of one gives every layer another key.
"""

from __future__ import annotations

from typing import Any

MTIME = 1577836800
"""2020-01-01T00:00:00Z, the modification time of every file in a layer blob."""

NORMALISER = 1
"""The version of the rules from entries to tar. Raise it when the same entries give another tar."""

LEVEL = 3
"""The compression level of zstd."""

ZSTD = (1, 5, 7)
"""The version of libzstd."""

MEDIA_TYPES = {
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "none": "application/vnd.oci.image.layer.v1.tar",
}
"""Media type by compression, as the OCI image specification names them."""


def format_id(compression: str) -> dict[str, Any]:
    """The part of a layer key that describes how the layer's blob is written."""
    compressor = {"zstd": f"libzstd {'.'.join(map(str, ZSTD))} level {LEVEL}", "gzip": "zlib level 6"}
    return {"mtime": MTIME, "normaliser": NORMALISER, "compressor": compressor.get(compression, "none")}
