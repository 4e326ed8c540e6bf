"""Container: image, command, environment, mounts and ports that serve a recipe; and the warm-up."""

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
"""The folder of this machine with one folder for each image, which holds what that image compiles at run time."""
_CACHE = "/var/cache/vllm"
_CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUTE_DSL_CACHE_DIR": "cute",
    "B12X_CUTE_COMPILE_CACHE_DIR": "b12x",
}
"""The variable of each compiler with a cache, and its folder. By default they are all over the home and /tmp."""


@dataclass(frozen=True)
class Mount:
    """A folder of the host in the container. A host path may begin with ~/, the home of the user who runs it."""

    host: str
    container: str
    read_only: bool = False


@dataclass(frozen=True)
class Node:
    """One of two machines. interface: those of the direct link, joined by commas. hca: their RDMA devices, for RoCE.
    head: the head's address."""

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
    foreign: bool = False,
) -> Container:
    """The container that serves `recipe` from `image`. node: which of two machines this is. user: UID:GID, not root.
    foreign: the image may not be the recipe's own, so the recipe's variables are set as well.

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
    env = {**(recipe.env if foreign else {}), **{name: f"{_CACHE}/{folder}" for name, folder in _CACHES.items()}}
    env |= recipe.run.env
    if offline:
        # Transformers reads its own variable before it asks the hub.
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    mounts = [Mount(item.host, item.container, item.read_only) for item in recipe.run.volumes]
    # The compile cache of one image corrupts that of another: each has a folder.
    mounts.append(Mount(f"{COMPILE_CACHE}/{cache_folder(image)}", _CACHE))
    if user:
        # Images have no home for a user without an account.
        env["HOME"] = _CACHE
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
    return _on_node(single, recipe, base, node, words)


def cache_folder(image: str) -> str:
    """The name of an image's folder in COMPILE_CACHE: its digest, or its name without the registry's punctuation."""
    named = image.rpartition("@")[2]
    return Digest(named).hex if is_digest(named) else re.sub(r"[^A-Za-z0-9._-]+", "-", named)[-64:]


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


def _on_node(single: Container, recipe: Recipe, base: Base, node: Node, words: tuple[str, ...]) -> Container:
    """The container of one of two nodes. vLLM's own processes form the cluster, or Ray where the recipe says so."""
    interface = node.interface.partition(",")[0]
    env = {**dict(single.env), "VLLM_HOST_IP": node.ip, "GLOO_SOCKET_IFNAME": interface}
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
    made = replace(
        single, name=f"{single.name}-{node.role}", env=tuple(sorted(env.items())), serves=node.role == "head"
    )
    if recipe.serve.flags.get("distributed-executor-backend") != "ray":
        rank = ("--nnodes", "2", "--node-rank", "0" if made.serves else "1", "--master-addr", node.head)
        return replace(made, command=(*single.command, *rank, *(() if made.serves else ("--headless",))))
    if made.serves:
        start = ("ray", "start", "--head", f"--port={RAY_PORT}", "--num-gpus=1", f"--node-ip-address={node.ip}")
        script = f"{shlex.join(start)} && exec {shlex.join(words)}"
    else:
        join = ("ray", "start", f"--address={node.head}:{RAY_PORT}", "--num-gpus=1", f"--node-ip-address={node.ip}")
        script = f"exec {shlex.join(join)} --block"
    # The entrypoint of NVIDIA's images sets up forward compatibility with older drivers, and runs any command.
    if base.entrypoint == "pass-through":
        return replace(made, command=("/bin/bash", "-c", script))
    return replace(made, entrypoint="/bin/bash", command=("-c", script))


def warm_up(recipe: Recipe, port: int) -> tuple[str, ...]:
    """A small first request as a curl command: kernels are compiled during it, for 25 to 60 seconds."""
    import json

    name = recipe.serve.flags.get("served-model-name") or recipe.serve.model or recipe.model.id
    body = {"model": str(name), "messages": [{"role": "user", "content": "ping"}], "max_tokens": 3}
    url = f"http://localhost:{port}/v1/chat/completions"
    return ("curl", "-sS", url, "-H", "Content-Type: application/json", "-d", json.dumps(body))
