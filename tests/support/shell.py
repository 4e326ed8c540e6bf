"""A small root with a real shell and a few programs: those of this machine, so that steps run without a download."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.tars import Content, File, Link

PROGRAMS = ("sh", "cat", "date", "head", "hostname", "ls", "mkdir", "nproc", "od", "sed", "touch", "uname")


def shell_root() -> dict[str, Content]:
    """The files of the root by path, for a Debian package."""
    files: dict[str, Content] = {name: Link(f"usr/{name}") for name in ("bin", "lib", "lib64")}
    libraries: set[str] = set()
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/bin")
        assert path is not None
        files[f"usr/bin/{name}"] = File(Path(path).read_bytes(), 0o755)
        libraries |= set(re.findall(r"(/\S+) \(0x", _needs(path)))
    # datefudge needs it.
    libc = next(path for path in libraries if "/libc.so" in path)
    libraries.add(str(Path(libc).with_name("libdl.so.2")))
    for library in libraries:
        files[f"usr/{library.removeprefix('/').removeprefix('usr/')}"] = File(Path(library).read_bytes(), 0o755)
    return files


def _needs(path: str) -> str:
    return subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
