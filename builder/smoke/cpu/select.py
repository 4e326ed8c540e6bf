"""The choice of a runner for an image: docker, else a chroot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.chroot import ChrootRunner
from builder.smoke.cpu.docker import DockerRunner
from builder.smoke.cpu.runner import Runner
from builder.smoke.image.opened import OpenedImage


def pick_runner(image: OpenedImage, folder: Path, only: str | None = None) -> Runner:
    """The first runner that works: docker, else a chroot in private namespaces. only: "docker" or "chroot" alone.

    folder: for the unpacked image of a chroot. Raises CheckNotRun, with the reasons.
    """
    ways: Iterable[tuple[str, Callable[[OpenedImage, Path], Runner]]] = (
        ("docker", DockerRunner),
        ("chroot", ChrootRunner),
    )
    reasons = []
    for name, way in ways:
        if only in (None, name):
            try:
                return way(image, folder)
            except CheckNotRun as reason:
                reasons.append(f"{name}: {reason}")
    raise CheckNotRun("; ".join(reasons))
