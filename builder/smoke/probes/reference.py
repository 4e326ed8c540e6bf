"""Reference results in float64: products with quantised weights, mixtures of experts, and error limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .formats import STEP, Floats

SLICE = 16
"""Weights that one step of a tensor-core product reads along the summed axis."""


def route(logits: Floats, top: int) -> tuple[NDArray[np.int64], Floats]:
    """The `top` experts of each row and their weights: softmax, the largest first, normalised to a sum of one."""
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :top]
    chosen = np.take_along_axis(logits, ids, -1)
    weights: Floats = np.exp(chosen - chosen.max(-1, keepdims=True))
    return ids, weights / weights.sum(-1, keepdims=True)


def silu(x: Floats) -> Floats:
    """x times its logistic function."""
    out: Floats = x / (1 + np.exp(-x))
    return out


def moe(x: Floats, w13: Floats, w2: Floats, ids: NDArray[np.int64], weights: Floats) -> Floats:
    """A gated mixture of experts. x: rows of K; w13: experts of 2N x K, gate above up; w2: experts of K x N."""
    out = np.zeros_like(x)
    half = w13.shape[1] // 2
    for expert in np.unique(ids):
        row, place = np.nonzero(ids == expert)
        inner = x[row] @ w13[expert].T
        outer = (silu(inner[:, :half]) * inner[:, half:]) @ w2[expert].T
        np.add.at(out, row, outer * weights[row, place][:, None])
    return out


@dataclass(frozen=True)
class Tolerance:
    """Limits. rms: of the error's root mean square, worst: of its largest element, both over that of the result."""

    rms: float
    worst: float


def tolerance(name: str, summed: int) -> Tolerance:
    """The error limits of a correct kernel. summed: the length of the longest sum of its products.

    The reference multiplies the very numbers that the kernel reads, so the format's rounding is in both; what is left
    is rounding to bfloat16 on the way: 0.002 to 0.006 measured with vLLM 0.20.0 and 0.23.0 on an H200. rms: a twelfth
    of the format's finest step. Weights or scales that are off by rounding to the format's grid once more are off by
    1/sqrt(12) = 0.29 steps, three times that; wrong scales or codes give far more. worst: half of what one lost or
    foreign slice of 16 products does to a sum of `summed`, which is what a race leaves behind in few elements; up to
    0.04 measured.
    """
    return Tolerance(STEP[name.partition("-")[0]] / 12, 0.5 * float(np.sqrt(SLICE / summed)))


def errors(got: Floats, want: Floats) -> tuple[float, float]:
    """The errors of `got`: root mean square relative to that of `want`, and the worst element. Infinity for NaN.

    An element counts relative to its own size plus the usual one: bfloat16 rounds large numbers more coarsely.
    """
    size = float(np.sqrt(np.mean(want**2)))
    off = np.abs(got - want)
    if not np.all(np.isfinite(off)):
        return float("inf"), float("inf")
    return float(np.sqrt(np.mean(off**2))) / size, float((off / (size + np.abs(want))).max())
