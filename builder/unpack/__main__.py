"""`python3 -m unpack SPEC INPUTS OUT`: unpacks a `files` layer in a stage of a rendered Dockerfile.

SPEC: the layer's description (JSON). INPUTS: the folder with the locked inputs by file name. OUT: where the tree goes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .entry import Entry
from .spool import Spool
from .tree import entries


def write(tree: list[Entry], out: Path) -> None:
    """Make the tree below `out`. Directories get their modes last, so that read-only ones can be filled."""
    out.mkdir(parents=True, exist_ok=True)
    for entry in tree:
        path = out / entry.path
        if entry.kind == "dir":
            path.mkdir(exist_ok=True)
        elif entry.kind == "symlink":
            path.symlink_to(entry.link)
        elif entry.kind == "hardlink":
            path.hardlink_to(out / entry.link)
        else:
            assert entry.read is not None
            with path.open("wb") as file:
                for chunk in entry.read():
                    file.write(chunk)
            path.chmod(entry.mode)
    for entry in reversed(tree):
        if entry.kind == "dir":
            (out / entry.path).chmod(entry.mode)


def main(arguments: list[str]) -> None:
    """Unpack one layer."""
    spec, inputs, out = arguments
    Path(out).mkdir(parents=True, exist_ok=True)
    with Spool(out) as spool:
        write(
            entries(json.loads(Path(spec).read_text("utf-8")), lambda item: Path(inputs) / item["file"], spool),
            Path(out),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
