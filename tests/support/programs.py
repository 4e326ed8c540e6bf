"""Programs of this machine as files of an image: a few commands and the libraries that they load."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.images import Member, folder, program

PROGRAMS = (
    *("sh", "cat", "id", "sleep", "ls", "env", "touch", "hostname", "perl", "mknod", "chroot", "true"),
    *("mount", "umount", "unshare"),
)


def own_programs() -> dict[str, Member | bytes]:
    """A root with a few of this machine's programs and the libraries they need."""
    files: dict[str, Member | bytes] = {"tmp": folder(0o1777), "etc/passwd": b"u:x:1234:5678::/srv/u:/bin/sh\n"}
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        files[f"usr/bin/{name}"] = program(Path(path).resolve().read_bytes())
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for word in listed.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = program(Path(word).resolve().read_bytes())
    return files
