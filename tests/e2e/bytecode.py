"""Python bytecode for the sandbox, compiled by a Python of this machine.

Bytecode does not depend on the architecture. Under qemu, compiling what `import torch` loads takes five minutes of six.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PYTHON = os.environ.get("BUILDER_PYTHON313")
"""A folder with the packages of Python 3.13 for this machine and of its libraries, unpacked by scripts/test."""

LIBRARY = "/usr/lib/python3.13"
PACKAGES = "/usr/local/lib/python3.13/dist-packages"
LOADED = (LIBRARY, *(f"{PACKAGES}/{name}" for name in ("torch", "numpy", "scipy", "av", "soxr", "dill", "tqdm")))
"""Folders of an image that the cpu tier imports most from; it compiles the rest itself."""

_PROGRAM = """
import os, py_compile, sys
root, target, *folders = sys.argv[1:]
os.umask(0)  # The users of the image add files.
for folder in folders:
    for place, names, files in os.walk(root + folder):
        names[:] = [name for name in names if name not in ("test", "tests", "dist-packages")]
        for name in files:
            path = os.path.join(place, name)
            if name.endswith(".py") and not os.path.islink(path):
                inside = path.removeprefix(root)
                py_compile.compile(path, target + inside.removesuffix(".py") + ".cpython-313.pyc", dfile=inside)
"""


def compile_bytecode(root: Path, target: Path) -> None:
    """Compile Python files of the image unpacked in `root` into `target`, which becomes its PYTHONPYCACHEPREFIX.

    Does nothing on a machine for which scripts/test unpacks no Python.
    """
    if PYTHON is None or (target / "usr").exists():
        return
    libraries = f"{PYTHON}/usr/lib/x86_64-linux-gnu"
    interpreter = [f"{libraries}/ld-linux-x86-64.so.2", "--library-path", libraries, f"{PYTHON}/usr/bin/python3.13"]
    subprocess.run([*interpreter, "-I", "-S", "-c", _PROGRAM, str(root), str(target), *LOADED], check=True, timeout=600)
