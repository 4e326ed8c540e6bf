"""The probe `device`: the GPU that torch sees, and the error of two products on it."""

from __future__ import annotations

from typing import Any

from .say import NotRun, report


def probe() -> dict[str, Any]:
    """Name, capability, versions, and the error of a product in bfloat16 against float64."""
    import numpy as np
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU: torch.cuda.is_available() is False")
    try:
        from .reference import errors
    except ImportError as error:
        raise NotRun(f"the image has no numpy: {error}") from error
    generator = np.random.default_rng(1)
    left, right = (generator.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    a, b = (torch.from_numpy(x).cuda().bfloat16() for x in (left, right))
    got = (a.float() @ b.float()).cpu().double().numpy()
    want = a.cpu().double().numpy() @ b.cpu().double().numpy()
    product = (a @ b).cpu().double().numpy()
    return {
        "name": torch.cuda.get_device_name(0),
        "capability": list(torch.cuda.get_device_capability(0)),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "archs": torch.cuda.get_arch_list(),
        "rms_float32": errors(got, want)[0],
        "rms_bfloat16": errors(product, want)[0],
    }


if __name__ == "__main__":
    report(probe)
