"""The machine of the gpu tier: a Spark with docker and the image, its options, and an optional second Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from builder.doctor.host import Host
from builder.doctor.machine import driver
from builder.doctor.question import Question
from builder.model.base import Base
from builder.model.recipe import Recipe
from builder.serve.spec import Container, Mount, container
from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.gpu import peer as gpu_peer
from builder.smoke.gpu.docker import Docker
from builder.smoke.gpu.probe import ask, probe_container


@dataclass(frozen=True)
class Needs:
    """What a kind of gpu check needs: the machine, a container of the image, or a server.

    flag: the check applies only to a server with this option of `vllm serve`.
    """

    subject: Literal["machine", "image", "server"]
    flag: str | None = None


@dataclass(frozen=True)
class GpuImage:
    """The image under test. ids: digests of its manifest and its config; docker's image id is one of them.

    name: in docker. load: loads the image into docker under that name; raises BuilderError.
    """

    name: str
    ids: frozenset[str]
    load: Callable[[], object]


@dataclass(frozen=True)
class Options:
    """Options of the user. serve: "small", or "recipe" for the recipe's own model.

    peer: address of a second Spark on the direct link. interface, hca: this node's end of the link; default: detected.
    nccl_tests: the program all_reduce_perf. offline: weights are staged. only: ids of the checks to run, () for all.
    In seconds: start, until a server must be healthy; patience, for one answer; interval, between two health requests;
    pause, between the start of the head of two nodes and the start of the worker.
    """

    serve: str = "small"
    peer: str | None = None
    interface: str | None = None
    hca: str | None = None
    nccl_tests: Path | None = None
    offline: bool = False
    only: tuple[str, ...] = ()
    start: float = 3600.0
    patience: float = 600.0
    interval: float = 2.0
    pause: float = 20.0


def require_spark(host: Host) -> str:
    """Name and driver of this machine's GPU. Raises CheckNotRun when it is not a GB10."""
    got = host.run("nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader")
    if got is None or got.code or not got.text.strip():
        loaded = host.read("/proc/driver/nvidia/version")
        if loaded:
            raise CheckNotRun("nvidia-smi does not answer, though NVIDIA's driver is loaded: builder doctor")
        raise CheckNotRun("this machine has no NVIDIA GPU: the gpu tier needs a GB10")
    found = [part.strip() for part in got.text.strip().splitlines()[0].split(",")]
    if len(found) < 3 or found[1] != "12.1":
        raise CheckNotRun(
            f"{found[0]} is not a GB10: compute capability {found[1] if len(found) > 1 else 'unknown'}, not 12.1"
        )
    return f"{found[0]}, driver {found[2]}"


@dataclass(frozen=True)
class Machine:
    """A Spark with the image. served: the recipe with the model that the tier serves; recipe: as it was built."""

    host: Host
    docker: Docker
    image: GpuImage
    recipe: Recipe
    served: Recipe
    base: Base
    options: Options

    @cached_property
    def _plain(self) -> Container:
        """The container of `builder run`, for one node."""
        alone = self.served.model_copy(update={"nodes": 1})
        return container(alone, self.base, self.image.name, offline=self.options.offline)

    def driver(self) -> str:
        """The driver's version. Raises CheckFailed when the GB10 or the base needs another."""
        found = driver(Question(self.host, base=self.base))
        if found.state == "failed":
            raise CheckFailed(f"{found.message}: {found.fix}")
        if found.state == "unknown":
            raise CheckNotRun(found.message)
        return found.message

    def ask(
        self, probe: str, argument: str = "", *, env: dict[str, str] | None = None, timeout: float
    ) -> dict[str, Any]:
        """The output of a probe in the image."""
        return ask(self.docker, probe_container(self._plain, probe, argument, env), timeout)

    def host_program(self, path: str, arguments: Sequence[str], timeout: float) -> str:
        """The output of a program of the host that runs in the image, with the image's libraries."""
        made = replace(
            self._plain,
            name=f"{self._plain.name}-program",
            secrets=(),
            ports=None,
            mounts=(Mount(path, "/opt/builder-program", read_only=True),),
            entrypoint="/opt/builder-program",
            command=tuple(arguments),
        )
        done = self.docker.run(made, timeout)
        if done.code != 0:
            tail = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-2:])[-400:]
            raise CheckFailed(
                f"{path} {'did not end in time' if done.code is None else f'ended with {done.code}'}: {tail}"
            )
        return done.stdout

    def link(self) -> gpu_peer.Link:
        """The direct link. Raises CheckNotRun without a peer."""
        return self._link

    @cached_property
    def _link(self) -> gpu_peer.Link:
        if not self.options.peer:
            raise CheckNotRun("a second Spark is needed: --peer ADDRESS")
        return gpu_peer.find_link(self.host, self.options.peer, interface=self.options.interface, hca=self.options.hca)

    def peer(self) -> Docker:
        """Docker on the peer, which has the same image. Raises CheckNotRun and CheckFailed."""
        self.link()
        there = Docker(self.options.peer)
        gpu_peer.same_image(there, self.image.name, self.image.ids)
        return there

    def two_nodes(self, transport: str, timeout: float) -> list[dict[str, Any]]:
        """The output of both ranks of an all-reduce."""
        return gpu_peer.all_reduce(self.docker, self.peer(), self._plain, self.link(), transport, timeout)
