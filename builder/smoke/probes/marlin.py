"""The probe `marlin`: repeated launches of vLLM's Marlin kernels on random data, compared with float64.

Launches follow each other without waiting: kernels that share a workspace race here if they race at all.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from .formats import bf16
from .marlin_layers import HIDDEN, INPUTS, experts, linear
from .reference import errors, tolerance
from .say import report

ROWS = {"moe": (1, 33, 200), "linear": (1, 16, 33)}


def probe() -> dict[str, Any]:
    """Every case: seeds times numbers of rows, each launched so many times."""
    asked = json.loads(sys.argv[1])
    import torch
    import vllm

    what, name = asked["what"], asked["format"]
    make = {"moe": experts, "linear": linear}[what]
    limit = tolerance(name, HIDDEN if what == "moe" else INPUTS)
    cases = []
    for seed in asked["seeds"]:
        generator = np.random.default_rng(seed)
        launch, want = make(name, generator)
        for rows in ROWS[what]:
            x = bf16(generator.standard_normal((rows, HIDDEN if what == "moe" else INPUTS)))
            expected, prepared = want(x)
            outputs = [launch(*prepared) for _ in range(asked["launches"])]
            torch.cuda.synchronize()
            found = [errors(out.cpu().double().numpy(), expected) for out in outputs]
            cases.append(
                {
                    "seed": seed,
                    "rows": rows,
                    "launches": len(outputs),
                    "rms": max(rms for rms, _ in found),
                    "worst": max(worst for _, worst in found),
                    "bad": sum(not (rms <= limit.rms and worst <= limit.worst) for rms, worst in found),
                    "different": sum(not torch.equal(out, outputs[0]) for out in outputs),
                }
            )
    return {
        "vllm": vllm.__version__,
        "capability": list(torch.cuda.get_device_capability(0)),
        "atomic_add": os.environ.get("VLLM_MARLIN_USE_ATOMIC_ADD"),
        "tolerance": {"rms": limit.rms, "worst": limit.worst},
        "cases": cases,
    }


if __name__ == "__main__":
    report(probe)
