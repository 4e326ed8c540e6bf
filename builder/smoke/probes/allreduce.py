"""The probe `allreduce`: NCCL through torch, its error, the mapped library, the network and the bandwidth.

Rank, size and the first node's address come from the variables of torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import time
from datetime import timedelta
from typing import Any

from .say import report

ELEMENTS = 1 << 20
BIG = 1 << 26
"""Float32 elements of the timed all-reduce: 256 MiB."""
_LOG = ("NET/", "Using network", "Bootstrap", "NCCL version", "NCCL WARN", "via ")


def contribution(rank: int) -> Any:
    """The input of a rank, the same on every machine; float64."""
    import numpy as np

    return np.random.default_rng(100 + rank).standard_normal(ELEMENTS)


def mapped() -> dict[str, int]:
    """Every libnccl in memory with its ncclGetVersion. torch.cuda.nccl.version() is a constant of torch's build."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        paths = sorted({line.split(None, 5)[5].strip() for line in maps if "/libnccl.so" in line})
    found = {}
    for path in paths:
        version = ctypes.c_int()
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
        found[path] = version.value
    return found


def probe() -> dict[str, Any]:
    """Sum over all ranks; with one rank also the scaled sum, which alone runs a kernel then. Rates in GB/s."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    log = os.path.join(tempfile.mkdtemp(), "nccl.log")  # noqa: PTH118
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=log)
    import numpy as np
    import torch
    from torch import distributed

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("nccl", timeout=timedelta(seconds=120))
    try:
        want = sum((contribution(other).astype(np.float32).astype(np.float64) for other in range(size)), np.zeros(1))
        x = torch.from_numpy(contribution(rank).astype(np.float32)).cuda()
        distributed.all_reduce(x)
        got = {"sum": float(np.abs(x.cpu().double().numpy() - want).max())}
        # NCCL copies for a sum of one rank; a sum that scales first is computed by a kernel, by one rank as well.
        scaled = torch.from_numpy(contribution(rank).astype(np.float32)).cuda()
        distributed.all_reduce(scaled, op=distributed._make_nccl_premul_sum(0.5))
        got["scaled"] = float(np.abs(scaled.cpu().double().numpy() - 0.5 * want).max())
        rates = _rates(torch, distributed, size)
        found = {
            "rank": rank,
            "size": size,
            "error": {name: value if np.isfinite(value) else "nan" for name, value in got.items()},
            "largest": float(np.abs(want).max()),
            "mapped": mapped(),
            **rates,
        }
    finally:
        distributed.destroy_process_group()
    with open(log, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        lines = [re.sub(r"^\S+ \[\d+\] ", "", line.strip()) for line in file]
    found["log"] = [line for line in lines if any(word in line for word in _LOG)][:60]
    return found


def _rates(torch: Any, distributed: Any, size: int) -> dict[str, Any]:
    x = torch.ones(BIG, device="cuda")
    distributed.all_reduce(x)
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        distributed.all_reduce(x)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    seconds = sorted(times)[len(times) // 2]
    # nccl-tests' bus bandwidth: what a link must carry, whatever the number of ranks.
    return {"seconds": seconds, "bus_gb_s": 4 * BIG / seconds / 1e9 * 2 * (size - 1) / size}


if __name__ == "__main__":
    report(probe)
