"""`builder run`: the command, compose file, systemd unit or environment that serves a recipe."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from typing import Annotated

import typer

from builder.cli.image.built import built_image, image_name
from builder.cli.options import (
    BaseOption,
    JsonOption,
    MachineOption,
    PolicyOption,
    ProfileOption,
    RecipeOption,
    SetOption,
)
from builder.cli.output import print_json, say
from builder.cli.request import PlanRequest, asked
from builder.cli.rulecheck import check_rules, memory_of
from builder.cli.spark.node import parse_node, print_netplan
from builder.cli.spark.start import as_dict, host_folders, start
from builder.errors import NetworkError, PinError, UsageError
from builder.model.recipe import Recipe
from builder.project import Project
from builder.serve import formats, spec
from builder.serve.spec import Container, Node

_OTHER_IMAGE = "or name an image: --image REF"
_IMAGE = r"[a-z0-9][a-z0-9._:/-]{0,255}(:[A-Za-z0-9._-]{1,128})?(@sha256:[0-9a-f]{64})?"


def run(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Image to run; default: the built one, by the name `load` gives it.")
    ] = None,
    policy: PolicyOption = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="docker (the default), compose, systemd or env.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port on the host.")] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="The weights are on this machine; do not query the hub.")
    ] = False,
    user: Annotated[str | None, typer.Option("--user", help="UID:GID to run as.")] = None,
    machine: MachineOption = None,
    role: Annotated[str | None, typer.Option("--role", help="For two Sparks: head or worker.")] = None,
    ip: Annotated[str | None, typer.Option("--ip", help="Address of this Spark on the direct link.")] = None,
    head: Annotated[str | None, typer.Option("--head", help="Address of the head on the direct link.")] = None,
    interface: Annotated[
        str | None, typer.Option("--interface", help="Interfaces of the direct link, joined by commas.")
    ] = None,
    hca: Annotated[str | None, typer.Option("--hca", help="RDMA devices of the direct link, for RoCE.")] = None,
    netplan: Annotated[bool, typer.Option("--netplan", help="Print the netplan file of the link instead.")] = False,
    exec_: Annotated[bool, typer.Option("--exec", help="Run the docker command instead of printing it.")] = False,
    json_: JsonOption = False,
) -> None:
    """Print what serves a recipe on a Spark: a docker command, a compose file, a systemd unit or the environment.

    With --json, the docker command as a list of words, with the image, the ports and the folders that it mounts.
    """
    _check_options(format_, exec_, user, image)
    if policy is not None and image is None:
        raise UsageError(
            "a policy is about an image in a registry",
            id="policy-without-image",
            next="--image REGISTRY/REPOSITORY:TAG",
        )
    if json_ and (format_ is not None or exec_ or netplan):
        raise UsageError(
            "--json excludes --format, --netplan and --exec", id="run-options-conflict", next="leave out one of them"
        )
    project = Project()
    request = asked(project, recipe, base, set_, profile)
    served, chosen = request.recipe_and_base(project)
    node = parse_node(served, role, ip, head, interface, hca, links=netplan)
    if netplan and node is not None:
        print_netplan(node)
        return
    check_rules(project, recipe, chosen.name, profile, refuse=exec_, machine=memory_of(machine))
    if policy is not None and image is not None:
        # Imported here: only a policy needs what reads statements.
        from builder.cli.proof.policy import pinned

        image = pinned(policy, image)
    name = image or _built_name(request, project)
    container = spec.container(
        served, chosen, name, port=port, offline=offline, user=user, node=node, foreign=image is not None
    )
    if image is not None and profile is not None:
        _print_profile(request, project)
    if exec_:
        start(container, request, built=image is None)
    elif json_:
        print_json(as_dict(container))
    else:
        _print(container, format_ or "docker", user)
    if image is None and not exec_:
        say(f"docker needs the image first: {request.command('load')}")
    if node is None or node.role == "head":
        _print_warm_up(served, container)
    if node is not None and node.role == "head":
        _print_worker(request, node, image)


def _print_profile(request: PlanRequest, project: Project) -> None:
    """Say what a profile changes in the image itself: only variables can be set when a container starts."""
    plain, served = project.recipe(request.recipe), request.recipe_and_base(project)[0]
    changes = [what for what in ("base", "layers") if getattr(plain, what) != getattr(served, what)]
    gone = sorted(set(plain.env) - set(served.env))
    changes += [f"no {name}" for name in gone]
    if changes:
        say(f"profile {request.profile} changes the image ({', '.join(changes)}): --image must be built with it")


def _print(container: Container, format_: str, user: str | None) -> None:
    """Print the container in one format, and what to do before it starts."""
    writers: dict[str, Callable[[Container], str]] = {
        "docker": formats.docker_command,
        "compose": formats.compose,
        "systemd": lambda item: formats.systemd(item, home=os.path.expanduser("~")),  # noqa: PTH111
        "env": formats.env_file,
    }
    print(writers[format_](container), end="")
    if user and (missing := [str(folder) for folder in host_folders(container) if not folder.is_dir()]):
        words = shlex.join(["mkdir", "-p", *missing])
        say(f"first, as that user: {words} (docker makes missing folders as root)")
    if format_ == "systemd" and container.secrets:
        say(f"put {', '.join(container.secrets)} into /etc/builder/{container.name}.env, readable by root only")
    if format_ == "compose" and container.serves:
        say("with Open WebUI on port 3000: docker compose --profile front-end up --detach")


def _print_warm_up(served: Recipe, container: Container) -> None:
    request = spec.warm_up(served, container.ports[0] if container.ports else container.port)
    key = ' -H "Authorization: Bearer $VLLM_API_KEY"' if "VLLM_API_KEY" in container.secrets else ""
    say(f"the first request compiles kernels; send this one first: {shlex.join(request)}{key}")


def _print_worker(request: PlanRequest, node: Node, image: str | None) -> None:
    """Print the command for the other Spark."""
    words = ["builder", "run", *request.words()]
    words += ["--image", image] if image else []
    words += ["--role", "worker", "--ip", "ITS-ADDRESS", "--head", node.ip, "--interface", node.interface]
    words += ["--hca", node.hca] if node.hca else []
    say(f"the head waits for the other Spark, which needs the same image and weights; run there: {shlex.join(words)}")
    say("the names of interfaces and RDMA devices may differ there: ip -br link; ibdev2netdev")


def _check_options(format_: str | None, exec_: bool, user: str | None, image: str | None) -> None:
    if format_ is not None and format_ not in formats.FORMATS:
        raise UsageError(
            f"there is no format {format_!r}", id="format-unknown", next=f"one of {', '.join(formats.FORMATS)}"
        )
    if exec_ and format_ not in (None, "docker"):
        raise UsageError(
            "--exec only runs the docker command",
            id="exec-not-docker",
            next=f"omit --exec to print --format {format_}",
        )
    if user is not None and not re.fullmatch(r"\d+(:\d+)?", user):
        raise UsageError(f"--user {user!r} is not UID or UID:GID", id="user-invalid", next='--user "$(id -u):$(id -g)"')
    if image is not None and not re.fullmatch(_IMAGE, image):
        raise UsageError(f"--image {image!r} is not an image name", id="image-name-invalid", next="docker image ls")


def _built_name(request: PlanRequest, project: Project) -> str:
    """The name of the recipe's built image in docker. Every error suggests --image as well."""
    try:
        built, _ = built_image(request, project, load=True)
    except (PinError, NetworkError, UsageError) as error:
        if isinstance(error, UsageError) and error.id != "image-not-built":
            raise
        raise error.replaced(next="; ".join(step for step in (error.next, _OTHER_IMAGE) if step)) from error
    return image_name(built)
