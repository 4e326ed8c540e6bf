"""The output of the gpu tier's probes on a GB10: recorded on other GPUs and edited to a GB10's values."""

from __future__ import annotations

import copy
from typing import Any

DEVICE = {
    "name": "NVIDIA GB10",
    "capability": [12, 1],
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "archs": ["sm_120"],
    "rms_float32": 6.5e-08,
    "rms_bfloat16": 0.0017,
}
TRITON = {
    "triton": "3.6.0",
    "capability": [12, 1],
    "target": "sm_121a",
    "cubin_bytes": 38040,
    "ptxas": "/usr/local/cuda/bin/ptxas",
    "rms": 4.7e-07,
    "worst": 4.0e-06,
}
CASE = {"seed": 1, "rows": 33, "launches": 10, "rms": 0.0048, "worst": 0.02, "bad": 0, "different": 0}
MARLIN = {
    "vllm": "0.20.0",
    "capability": [12, 1],
    "atomic_add": "1",
    "tolerance": {"rms": 0.0104, "worst": 0.0625},
    "cases": [CASE, {**CASE, "seed": 2}],
}
LOG = [
    "NCCL INFO Bootstrap: Using enp1s0f0np0:192.168.100.10<0>",
    "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.10<0>",
    "NCCL INFO Using network IB",
]
SOCKET_LOG = [
    "NCCL INFO NET/IB : No device found.",
    "NCCL INFO NET/Socket : Using [0]enp1s0f0np0:192.168.100.10<0>",
    "NCCL INFO Using network Socket",
]
OURS = "/opt/nccl/lib/libnccl.so.2.29.7"
REDUCED: dict[str, Any] = {
    "rank": 0,
    "size": 2,
    "error": {"sum": 2.4e-07, "scaled": 1.2e-07},
    "largest": 6.8,
    "mapped": {OURS: 22907},
    "seconds": 0.02,
    "bus_gb_s": 13.4,
    "log": LOG,
}
PERF = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#  Rank  0 Group  0 Pid   1234 on   spark device  0 [000f:01:00] NVIDIA GB10
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1     5.26    0.00    0.00      0     0.22    0.04    0.00      0
          16             4     float     sum      -1     5.11    0.00    0.00      0     0.22    0.07    0.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
"""


def changed(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**copy.deepcopy(value), **more}
