"""The files of an image that checks read: copied to disk while their layer is read, within bounds."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path

from builder.smoke.image.layerstream import LayerStream

MOST_OF_ONE = 128 << 20
"""Bytes of one file; the largest that a check reads is an assembler of 40 MB."""
MOST_OF_ALL = 512 << 20
"""Bytes of all files of an image together."""
_RECOUNT = 16 << 20
_LEAST = 4096
"""Bytes that a file counts for at least."""


class KeptFiles:
    """Copies of files in a folder that the readers of all layers share, each in its own process or thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._total = self._uncounted = 0

    def admits(self, size: int) -> bool:
        """Whether a file of this size may be copied; it is counted then.

        The sum is exact to 16 MiB for each process that reads layers at the same time.
        """
        if size > MOST_OF_ONE:
            return False
        # An empty file takes space and time, too.
        size = max(size, _LEAST)
        if self._uncounted == 0 or self._uncounted + size > _RECOUNT:
            with os.scandir(self._folder) as entries:
                self._total, self._uncounted = sum(max(entry.stat().st_size, _LEAST) for entry in entries), 0
        if self._total + self._uncounted + size > MOST_OF_ALL:
            return False
        self._uncounted += size
        return True

    def copy(self, stream: LayerStream, member: tarfile.TarInfo) -> Path:
        """Copy a member of a layer. Raises InvalidError when the layer ends early."""
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(descriptor, "wb") as file:
            stream.copy(member, file.write)
        return Path(name)
