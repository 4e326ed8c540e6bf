"""Runs an image of the cpu tier with docker: loads the image under a name of its own, and removes it."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from builder.errors import EngineError
from builder.oci.dockerarchive import write_archive, write_part
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.runner import Command, native, registered
from builder.smoke.cpu.sandbox import CAPABILITIES
from builder.smoke.image.opened import OpenedImage, blob_path
from builder.store.blobs import chunks_of

if TYPE_CHECKING:
    from builder.engine.daemon import DaemonContainer

_OLDEST = "23.0"
"""The first docker that loads layers compressed with zstd."""
_NOT_STARTED = 127
"""The exit status of a container that docker does not start, as of a shell that finds no such command."""
_PROCESSES = 4096
_RUNTIME = "runc"
_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Where docker starts every container with NVIDIA's runtime, variables of the image ask for devices of this machine,
and for programs that run outside of the container."""


class DockerRunner:
    """Containers of one image for linux/arm64, without network."""

    name = "docker"

    def __init__(self, image: OpenedImage, folder: Path) -> None:
        """Load the image. Raises CheckNotRun when docker's daemon does not answer or does not take the image."""
        # Imported here: the docker SDK takes 0.3 s, and most checks run elsewhere.
        from builder.engine.daemon import Daemon

        self.image = image
        try:
            self._daemon = Daemon()
        except EngineError as error:
            raise CheckNotRun(_text(error)) from error
        try:
            self._version = self._daemon.version()
            # podman, for one, may have another one only.
            self._runtime = _RUNTIME if _RUNTIME in (self._daemon.info().get("Runtimes") or ()) else None
            if not native() and not registered():
                raise CheckNotRun("it has no qemu for arm64 code (binfmt_misc has no entry qemu-aarch64 with flag F)")
            missing = [blob.digest for blob in image.layers if not blob.present]
            if missing:
                raise CheckNotRun(f"{len(missing)} layers of the image are not here")
            self.tag = f"builder-smoke:{image.digest.hex[:24]}"
            self._ids = {image.digest, str(image.config_digest)}
            self._loaded = self._daemon.image_id(self.tag) not in self._ids
            if self._loaded:
                self._load(image)
        except EngineError as error:
            self._daemon.close()
            raise CheckNotRun(_text(error)) from error
        except BaseException:
            self._daemon.close()
            raise

    def start(self, command: Command) -> ContainerProcess:
        """Start a command in a fresh container. Raises CheckNotRun when docker creates none."""
        try:
            container = self._daemon.create(
                f"builder-smoke-{uuid.uuid4().hex[:12]}",
                self.tag,
                command.argv[1:],
                entrypoint=[command.argv[0]],
                environment={**command.env, **_NO_GPU},
                runtime=self._runtime,
                user=command.user or None,
                platform="linux/arm64",
                network_mode="none",
                init=True,
                cap_drop=["ALL"],
                cap_add=list(CAPABILITIES),
                security_opt=["no-new-privileges"],
                pids_limit=_PROCESSES,
            )
        except EngineError as error:
            raise CheckNotRun(_text(error)) from error
        return ContainerProcess(container, apart=command.apart)

    def note(self) -> str:
        """How commands are run."""
        return f"run {'natively' if native() else 'under qemu'} by docker {self._version}, without network"

    def close(self) -> None:
        """Remove the image from the daemon, if it was loaded for this, and close the connection."""
        try:
            if self._loaded:
                with contextlib.suppress(EngineError):
                    self._daemon.remove_image(self.tag)
        finally:
            self._daemon.close()

    def _load(self, image: OpenedImage) -> None:
        try:
            if self._has_graph_driver():
                self._load_parts(image)
            else:
                self._daemon.load(partial(_write_archive, image, self.tag))
            if self._daemon.image_id(self.tag) in self._ids:
                return
            reason = "it has another image under this name afterwards"
        except EngineError as error:
            reason = _text(error)
        raise CheckNotRun(
            f"docker {self._version} does not load the image: {reason} (docker {_OLDEST} or newer is needed)"
        )

    def _has_graph_driver(self) -> bool:
        """Whether layers are kept by a graph driver such as overlay2, and not by containerd."""
        status = self._daemon.info().get("DriverStatus") or ()
        return ["driver-type", "io.containerd.snapshotter.v1"] not in status

    def _load_parts(self, image: OpenedImage) -> None:
        """Load the image layer by layer. The images on the way get a name of their own, which is removed."""
        way = f"{self.tag}-way"
        earlier: str | None = None
        try:
            for count in range(1, len(image.layers) + 1):
                name = self.tag if count == len(image.layers) else way
                self._daemon.load(partial(_write_part, image, name, count))
                if earlier is not None and name == way:
                    self._daemon.remove_image(earlier)
                earlier = self._daemon.image_id(way)
        finally:
            with contextlib.suppress(EngineError):
                self._daemon.remove_image(way)


class ContainerProcess:
    """A container as a process: its output is a pipe, or two; killing it removes the container."""

    def __init__(self, container: DaemonContainer, *, apart: bool) -> None:
        """Start the container. apart: standard error is a pipe of its own."""
        self._container = container
        self._code: int | None = None
        self._problem: EngineError | None = None
        self.stdout: IO[bytes] | None
        self.stdout, output = _pipe()
        self.stderr: IO[bytes] | None = None
        errors: IO[bytes] | None = None
        if apart:
            self.stderr, errors = _pipe()
        try:
            container.start()
        except EngineError as error:
            container.remove()
            with output, errors or output as said:
                said.write(f"{_text(error)}\n".encode()[:4096])
            self._code, self._threads = _NOT_STARTED, []
            return
        except BaseException:
            container.remove()
            raise
        self._threads = [threading.Thread(target=self._pump, args=(output, True, errors is None), daemon=True)]
        if errors is not None:
            self._threads.append(threading.Thread(target=self._pump, args=(errors, False, True), daemon=True))
        for thread in self._threads:
            thread.start()

    def poll(self) -> int | None:
        """The exit status, if `wait` or `kill` has seen the end."""
        return self._code

    def wait(self) -> int:
        """Wait, remove the container, return its exit status. Raises CheckNotRun when the daemon is gone."""
        for thread in self._threads:
            thread.join()
        if self._code is None:
            try:
                code = self._container.wait(60)
                self._container.remove()
            except EngineError as error:
                raise CheckNotRun(_text(error)) from error
            if code is None:
                raise CheckNotRun(f"docker ended the output of {self._container.name}, which still runs")
            if self._problem is not None:
                raise CheckNotRun(_text(self._problem))
            self._code = code
        return self._code

    def kill(self) -> None:
        """Remove the container."""
        with contextlib.suppress(EngineError):
            self._container.remove()
        self._code = -9

    def _pump(self, file: IO[bytes], out: bool, errors: bool) -> None:
        """Copy output into a pipe, and close it at the end, which its reader waits for."""
        with file:
            try:
                for chunk in self._container.follow(stdout=out, stderr=errors):
                    file.write(chunk)
            except EngineError as error:
                self._problem = error


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    """The end to read from, and the end to write to."""
    read, write = os.pipe()
    return os.fdopen(read, "rb"), os.fdopen(write, "wb", buffering=0)


def _text(error: EngineError) -> str:
    return f"{error.what}: {error.cause}" if error.cause else error.what


def _write_archive(image: OpenedImage, tag: str, file: IO[bytes]) -> None:
    write_archive(file, tag, *_documents(image), lambda layer: chunks_of(blob_path(_layout(image), layer.digest)))


def _write_part(image: OpenedImage, tag: str, count: int, file: IO[bytes]) -> None:
    write_part(file, tag, count, *_documents(image), lambda layer: chunks_of(blob_path(_layout(image), layer.digest)))


def _layout(image: OpenedImage) -> Path:
    return image.layers[0].path.parents[2]


def _documents(image: OpenedImage) -> tuple[bytes, bytes]:
    """The manifest and the configuration."""
    manifest, config = (blob_path(_layout(image), digest) for digest in (image.digest, image.config_digest))
    return manifest.read_bytes(), config.read_bytes()
