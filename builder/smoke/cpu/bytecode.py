"""The folder of this machine to which Python in the sandbox writes bytecode, and how much an image may write there."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

from builder.smoke.image.unpack import remove_tree

_MOST = 2 << 30
"""Bytes; bytecode of a whole vLLM takes a quarter of it."""
_LEAST = 4096
"""Bytes that a file counts for at least."""
_INTERVAL = 1.0
"""Seconds between two looks at the folder."""


class BytecodeFolder:
    """The folder, kept for the next command. The image's code decides what is in it."""

    def __init__(self, path: Path) -> None:
        """path: of the folder, which is made when the first command needs it."""
        self.path = path

    def prepare(self) -> None:
        """Make the folder, or empty it when a command filled it."""
        if self.path.exists() and _is_full(self.path):
            remove_tree(self.path)
        self.path.mkdir(exist_ok=True)
        self.path.chmod(0o1777)

    def guard(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process as soon as the folder is full."""

        def look() -> None:
            while process.poll() is None:
                if _is_full(self.path):
                    process.kill()
                time.sleep(_INTERVAL)

        threading.Thread(target=look, daemon=True).start()

    def close(self, *, keep: bool) -> None:
        """Remove the folder. keep: only when it is full."""
        if self.path.exists() and (not keep or _is_full(self.path)):
            remove_tree(self.path)


def _is_full(folder: Path) -> bool:
    left = _MOST
    todo = [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    left -= max(_LEAST, entry.stat(follow_symlinks=False).st_blocks * 512)
                    if left < 0:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except FileNotFoundError:
            # Its process removes files meanwhile.
            continue
        except OSError:
            # Folders that are too deep or locked cannot be counted.
            return True
    return False
