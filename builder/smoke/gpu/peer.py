"""The direct link to a second Spark: finding it, and running NCCL on both nodes at the same time."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from builder.doctor.host import Host, Outcome, answer
from builder.engine.sshsocket import SSH
from builder.parallel import every
from builder.serve.spec import Container, Node
from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.gpu.docker import Docker
from builder.smoke.gpu.probe import ask, probe_container

PORT = 29517
"""The rendezvous port of the ranks, on the first node."""


@dataclass(frozen=True)
class End:
    """One node's end of the direct link. devices: RDMA devices of the interface."""

    address: str
    interface: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Link:
    """The direct link: this node and the peer."""

    here: End
    there: End


class Peer:
    """Runs commands on the second Spark through ssh."""

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, *words: str) -> Outcome | None:
        """Run a command; None when ssh is missing or does not answer in time."""
        return answer([*SSH, "--", self.address, shlex.join(words)], 30)


def find_link(host: Host, peer: str, *, interface: str | None = None, hca: str | None = None) -> Link:
    """The link that leads to `peer`, an address on it that ssh reaches. interface, hca: of this node, or None.

    Raises CheckNotRun when there is no link, or ssh fails.
    """
    here = _end(host, peer, interface, hca)
    if here.interface == "lo":
        raise CheckNotRun(f"{peer} is this machine, not another one")
    other = Peer(peer)
    hello = other.run("true")
    if hello is None or hello.code:
        last = hello.text.strip().splitlines()[-1:] if hello else []
        raise CheckNotRun(f"ssh {peer} does not work without a password: {last[0] if last else 'no answer'}")
    return Link(here, _end(other, here.address))


def _end(host: Host | Peer, towards: str, interface: str | None = None, hca: str | None = None) -> End:
    got = host.run("ip", "-json", "route", "get", towards)
    try:
        route = json.loads(got.text)[0] if got is not None and not got.code else {}
        device, address = str(route["dev"]), str(route["prefsrc"])
    except (ValueError, LookupError, TypeError) as error:
        raise CheckNotRun(f"no route to {towards}: give its address on the direct link") from error
    if interface and device != interface:
        raise CheckNotRun(f"{towards} is reached over {device}, not over {interface}")
    if hca:
        return End(address, device, tuple(name.partition(":")[0] for name in hca.split(",")))
    listed = host.run("sh", "-c", f"ls -d /sys/class/infiniband/*/device/net/{shlex.quote(device)}")
    paths = listed.text.split() if listed is not None and not listed.code else []
    return End(address, device, tuple(sorted(path.split("/")[4] for path in paths if path.count("/") >= 4)))


def settings(end: End, transport: str) -> dict[str, str]:
    """The variables with which `builder run` binds a node's container to the link."""
    made = {"VLLM_HOST_IP": end.address, "GLOO_SOCKET_IFNAME": end.interface, "NCCL_SOCKET_IFNAME": end.interface}
    if transport == "socket":
        return {**made, "UCX_NET_DEVICES": end.interface, "NCCL_IB_DISABLE": "1"}
    if not end.devices:
        raise CheckNotRun(f"{end.interface} has no RDMA device: load mlx5_ib, or give --hca")
    return {**made, "NCCL_IB_HCA": ",".join(end.devices), "NCCL_IB_DISABLE": "0"}


def same_image(docker: Docker, image: str, ids: frozenset[str]) -> None:
    """Raises CheckNotRun when the peer lacks the image, CheckFailed when it has another one under this name."""
    found = docker.identity(image)
    if found is None:
        raise CheckNotRun(f"{docker.peer} has no image {image}: builder deploy, or docker pull it there")
    if found not in ids:
        raise CheckFailed(f"{image} is another image on {docker.peer}: {found}")


def all_reduce(
    here: Docker, there: Docker, container: Container, link: Link, transport: str, timeout: float
) -> list[dict[str, Any]]:
    """The output of both ranks. Raises CheckFailed and CheckNotRun."""
    containers = []
    for rank, end in enumerate((link.here, link.there)):
        ranks = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": link.here.address, "MASTER_PORT": str(PORT)}
        made = probe_container(container, "allreduce", env={**settings(end, transport), **ranks})
        devices = ("/dev/infiniband",) if transport == "roce" else ()
        containers.append(replace(made, name=f"{made.name}-{rank}", memlock=True, devices=devices))

    def call(each: tuple[Docker, Container]) -> dict[str, Any] | CheckFailed | CheckNotRun:
        try:
            return ask(*each, timeout)
        except (CheckFailed, CheckNotRun) as error:
            return error

    @contextlib.contextmanager
    def stopping() -> Iterator[None]:
        for docker in (here, there):
            docker.abandon()
        yield

    found = every(call, list(zip((here, there), containers, strict=True)), 2, stopping)
    if errors := [f"rank {rank}: {each}" for rank, each in enumerate(found) if isinstance(each, Exception)]:
        raise CheckFailed("; ".join(errors))
    return [each for each in found if not isinstance(each, Exception)]


def nodes(link: Link) -> tuple[Node, Node]:
    """Head and worker, as `builder run --role` takes them."""
    head, worker = (
        Node(role, end.address, link.here.address, end.interface, ",".join(end.devices) or None)
        for role, end in (("head", link.here), ("worker", link.there))
    )
    return head, worker


@contextlib.contextmanager
def worker_beside(docker: Docker, worker: Container, pause: float) -> Iterator[None]:
    """The worker of two nodes, started `pause` seconds after the head, when Ray's head listens."""
    time.sleep(pause)
    with docker.started(worker):
        yield
