"""The probe `triton_jit`: compile a Triton kernel for this GPU with an empty cache, and compare its results."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

from .say import report

# Set before triton is imported: a filled cache would hide a broken compiler.
_CACHE = tempfile.TemporaryDirectory(prefix="triton-")


def probe() -> dict[str, Any]:
    """A fused product and activation with tensor cores, against float64; which architecture it was assembled for."""
    os.environ["TRITON_CACHE_DIR"] = _CACHE.name
    import numpy as np
    import torch
    import triton

    from .reference import errors, silu
    from .triton_kernel import kernel

    rows, columns, summed, block = 128, 128, 512, 64
    generator = np.random.default_rng(2)
    x, y = (torch.from_numpy(generator.standard_normal((128, summed)).astype(np.float32)).bfloat16() for _ in range(2))
    a, b = x.cuda(), y.T.contiguous().cuda()
    out = torch.empty((rows, columns), device="cuda", dtype=torch.float32)
    grid = (rows // block, columns // block)
    compiled = kernel[grid](a, b, out, summed, columns, BLOCK=block)
    torch.cuda.synchronize()
    want = silu(x.double().numpy() @ y.T.double().numpy())
    rms, worst = errors(out.cpu().double().numpy(), want)
    assembly = getattr(compiled, "asm", {})
    target = re.search(r"\.target\s+(\S+)", assembly.get("ptx", ""))
    return {
        "triton": triton.__version__,
        "capability": list(torch.cuda.get_device_capability(0)),
        "target": target[1].rstrip(",") if target else None,
        "cubin_bytes": len(assembly.get("cubin", b"")),
        "ptxas": _ptxas(torch.cuda.get_device_capability(0)),
        "rms": rms,
        "worst": worst,
    }


def _ptxas(capability: tuple[int, int]) -> str | None:
    """The path of the ptxas that Triton calls: `get_ptxas` takes the architecture from 3.6 on."""
    from triton.backends.nvidia import compiler

    try:
        tool = compiler.get_ptxas(capability[0] * 10 + capability[1])
    except TypeError:
        tool = compiler.get_ptxas()
    except Exception:
        return None
    return str(getattr(tool, "path", None) or tool[0])


if __name__ == "__main__":
    report(probe)
