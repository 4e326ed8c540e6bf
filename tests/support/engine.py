"""An engine without processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from builder.engine.interface import BuildRequest, EngineInfo, Log
from builder.errors import Cancelled, EngineError
from builder.model.plan import Plan
from builder.produce.image import Built, build_image
from builder.store.store import Store
from tests.support.tars import Members, tar


@dataclass(frozen=True)
class Seen:
    """A request, and the files in its folders at that time."""

    request: BuildRequest
    dockerfile: str
    context: dict[str, bytes]


@dataclass
class FakeEngine:
    """Writes the members of a target as its tar. A target without members fails to build.

    wait: makes every build last until it is set, or the request is cancelled.
    """

    targets: Mapping[str, Members] = field(default_factory=dict)
    wait: Event | None = None
    on_build: Callable[[BuildRequest], None] = lambda request: None
    name: str = "fake"
    workers: int = 1
    seen: list[Seen] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def probe(self) -> EngineInfo:
        """Always usable."""
        return EngineInfo(self.name, "1")

    def members(self, request: BuildRequest) -> Members | None:
        """The files for a request; none when the build fails. Several threads call it at once."""
        return self.targets.get(request.target)

    def build(self, request: BuildRequest, tar_file: Path, log: Log) -> None:
        """Record the request and write the tar."""
        context = {
            path.relative_to(request.context).as_posix(): path.read_bytes()
            for path in sorted(request.context.rglob("*"))
            if path.is_file()
        }
        self.seen.append(Seen(request, request.dockerfile.read_text("utf-8"), context))
        log(f"building {request.target}")
        self.on_build(request)
        while self.wait is not None and not self.wait.is_set():
            if request.cancel is not None and request.cancel.is_set():
                self.cancelled.append(request.target)
                raise Cancelled
            time.sleep(0.01)
        members = self.members(request)
        if members is None:
            raise EngineError(f"fake could not build {request.target}", id="engine-build-failed")
        tar_file.write_bytes(tar(members))


def build(plan: Plan, store: Store, engine: FakeEngine, *, named: bool = True) -> Built:
    """The image of a plan, built online by a fake engine. named: as in `build_image`."""
    return build_image(
        store,
        plan,
        engine=lambda: engine,
        offline=False,
        listener=lambda event: None,
        log=lambda line: None,
        announce=lambda needs: None,
        named=named,
    )
