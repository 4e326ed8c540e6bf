"""`builder cache`: what images compiled when they ran on this machine, one folder for each image."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line, say, size
from builder.errors import EngineError
from builder.serve.spec import COMPILE_CACHE, cache_folder
from builder.store.removal import files_below, remove


@dataclass(frozen=True)
class Kept:
    """The folder of one image. image: its name in docker; None when docker has no such image. size: in bytes."""

    folder: str
    image: str | None
    size: int


def cache(
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the folders of images that docker no longer has.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """List what images compiled when they ran here: kernels of vLLM, torch, Triton, FlashInfer, TileLang and CuTe DSL.

    `builder run` mounts one folder for each image, because the kernels of one image can break another.
    """
    root = Path(COMPILE_CACHE).expanduser()
    found = (
        [Path(entry.path) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)] if root.is_dir() else []
    )
    names = _names() if found else {}
    kept = [Kept(path.name, names.get(path.name), _size(path)) for path in sorted(found)]
    gone = [item for item in kept if item.image is None]
    if prune:
        for item in gone:
            _delete(root / item.folder)
        kept = [item for item in kept if item.image is not None]
    if json_:
        print_json([asdict(item) for item in kept])
    else:
        for item in kept:
            print_line(f"{size(item.size):>9}  {item.folder[:64]:64}  {item.image or 'no such image'}", hang=11)
    total = size(sum(item.size for item in gone))
    if prune:
        say(f"deleted {len(gone)} of {len(found)} folders, {total}")
    elif gone:
        say(f"{len(gone)} of {len(found)} belong to no image, {total}: builder cache --prune")
    elif not found:
        say(f"nothing was compiled yet: {root} has no folder", hang=2)


def _names() -> dict[str, str]:
    """The folder of every image that docker has, and the image's name. Raises EngineError without docker."""
    # Imported here: the docker SDK takes 0.3 s.
    from builder.engine.daemon import Daemon

    with Daemon() as daemon:
        return {cache_folder(name): name for name in daemon.image_names()}


def _size(folder: Path) -> int:
    """The bytes on disk; what this user may not read counts nothing."""
    return sum(status.st_blocks * 512 for status in files_below(folder))


def _delete(folder: Path) -> None:
    remove(folder)
    if os.path.lexists(folder):
        raise EngineError(
            f"{folder} cannot be deleted",
            id="cache-not-deleted",
            cause="containers that run as root write files of root",
            next=f"sudo rm -r {shlex.quote(str(folder))}",
        )
