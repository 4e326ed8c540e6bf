"""Exact FP4 and FP8 numbers: tables of their values, and rounding weights to NVFP4, MXFP4 and FP8.

E2M1, E4M3 and E8M0 follow the OCP Microscaling Formats specification 1.0; NVFP4 is E2M1 with one E4M3 scale for 16
weights and one float32 scale for the tensor, MXFP4 is E2M1 with one E8M0 scale for 32 weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float64)
"""The values of codes 0 to 7; 8 to 15 are their negatives."""


def e4m3_values() -> Floats:
    """The values of codes 0 to 126; 127 is not a number, 128 to 254 are the negatives."""
    code = np.arange(127)
    exponent, fraction = code >> 3, code & 7
    normal = (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, fraction / 8 * 2.0**-6, normal)


E4M3 = e4m3_values()

STEP = {"nvfp4": 2.0**-3, "mxfp4": 2.0**-1, "fp8": 2.0**-3}
"""The finest relative step in a format, of two neighbours at the lower end of a binade: three bits of fraction in E4M3
(NVFP4's scales, FP8's weights), one in E2M1."""


@dataclass(frozen=True)
class Quantised:
    """Quantised weights in the form of a checkpoint, along the last axis.

    codes: bytes; two E2M1 numbers in one, the first in the lower half. scale: E4M3 or E8M0 codes for each block, or
    float numbers. tensor_scale: of the whole tensor. values: the exact values of the weights.
    """

    codes: Bytes
    scale: Any
    values: Floats
    tensor_scale: float = 1.0


def nearest(values: Floats, table: Floats) -> NDArray[np.int64]:
    """The index of the nearest number in an ascending table; ties go to the even index. Beyond its end: the last."""
    middle = (table[1:] + table[:-1]) / 2
    low = np.searchsorted(middle, values, side="left")
    high = np.searchsorted(middle, values, side="right")
    return np.where(low % 2 == 0, low, high)


def signed(values: Floats, table: Floats, sign_bit: int) -> Bytes:
    """Codes of the nearest numbers, of either sign."""
    return (nearest(np.abs(values), table) | np.where(np.signbit(values), sign_bit, 0)).astype(np.uint8)


def decode(codes: Bytes, table: Floats, sign_bit: int) -> Floats:
    """The values of codes."""
    size: Floats = table[(codes & (sign_bit - 1)).astype(np.int64)]
    return np.where(codes & sign_bit, -size, size)


def pack(codes: Bytes) -> Bytes:
    """Two E2M1 codes in a byte, the first in the lower half."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def bf16(values: Floats) -> Floats:
    """Rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.int64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def nvfp4(weights: Floats, block: int = 16) -> Quantised:
    """Weights rounded to NVFP4."""
    blocks = weights.reshape(*weights.shape[:-1], -1, block)
    largest = np.abs(blocks).max(-1)
    tensor = float(np.float32(largest.max() / (E2M1[-1] * E4M3[-1])))
    # A block of zeros keeps the smallest scale: a scale of zero would lose its later values.
    scale = np.maximum(nearest(largest / E2M1[-1] / tensor, E4M3), 1).astype(np.uint8)
    unit = (E4M3[scale.astype(np.int64)] * tensor)[..., None]
    codes = signed(blocks / unit, E2M1, 8)
    values = decode(codes, E2M1, 8) * unit
    return Quantised(pack(codes.reshape(weights.shape)), scale, values.reshape(weights.shape), tensor)


def mxfp4(weights: Floats, block: int = 32) -> Quantised:
    """Weights rounded to MXFP4: the scale is the power of two that puts the largest weight into E2M1's last binade."""
    blocks = weights.reshape(*weights.shape[:-1], -1, block)
    largest = np.maximum(np.abs(blocks).max(-1), 2.0**-120)
    exponent = np.clip(np.floor(np.log2(largest)) - 2, -127, 127)
    unit = (2.0**exponent)[..., None]
    codes = signed(blocks / unit, E2M1, 8)
    values = (decode(codes, E2M1, 8) * unit).reshape(weights.shape)
    return Quantised(pack(codes.reshape(weights.shape)), (exponent + 127).astype(np.uint8), values)


def fp8(weights: Floats, block: int | None = None) -> Quantised:
    """Weights rounded to E4M3. block: one scale for that many rows and columns; None: one for each row.

    Scales are bfloat16 numbers, since vLLM rounds them to the type of the activations.
    """
    rows, columns = weights.shape[-2:]
    down, across = (block, block) if block else (1, columns)
    tiles = weights.reshape(*weights.shape[:-2], rows // down, down, columns // across, across)
    scale = bf16(np.abs(tiles).max((-3, -1)) / E4M3[-1])
    unit = np.repeat(np.repeat(scale, down, -2), across, -1)
    codes = signed(weights / unit, E4M3, 128)
    return Quantised(codes, scale, decode(codes, E4M3, 128) * unit)


def quantise(name: str, weights: Floats) -> Quantised:
    """Weights in a format by its name: nvfp4, mxfp4, fp8 (a scale for each row), fp8-block (128 by 128)."""
    makers = {"nvfp4": nvfp4, "mxfp4": mxfp4, "fp8": fp8, "fp8-block": lambda values: fp8(values, 128)}
    return makers[name](weights)
