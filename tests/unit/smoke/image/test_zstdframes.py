"""A zstd layer that is cut: container engines refuse it, and the decompressor does not tell."""

from __future__ import annotations

import io
import random

import pytest
import zstandard

from builder.errors import InvalidError
from builder.smoke.image import zstdframes
from builder.smoke.image.layerstream import LayerStream
from builder.smoke.image.zstdframes import Frames
from tests.support.errors import fails
from tests.support.images import tar

SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def _frames(size: int, *, checksum: bool = True, stated: bool = True) -> bytes:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    return zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=stated).compress(data)


def _read(data: bytes, piece: int) -> bytes:
    frames = Frames(io.BytesIO(data))
    return b"".join(iter(lambda: frames.read(piece), b""))


@pytest.mark.parametrize("size", [0, 1, 300, 70_000, 400_000])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_whole_frames_are_read(size: int, checksum: bool, stated: bool, piece: int) -> None:
    data = _frames(size if piece > 1 else min(size, 5000), checksum=checksum, stated=stated)
    for whole in (data, data + data, SKIPPABLE + data + SKIPPABLE):
        assert _read(whole, piece) == whole
    for cut in (*range(1, min(len(data), 40)), len(data) // 2, len(data) - 1):
        if cut < len(data):
            with pytest.raises(EOFError, match="cut"):
                _read(data + data[:cut], piece)


@pytest.mark.parametrize("end", [b"\x28", b"\x28\xb5\x2f\xfd", SKIPPABLE[:-1]])
def test_a_layer_that_ends_within_a_frame_is_refused(end: bytes) -> None:
    """Without the checksum, or with the beginning of another frame, all of the tar is there."""
    data = zstandard.ZstdCompressor(write_checksum=True).compress(tar({"usr/a": b"a"}))
    for cut in (data[:-1], data[:-4], data + end):
        with fails(InvalidError, "layer-unreadable"), LayerStream(io.BytesIO(cut), "layer") as stream:
            assert [member.name for member in stream] == ["usr", "usr/a"]


def test_blocks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstdframes, "_MOST_BLOCKS", 100)
    empty = b"\x28\xb5\x2f\xfd\x00\x00" + b"\0\0\0" * 101 + b"\x01\0\0"
    with pytest.raises(EOFError, match="more than 100 blocks"):
        _read(empty, 1 << 20)
