"""`builder run` and `builder prefetch`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.options import BaseOption, JsonOption, ProfileOption, RecipeOption, SetOption, print_json, say
from builder.errors import BuilderError, EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.project import Project
    from builder.serve.spec import Container, Node


def run(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Image to run; default: the built one as `load` names it.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="docker, compose, systemd or env.")] = "docker",
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port on the host.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="The weights are staged: ask no hub for them.")] = False,
    user: Annotated[str | None, typer.Option("--user", help="UID:GID to run as.")] = None,
    role: Annotated[str | None, typer.Option("--role", help="Of two nodes: head or worker.")] = None,
    ip: Annotated[str | None, typer.Option("--ip", help="This node's address on the direct link.")] = None,
    head: Annotated[str | None, typer.Option("--head", help="The head's address on the direct link.")] = None,
    interface: Annotated[str | None, typer.Option("--interface", help="The direct link's interface.")] = None,
    hca: Annotated[str | None, typer.Option("--hca", help="The direct link's RDMA devices, for RoCE.")] = None,
    netplan: Annotated[bool, typer.Option("--netplan", help="Print the link's netplan file instead.")] = False,
    exec_: Annotated[bool, typer.Option("--exec", help="Run the docker command instead of printing it.")] = False,
) -> None:
    """Print what serves a recipe on a Spark: a docker command, a compose file, a systemd unit, or its environment."""
    import shlex
    from functools import partial

    from builder.plan.resolve import select_base
    from builder.plan.variant import with_profile
    from builder.project import Project
    from builder.serve import formats, spec

    if format_ not in formats.FORMATS:
        raise UsageError(f"there is no format {format_!r}", cause=f"one of {', '.join(formats.FORMATS)}")
    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    node = _node(role, ip, head, interface, hca)
    if netplan:
        if node is None:
            raise UsageError("--netplan needs --role, --ip and --interface")
        print(spec.netplan(node.interface, node.ip), end="")
        say(f"check after `netplan apply`: ping -M do -s 8972 {node.head}")
        return
    name = image or _built(project, recipe, base, set_, profile)
    made = spec.container(
        served, select_base(project, served, base), name, port=port, offline=offline, user=user, node=node
    )
    home = os.path.expanduser("~")  # noqa: PTH111
    folders = [home + mount.host[1:] if mount.host.startswith("~/") else mount.host for mount in made.mounts]
    if exec_:
        # Docker would make missing ones, as root.
        for folder in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
        words = formats.docker_words(made, home=home)
        say(formats.docker_command(made))
        try:
            done = subprocess.run(words, check=False)
        except OSError as error:
            raise EngineError("docker cannot be started", cause=str(error), next="install docker") from error
        if done.returncode:
            raise EngineError(f"docker run ended with {done.returncode}")
    else:
        writers: dict[str, Callable[[Container], str]] = {
            "docker": formats.docker_command,
            "compose": formats.compose,
            "systemd": partial(formats.systemd, home=home),
            "env": formats.env_file,
        }
        print(writers[format_](made), end="")
        if missing := [folder for folder in folders if user and not Path(folder).is_dir()]:
            say(f"first, as that user: {shlex.join(['mkdir', '-p', *missing])} (docker makes missing folders as root)")
        if format_ == "systemd" and made.secrets:
            say(f"put {', '.join(made.secrets)} into /etc/builder/{made.name}.env, readable by root only")
        if format_ == "compose" and made.serves:
            say("with Open WebUI on port 3000: docker compose --profile front-end up --detach")
    if node is None or node.role == "head":
        first = spec.warm_up(served, made.ports[0] if made.ports else made.port)
        say(f"the first request compiles kernels; send one first: {shlex.join(first)}")


def prefetch(
    recipe: RecipeOption,
    profile: ProfileOption = None,
    exec_: Annotated[bool, typer.Option("--exec", help="Run the commands instead of printing them.")] = False,
    json_: JsonOption = False,
) -> None:
    """Print the commands that download a recipe's weights to where `run` mounts them."""
    from builder.plan.variant import with_profile
    from builder.project import Project
    from builder.serve import formats, spec

    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    steps = spec.prefetch(served)
    if json_:
        print_json([{"env": env, "argv": list(words)} for env, words in steps])
    for env, words in steps:
        if exec_:
            home = os.path.expanduser
            own = {**os.environ, **{key: home(value) for key, value in env.items()}}
            if subprocess.run([home(word) for word in words], env=own, check=False).returncode:
                raise EngineError(f"{' '.join(words)} failed", next="pip install -U huggingface_hub; hf auth login")
        elif not json_:
            prefix = "".join(f"{key}={formats.shell(value)} " for key, value in env.items())
            print(prefix + " ".join(formats.shell(word) for word in words))
    if served.model.gated:
        say("this model is gated: accept its licence on its page, and set HF_TOKEN")


def _node(role: str | None, ip: str | None, head: str | None, interface: str | None, hca: str | None) -> Node | None:
    from builder.serve.spec import Node

    if role is None:
        return None
    if role not in ("head", "worker"):
        raise UsageError(f"--role {role!r} is neither head nor worker")
    if ip is None or interface is None or (head is None and role == "worker"):
        raise UsageError("--role needs --ip and --interface, and --head on the worker")
    return Node(role, ip, head or ip, interface, hca)


def _built(project: Project, recipe: str, base: str | None, sets: list[str] | None, profile: str | None) -> str:
    from builder.cli.build import make_image

    try:
        built, _ = make_image(project, recipe, base, sets, profile=profile)
    except BuilderError as error:
        chosen = ["--base", base] if base else []
        raise UsageError(
            f"no image of {recipe} was built here",
            cause=error.what,
            next=f"{' '.join(['builder build --recipe', recipe, *chosen])} --load, or name an image: --image REF",
        ) from error
    return f"{recipe}:{built.image.digest.removeprefix('sha256:')[:12]}"
