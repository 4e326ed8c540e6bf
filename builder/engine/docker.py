"""The docker engine: BuildKit through `docker buildx`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from builder.engine.interface import BuildRequest, EngineInfo, LayoutError, Log
from builder.engine.process import capture, run
from builder.errors import EngineError
from builder.versions import semantic

_INSTALL = "install Docker with its buildx plugin and start the daemon, or install buildah and pass --engine buildah"

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
PROXIES = (*_PROXIES, *(name.upper() for name in _PROXIES))


class DockerEngine:
    """BuildKit in docker's daemon, or in buildx builders, which may be remote or in Kubernetes. Thread-safe.

    Each target goes to the builder that has the fewest.
    """

    name = "docker"

    def __init__(self, *builders: str) -> None:
        self._running = dict.fromkeys(builders, 0)
        self._lock = Lock()

    @property
    def workers(self) -> int:
        """How many builders there are."""
        return max(1, len(self._running))

    def probe(self) -> EngineInfo:
        """Whether the docker command, its buildx plugin and the daemon work."""
        status, text = capture(["docker", "buildx", "version"])
        if status == 127:
            return EngineInfo(self.name, problem="the command docker is not installed", fix=_INSTALL)
        if status != 0:
            return EngineInfo(self.name, problem="docker has no buildx plugin", fix=_INSTALL)
        version = str(semantic(text) or "unknown")
        if not self._running:
            # Imported here: the docker SDK takes 0.3 s, and a build whose layers are all in the store needs no engine.
            from builder.engine.daemon import Daemon

            try:
                Daemon().close()
            except EngineError as error:
                return EngineInfo(self.name, version, error.what, error.next or _INSTALL)
        return EngineInfo(self.name, version)

    def build(self, request: BuildRequest, tar: Path, log: Log) -> None:
        """Run the build in BuildKit. Its daemon pulls a base; the steps have no network."""
        with self._worker() as builder:
            if len(self._running) > 1:
                log(f"on the builder {builder}")
            self._build(request, tar, log, _command(builder))

    @contextmanager
    def _worker(self) -> Iterator[str | None]:
        with self._lock:
            builder = min(self._running, key=self._running.__getitem__, default=None)
            if builder is not None:
                self._running[builder] += 1
        try:
            yield builder
        finally:
            if builder is not None:
                with self._lock:
                    self._running[builder] -= 1

    def _build(self, request: BuildRequest, tar: Path, log: Log, command: list[str]) -> None:
        argv = command
        argv += ["--file", str(request.dockerfile), "--target", request.target, "--platform", request.platform]
        argv += ["--network", "none"]
        # A layer is built only when its key is not in the store: BuildKit's cache could hide a difference.
        argv += ["--no-cache", "--provenance=false", "--sbom=false", "--progress=plain", "--output", "type=tar,dest=-"]
        if request.base is not None:
            local = f"oci-layout://{request.base.layout}@{request.base.digest}"
            argv += ["--build-context", f"{request.base.reference}={local}"]
        # By default docker gives every step the proxies of the user's configuration, passwords included.
        for name, value in (*request.build_arguments.items(), *dict.fromkeys(PROXIES, "").items()):
            argv += ["--build-arg", f"{name}={value}"]
        with tar.open("wb") as file:
            outcome = run([*argv, str(request.context)], log=log, stdout=file, cancel=request.cancel)
        if outcome.status != 0 and any("unknown scheme oci-layout" in line for line in outcome.tail):
            raise LayoutError(
                "this docker cannot read a base from an OCI layout",
                id="engine-layout-unsupported",
                where=request.target,
                cause="without the containerd image store, the daemon's own builder does not support oci-layout",
                next="--engine buildah, or --builder NAME of a buildx builder of the docker-container driver",
            )
        if outcome.status != 0:
            raise failed(self.name, request, outcome.tail)


def _command(builder: str | None) -> list[str]:
    """The command that builds on a builder of buildx, or in the daemon of a docker context: buildx lists both."""
    if builder is None:
        return ["docker", "buildx", "build"]
    # Where docker keeps contexts. The SDK does not find them in a folder without config.json.
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "contexts" / "meta"
    if (folder / hashlib.sha256(builder.encode()).hexdigest()).is_dir():
        return ["docker", "--context", builder, "buildx", "build"]
    return ["docker", "buildx", "build", "--builder", builder]


def failed(engine: str, request: BuildRequest, tail: tuple[str, ...]) -> EngineError:
    """The error of a build that failed, with the last lines of its output."""
    return EngineError(
        f"{engine} could not build {request.target}",
        id="engine-build-failed",
        where=request.target,
        cause="its last lines:\n    " + "\n    ".join(tail[-12:]),
        next="run again with --verbose for all of the output",
    )
