"""All kinds of static checks: importing this registers them."""

from builder.smoke import (
    kinds_config,
    kinds_cuda,
    kinds_elf,
    kinds_files,
    kinds_layers,
    kinds_python,
    kinds_structure,
)
from builder.smoke.static import KINDS

__all__ = [
    "KINDS",
    "kinds_config",
    "kinds_cuda",
    "kinds_elf",
    "kinds_files",
    "kinds_layers",
    "kinds_python",
    "kinds_structure",
]
