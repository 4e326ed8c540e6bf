"""Container: image, command, environment, mounts and ports that serve a recipe; prefetch, warm-up and netplan."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

from builder.digest import Digest, is_digest
from builder.errors import UsageError
from builder.model.base import Base
from builder.model.recipe import Recipe
from builder.plan.command import serving

RAY_PORT = 6379
COMPILE_CACHE = "~/vllm-compile-cache"
USER_HOME = "/home/vllm"
"""The home and compile cache of a user who is not root: images have no home for a user without an account."""


@dataclass(frozen=True)
class Mount:
    """A folder of the host in the container. A host path may begin with ~/, the home of the user who runs it."""

    host: str
    container: str
    read_only: bool = False


@dataclass(frozen=True)
class Node:
    """One of two machines. interface: of the direct link. hca: its RDMA devices, for RoCE. head: the head's address."""

    role: str
    ip: str
    head: str
    interface: str
    hca: str | None = None


@dataclass(frozen=True)
class Container:
    """A container: all options of `docker run`. env holds names and values, secrets only names."""

    name: str
    image: str
    env: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    mounts: tuple[Mount, ...]
    port: int
    """The port that the server listens on."""
    ports: tuple[int, int] | None
    """The ports of the host and of the container; None on the host's network."""
    shm_size: str | None
    memlock: bool
    devices: tuple[str, ...]
    entrypoint: str | None
    command: tuple[str, ...]
    user: str | None = None
    serves: bool = True
    """Whether this container answers requests: the worker of two nodes does not."""
    listen: str | None = None
    """The address of the host that the port is published on; None: all addresses."""


def container(
    recipe: Recipe,
    base: Base,
    image: str,
    *,
    port: int | None = None,
    offline: bool = False,
    user: str | None = None,
    node: Node | None = None,
) -> Container:
    """The container that serves `recipe` from `image`. node: which of two machines this is. user: UID:GID, not root.

    Raises UsageError when a recipe for two nodes gets no node, and when an option does not fit the recipe.
    """
    check_nodes(recipe, node)
    host_network = recipe.run.network == "host" or recipe.nodes == 2
    if host_network and port not in (None, recipe.run.port):
        raise UsageError(
            f"{recipe.name} uses the host's network: its port is the server's own, {recipe.run.port}",
            id="serve-port-fixed",
            next="leave out --port, or change `port` in a recipe that extends this one",
        )
    env = dict(recipe.run.env)
    if offline:
        env["HF_HUB_OFFLINE"] = "1"
    named = image.rpartition("@")[2]
    cache = Digest(named).hex if is_digest(named) else re.sub(r"[^A-Za-z0-9._-]+", "-", named)[-64:]
    mounts = [Mount(item.host, item.container, item.read_only) for item in recipe.run.volumes]
    # The compile cache of one image corrupts that of another: each has a folder.
    mounts.append(Mount(f"{COMPILE_CACHE}/{cache}", USER_HOME if user else "/root/.cache/vllm"))
    if user:
        env["HOME"] = USER_HOME
    entrypoint, command = serving(recipe, base)
    single = Container(
        name=recipe.name,
        image=image,
        env=tuple(sorted(env.items())),
        secrets=recipe.run.secrets,
        mounts=tuple(mounts),
        port=recipe.run.port,
        ports=None if host_network else (port or recipe.run.port, recipe.run.port),
        shm_size=recipe.run.shm_size,
        memlock=recipe.run.memlock,
        devices=("/dev/infiniband",) if recipe.nodes == 2 else (),
        entrypoint=None,
        command=command,
        user=user,
    )
    if node is None:
        return single
    words = (*(entrypoint or ()), *command)
    words = words if entrypoint is not None or words[:2] == ("vllm", "serve") else ("vllm", "serve", *words)
    return _on_node(single, recipe, node, words)


def check_nodes(recipe: Recipe, node: Node | None) -> None:
    """Raises UsageError for a recipe for two Sparks without a node, and for a recipe for one Spark with a node."""
    if recipe.nodes == 2 and node is None:
        raise UsageError(
            f"{recipe.name} runs on two Sparks: the role of this one is missing",
            id="serve-role-missing",
            cause="interface names differ from machine to machine",
            next="add --role head --ip ADDRESS --interface NAME"
            + (" --hca DEVICES" if transport(recipe) == "roce" else ""),
        )
    if recipe.nodes == 1 and node is not None:
        raise UsageError(
            f"{recipe.name} runs on one Spark: it has no head and worker",
            id="serve-role-unexpected",
            next="leave out --role",
        )


def transport(recipe: Recipe) -> str:
    """The transport between two nodes, roce or socket: a parameter of the layer cluster."""
    return str(next((use.set.get("transport", "roce") for use in recipe.layers if use.layer == "cluster"), "roce"))


def is_file(mount: Mount) -> bool:
    """Whether a mount is one file, judged by the suffix of its path in the container."""
    return re.search(r"\.(py|jinja|json|ya?ml|txt)$", mount.container) is not None


def _on_node(single: Container, recipe: Recipe, node: Node, words: tuple[str, ...]) -> Container:
    env = {**dict(single.env), "VLLM_HOST_IP": node.ip, "GLOO_SOCKET_IFNAME": node.interface}
    env["NCCL_SOCKET_IFNAME"] = node.interface
    if transport(recipe) == "roce":
        if not node.hca:
            raise UsageError(
                "RoCE needs the names of the RDMA devices",
                id="serve-hca-missing",
                next="--hca, as `ibdev2netdev` lists them",
            )
        env["NCCL_IB_HCA"] = node.hca
    else:
        env["UCX_NET_DEVICES"] = node.interface
    if node.role == "head":
        start = ("ray", "start", "--head", f"--port={RAY_PORT}", "--num-gpus=1", f"--node-ip-address={node.ip}")
        script = f"{shlex.join(start)} && exec {shlex.join(words)}"
    else:
        join = ("ray", "start", f"--address={node.head}:{RAY_PORT}", "--num-gpus=1", f"--node-ip-address={node.ip}")
        script = f"exec {shlex.join(join)} --block"
    return replace(
        single,
        name=f"{single.name}-{node.role}",
        env=tuple(sorted(env.items())),
        entrypoint="/bin/bash",
        command=("-c", script),
        serves=node.role == "head",
    )


def warm_up(recipe: Recipe, port: int) -> tuple[str, ...]:
    """A small first request as a curl command: kernels are compiled during it, for 25 to 60 seconds."""
    import json

    name = recipe.serve.flags.get("served-model-name") or recipe.serve.model or recipe.model.id
    body = {"model": str(name), "messages": [{"role": "user", "content": "ping"}], "max_tokens": 3}
    url = f"http://localhost:{port}/v1/chat/completions"
    return ("curl", "-sS", url, "-H", "Content-Type: application/json", "-d", json.dumps(body))


def prefetch(recipe: Recipe) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    """The commands that download the weights: environment and arguments of each. Host paths may begin with ~/."""
    commands: list[tuple[dict[str, str], tuple[str, ...]]] = []
    home = next((v.host for v in recipe.run.volumes if v.container == recipe.run.env.get("HF_HOME")), "~/vllm")
    path = recipe.serve.model if (recipe.serve.model or "").startswith("/") else None
    local = next((v.host for v in recipe.run.volumes if path and v.container == path), None)
    if local is not None:
        commands.append(({}, ("hf", "download", recipe.model.id, "--local-dir", local)))
    else:
        commands.append(({"HF_HOME": home}, ("hf", "download", recipe.model.id)))
    for item in recipe.run.downloads:
        repository, _, file = item.partition(":")
        if file:
            commands.append(({}, ("hf", "download", repository, file, "--local-dir", home)))
        else:
            commands.append(({"HF_HOME": home}, ("hf", "download", repository)))
    return commands


def netplan(interface: str, address: str) -> str:
    """A netplan file for the direct link between two Sparks, with jumbo frames.

    A bond keeps the members that another file defines: netplan merges definitions of the same name.
    """
    import yaml

    link = {"mtu": 9000, "dhcp4": False, "addresses": [f"{address}/24"]}
    kind = "bonds" if interface.startswith("bond") else "ethernets"
    return yaml.safe_dump({"network": {"version": 2, kind: {interface: link}}}, sort_keys=False)
