"""The kernel of `triton_jit`: Triton reads its source from this file."""
# Triton infers the types of parameters, and reads annotations in a meaning of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, summed, columns, BLOCK: tl.constexpr):
    """silu(a @ b): a is rows x summed, b is summed x columns, both row by row."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    across = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, summed, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * summed + inner[None, :])
        right = tl.load(b + inner[:, None] * columns + across[None, :])
        total = tl.dot(left, right, total)
    total = total / (1 + tl.exp(-total))
    tl.store(out + rows[:, None] * columns + across[None, :], total)
