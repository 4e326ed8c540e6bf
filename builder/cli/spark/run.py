"""`builder run`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.options import BaseOption, ProfileOption, RecipeOption, SetOption, say
from builder.cli.rulecheck import judge
from builder.errors import EngineError, InvalidError, NetworkError, PinError, UsageError

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
    format_: Annotated[
        str | None, typer.Option("--format", help="docker (the default), compose, systemd or env.")
    ] = None,
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

    from builder.model.variant import with_profile
    from builder.plan.bases import select_base
    from builder.project import Project
    from builder.serve import formats, spec

    _check_options(format_, exec_, user)
    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    _check_image(image)
    node = _node(role, ip, head, interface, hca, netplan=netplan)
    if netplan:
        assert node is not None
        print(spec.netplan(node.interface, node.ip), end="")
        say("put it into /etc/netplan/60-direct-link.yaml of this Spark, readable by root only: sudo netplan apply")
        peer = node.head if node.head != node.ip else "ADDRESS-OF-THE-OTHER"
        say(f"then, with the other one done too: ping -M do -s 8972 {peer}")
        return
    spec.check_nodes(served, node)
    chosen = select_base(project, served, base)
    judge(project, recipe, chosen.name, profile, refuse=exec_)
    name = image or _built(project, recipe, base, set_, profile)
    made = spec.container(served, chosen, name, port=port, offline=offline, user=user, node=node)
    home = os.path.expanduser("~")  # noqa: PTH111
    folders = [
        home + mount.host[1:] if mount.host.startswith("~/") else mount.host
        for mount in made.mounts
        if not spec.is_file(mount)
    ]
    if exec_:
        _execute(made, folders, home, loaded=None if image else recipe)
    else:
        writers: dict[str, Callable[[Container], str]] = {
            "docker": formats.docker_command,
            "compose": formats.compose,
            "systemd": partial(formats.systemd, home=home),
            "env": formats.env_file,
        }
        print(writers[format_ or "docker"](made), end="")
        if missing := [folder for folder in folders if user and not Path(folder).is_dir()]:
            say(f"first, as that user: {shlex.join(['mkdir', '-p', *missing])} (docker makes missing folders as root)")
        if format_ == "systemd" and made.secrets:
            say(f"put {', '.join(made.secrets)} into /etc/builder/{made.name}.env, readable by root only")
        if format_ == "compose" and made.serves:
            say("with Open WebUI on port 3000: docker compose --profile front-end up --detach")
    if node is None or node.role == "head":
        first = spec.warm_up(served, made.ports[0] if made.ports else made.port)
        key = ' -H "Authorization: Bearer $VLLM_API_KEY"' if "VLLM_API_KEY" in made.secrets else ""
        say(f"the first request compiles kernels; send one first: {shlex.join(first)}{key}")
    if node is not None and node.role == "head":
        words = ["builder", "run", "--recipe", recipe, *_chosen(base, set_, profile)]
        words += ["--image", image] if image else []
        words += ["--role", "worker", "--ip", "ITS-ADDRESS", "--head", node.ip, "--interface", node.interface]
        words += ["--hca", node.hca] if node.hca else []
        say(f"it waits for the other Spark, where the same image and the weights have to be: {shlex.join(words)}")


def _node(
    role: str | None, ip: str | None, head: str | None, interface: str | None, hca: str | None, *, netplan: bool = False
) -> Node | None:
    from builder.serve.spec import Node

    given = {"--ip": ip, "--head": head, "--interface": interface, "--hca": hca}
    if role not in (None, "head", "worker"):
        raise UsageError(f"--role {role!r} is neither head nor worker")
    if role is None and not netplan:
        if alone := [option for option, value in given.items() if value is not None]:
            raise UsageError(f"{', '.join(alone)} is for one of two Sparks: say which", next="--role head, or worker")
        return None
    if ip is None or interface is None or (head is None and role == "worker" and not netplan):
        asked = "--netplan" if netplan else "--role"
        raise UsageError(f"{asked} needs --ip and --interface" + ("" if netplan else ", and --head on the worker"))
    for option, address in (("--ip", ip), ("--head", head)):
        _check_address(option, address)
    for option, name, pattern in (
        ("--interface", interface, r"[^\s/:;'\"\\]{1,15}"),
        ("--hca", hca, r"[=^]*[A-Za-z0-9_.:,-]{1,255}"),
    ):
        if name is not None and not re.fullmatch(pattern, name):
            raise UsageError(f"{option} {name!r} cannot be a device's name", next="ip link; ibdev2netdev")
    return Node(role or "head", ip, head or ip, interface, hca)


def _check_image(image: str | None) -> None:
    if image is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}", image):
        raise UsageError(f"--image {image!r} cannot be an image's name", next="docker image ls")


def _check_options(format_: str | None, exec_: bool, user: str | None) -> None:
    from builder.serve.formats import FORMATS

    if format_ is not None and format_ not in FORMATS:
        raise UsageError(f"there is no format {format_!r}", cause=f"one of {', '.join(FORMATS)}")
    if exec_ and format_ not in (None, "docker"):
        raise UsageError("--exec runs the docker command", next=f"leave out --exec to print --format {format_}")
    if user is not None and not re.fullmatch(r"\d+(:\d+)?", user):
        raise UsageError(f"--user {user!r} is not UID or UID:GID", next='--user "$(id -u):$(id -g)"')


def _check_address(option: str, address: str | None) -> None:
    import ipaddress

    try:
        if address is not None:
            ipaddress.IPv4Address(address)
    except ValueError as error:
        raise UsageError(
            f"{option} {address!r} is not an IPv4 address", next=f"{option} 192.168.100.10, without a name or a mask"
        ) from error


def _execute(made: Container, folders: list[str], home: str, *, loaded: str | None) -> None:
    """Runs the docker command. loaded: the recipe whose image docker should have; None where the user named one."""
    from builder.serve import formats, spec

    if shutil.which("docker") is None:
        raise EngineError(
            "docker is not installed", next="install docker, or print the command without --exec for another machine"
        )
    for mount in made.mounts:
        path = home + mount.host[1:] if mount.host.startswith("~/") else mount.host
        if spec.is_file(mount) and not Path(path).is_file():
            raise UsageError(f"there is no file {path}", next="builder prefetch, with the same recipe and profile")
    # Docker would make missing ones, as root.
    for folder in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    say(formats.docker_command(made))
    done = subprocess.run(formats.docker_words(made, home=home), check=False)
    if done.returncode:
        first = f"builder load --recipe {loaded}, where docker has no such image; " if loaded else ""
        raise EngineError(
            f"docker run ended with {done.returncode}",
            cause="what docker says stands above",
            next=f"{first}docker rm --force {made.name}, where one is there already; builder doctor",
        )


def _chosen(base: str | None, sets: list[str] | None, profile: str | None) -> list[str]:
    """The options that chose an image, to be typed again."""
    words = [*(("--base", base) if base else ()), *(word for item in sets or () for word in ("--set", item))]
    return [*words, *(("--profile", profile) if profile else ())]


def _built(project: Project, recipe: str, base: str | None, sets: list[str] | None, profile: str | None) -> str:
    import shlex

    from builder.cli.image.build import make_image

    try:
        built, _ = make_image(project, recipe, base, sets, profile=profile)
    except (PinError, NetworkError) as error:
        steps = "; or ".join(step for step in (error.next, "name an image: --image REF") if step)
        raise type(error)(error.what, where=error.where, cause=error.cause, next=steps) from error
    except InvalidError as error:
        if "is not in the store" not in error.what:
            raise
        build = shlex.join(["builder", "build", "--recipe", recipe, *_chosen(base, sets, profile), "--load"])
        raise UsageError(
            f"no image of {recipe} was built here", cause=error.what, next=f"{build}; or name an image: --image REF"
        ) from error
    return f"{recipe}:{built.image.digest.short}"
