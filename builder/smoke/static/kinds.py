"""All kinds of static checks: importing this registers them."""

from builder.smoke.static import config as kinds_config
from builder.smoke.static import cuda as kinds_cuda
from builder.smoke.static import files as kinds_files
from builder.smoke.static import layers as kinds_layers
from builder.smoke.static import libraries as kinds_elf
from builder.smoke.static import python as kinds_python
from builder.smoke.static import structure as kinds_structure
from builder.smoke.static.run import KINDS

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
