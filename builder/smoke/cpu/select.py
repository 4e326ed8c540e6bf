"""The choice of a runner for an image: docker, else a sandbox of an OCI runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.docker import DockerRunner
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import Runner
from builder.smoke.image.opened import OpenedImage


def pick_runner(
    image: OpenedImage, folder: Path, only: str | None = None, say: Callable[[str], object] = lambda text: None
) -> Runner:
    """The first runner that works: docker, else runc or crun. only: "docker" or "runc" alone.

    folder: for the unpacked image of runc. say: gets the reason why the other one is used. Raises CheckNotRun, with the
    reasons.
    """
    ways: Iterable[tuple[str, Callable[[OpenedImage, Path], Runner]]] = (
        ("docker", DockerRunner),
        ("runc", RuncRunner),
    )
    reasons: list[str] = []
    for name, way in ways:
        if only in (None, name):
            try:
                runner = way(image, folder)
            except CheckNotRun as reason:
                reasons.append(f"{name}: {reason}")
            else:
                for each in reasons:
                    say(f"{name} is used, not {each}")
                return runner
    raise CheckNotRun("; ".join(reasons))
