"""Selection of the engine: the one of --engine or BUILDER_ENGINE, else the first that is usable."""

from __future__ import annotations

import os
from collections.abc import Sequence

from builder.engine.buildah import BuildahEngine
from builder.engine.docker import DockerEngine
from builder.engine.interface import Engine
from builder.errors import EngineError, UsageError

NAMES = ("auto", "docker", "buildah")


def check_engine(wanted: str | None, builder: Sequence[str] | None = None) -> str:
    """The name of the requested engine, from the argument or BUILDER_ENGINE; "auto" by default. builder: of buildx.

    Raises UsageError for an unknown engine, and for a builder with an engine that has none.
    """
    name = wanted or os.environ.get("BUILDER_ENGINE") or "auto"
    if name not in NAMES:
        where = "" if wanted else "BUILDER_ENGINE"
        raise UsageError(
            f"there is no engine {name!r}", id="engine-unknown", where=where, next=f"one of {', '.join(NAMES)}"
        )
    if builder and name == "buildah":
        raise UsageError("--builder needs the docker engine", id="engine-takes-no-builder")
    return name


def select_engine(wanted: str | None, builder: Sequence[str] | None = None) -> Engine:
    """The engine of that name; for "auto" docker if it has buildx and its daemon answers, else buildah.

    Raises EngineError with the package to install.
    """
    name = check_engine(wanted, builder)
    engines: list[Engine] = [DockerEngine(*builder or ()), BuildahEngine()]
    if builder:
        engines = engines[:1]
    if name != "auto":
        engines = [engine for engine in engines if engine.name == name]
    problems = []
    for engine in engines:
        info = engine.probe()
        if info.usable:
            return engine
        problems.append(info)
    raise EngineError(
        f"no usable engine: {'; '.join(info.problem for info in problems)}",
        id="engine-missing",
        cause="a layer that is not in the store must be compiled",
        next=problems[-1].fix,
    )
