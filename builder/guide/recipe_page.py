"""docs/recipes/NAME.md: what an owner asks about a recipe, in order, with commands that work as they are printed."""

from __future__ import annotations

from typing import Any

from builder.guide.summary import pin_status, rates, shared_profiles
from builder.guide.table import table
from builder.knowledge.lint import subject
from builder.model.base import Base
from builder.model.recipe import LayerUse, Recipe
from builder.model.variant import with_profile
from builder.plan.bases import fitting_bases
from builder.plan.command import flag_words
from builder.project import Project
from builder.serve.formats import shell
from builder.serve.spec import transport

LINK = "--interface enp1s0f1np1,enP2p1s0f1np1"
DEVICES = " --hca rocep1s0f1,roceP2p1s0f1"
HEAD, WORKER = "192.168.100.10", "192.168.100.11"
SECOND = {HEAD: "192.168.101.10", WORKER: "192.168.101.11"}


def recipe_page(project: Project, recipe: Recipe) -> str:
    """The page without its first line."""
    bases = fitting_bases(project, recipe)
    base = next((item for item in bases if _buildable(item)), None)
    parts = [f"# {recipe.name}\n\n{recipe.title}.\n", table(("", ""), _facts(recipe))]
    parts += _machine(recipe, base), _build(recipe, bases, base)
    parts += [_two_nodes(recipe, base)] if recipe.nodes == 2 else [_download(recipe), _run(recipe, base)]
    parts += _speed(recipe), _memory(project, recipe), _requests(recipe), _command(project, recipe, base or bases[0])
    parts += _profiles(project, recipe), _differences(recipe)
    parts.append("Sources: " + ", ".join(recipe.sources) + ".\n")
    return "\n".join(part for part in parts if part)


def _buildable(base: Base) -> bool:
    return base.pin is None or base.pin.manifest is not None


def _facts(recipe: Recipe) -> list[tuple[str, Any]]:
    model = recipe.model
    each = " on each node" if recipe.nodes == 2 else ""
    size = f"{model.memory_gb:g} GB{each}" if model.memory_gb else None
    facts = [
        ("model", model.id),
        ("revision", model.revision),
        ("parameters", model.parameters),
        ("weights", ", ".join(word for word in (model.quantization, size) if word)),
        ("modalities", ", ".join(model.modalities)),
        ("layers", ", ".join(_layer(use) for use in recipe.layers)),
    ]
    return [(key, value) for key, value in facts if value not in (None, "")]


def _block(*lines: str) -> str:
    return "```sh\n" + "\n".join(lines) + "\n```\n"


def _named(recipe: Recipe, base: Base | None) -> str:
    """The options that name the recipe, and its base when it is not the recipe's own."""
    other = f" --base {base.name}" if base is not None and base.name != recipe.base else ""
    return f"--recipe {recipe.name}{other}"


def _machine(recipe: Recipe, base: Base | None) -> str:
    sparks = "Two Sparks with" if recipe.nodes == 2 else "One Spark with"
    small = [name for name, profile in recipe.profiles.items() if profile.memory_gb == 64]
    text = f"{sparks} {recipe.memory_gb} GB of memory" + (" or more" if recipe.memory_gb == 64 else "")
    text += f", or 64 GB with the profile {small[0]}" if small and recipe.memory_gb == 128 else ""
    text += ". The model is gated: accept its licence on its page, and set HF_TOKEN" if recipe.model.gated else ""
    command = f"builder doctor {_named(recipe, base)}"
    return f"## Will it run on my machine\n\n{text}. This checks driver, docker, memory and disk:\n\n{_block(command)}"


def _build(recipe: Recipe, bases: list[Base], base: Base | None) -> str:
    rows = [(item.name, item.vllm or "not known", pin_status(item)) for item in bases]
    text = f"## Build\n\n{table(('base', 'vLLM', ''), rows)}\n"
    if base is None:
        text += "No base of this recipe is pinned. The first command asks its registry for the digest and pins it:\n\n"
        return text + _block(f"builder lock --update {recipe.base}", f"builder build --recipe {recipe.name} --load")
    return text + _block(f"builder build {_named(recipe, base)} --load")


def _download(recipe: Recipe) -> str:
    command = f"builder prefetch --recipe {recipe.name} --exec"
    return f"## Download the weights\n\n{_block(command)}\nWithout `--exec` it prints the commands.\n"


def _run(recipe: Recipe, base: Base | None) -> str:
    command = f"builder run {_named(recipe, base)} --exec"
    key = ""
    if "VLLM_API_KEY" in recipe.run.secrets:
        key = "Every request needs the key: `export VLLM_API_KEY=$(openssl rand -hex 32)`, and keep it.\n\n"
    more = "Without `--exec` it prints the docker command; `--format compose` and `--format systemd` print a file."
    return f"## Run\n\n{key}{_block(command)}\n{more}\n"


def _two_nodes(recipe: Recipe, base: Base | None) -> str:
    named, roce = _named(recipe, base), DEVICES if transport(recipe) == "roce" else ""
    both = f"{HEAD},{SECOND[HEAD]}"
    other = f"{WORKER},{SECOND[WORKER]}"
    return "\n".join(
        (
            "## Two Sparks, step by step\n",
            "A cable between two Sparks is two interfaces and two RDMA devices: `ibdev2netdev` lists their names. They",
            "may differ on the two machines. Replace the names and addresses below by yours.\n",
            "1. The link, on the first and on the second Spark; save what it prints, then `sudo netplan apply`:\n",
            _block(
                f"builder run --recipe {recipe.name} --netplan {LINK} --ip {both}",
                f"builder run --recipe {recipe.name} --netplan {LINK} --ip {other}",
            ),
            "2. The check, on the first Spark, and the same on the second with the other address:\n",
            _block(f"builder doctor {named} {LINK}{DEVICES if roce else ''} --peer {WORKER}"),
            "3. The image, by the command above, and the weights, on both Sparks:\n",
            _block(f"builder prefetch --recipe {recipe.name} --exec"),
            "4. The page cache competes with CUDA for memory: drop it on both Sparks right before the start.\n",
            _block("sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'"),
            "5. The first Spark, then the second:\n",
            _block(
                f"builder run {named} --role head --ip {HEAD} {LINK}{roce} --exec",
                f"builder run {named} --role worker --ip {WORKER} --head {HEAD} {LINK}{roce} --exec",
            ),
        )
    )


def _speed(recipe: Recipe) -> str:
    speed = recipe.speed
    said = f"{rates(speed)}, one request ({speed.source})" if speed else "No speed of this command is published"
    text = f"{said}. This project did not run it. Measure yours, with as many requests at once as you will have:"
    return f"## How fast\n\n{text}\n\n{_block('builder bench --concurrency 4')}"


def _memory(project: Project, recipe: Recipe) -> str:
    plain = recipe.serve.flags
    smaller = []
    for name, profile in recipe.profiles.items():
        flags = with_profile(recipe, name, project.shared_profiles).serve.flags
        lower = [
            flag for flag in ("gpu-memory-utilization", "max-model-len") if _less(flags.get(flag), plain.get(flag))
        ]
        if lower or profile.memory_gb == 64:
            smaller.append(f"`{name}`")
    text = f"Use the profile {' or '.join(smaller)}. " if smaller else ""
    text += (
        "Lower `--gpu-memory-utilization` and `--max-model-len` in a recipe that extends this one "
        f"(`builder new recipe mine --extends {recipe.name}`). [Troubleshooting](../troubleshooting.md) helps."
    )
    return f"## When memory is short\n\n{text}\n"


def _less(one: object, other: object) -> bool:
    return isinstance(one, int | float) and isinstance(other, int | float) and one < other


def _requests(recipe: Recipe) -> str:
    if not recipe.model.reasoning or any("max_tokens" in note for note in recipe.notes):
        return ""
    text = "The model reasons first, and that uses max_tokens: give at least 512, and 1024 with tools; otherwise"
    return f"## Requests\n\n{text} `content` is null (sm121-rules).\n"


def _command(project: Project, recipe: Recipe, base: Base) -> str:
    words = ["vllm", "serve", recipe.serve.model or recipe.model.id]
    words += ["--revision", recipe.model.revision] if recipe.model.revision and not recipe.serve.model else []
    lines = [" ".join(words)]
    for name, value in recipe.serve.flags.items():
        if value is not None:
            lines.append(" ".join(shell(word) for word in flag_words({name: value})))
    env = {name: value for name, value in subject(project, recipe, base).env.items() if base.env.get(name) != value}
    text = "## Serving command\n\n" + _block(" \\\n  ".join(lines)) + "\n"
    if env:
        text += (
            f"Environment on {base.name}: " + ", ".join(f"`{name}={value}`" for name, value in env.items()) + ".\n\n"
        )
    return text + "Container: " + "; ".join(container_settings(recipe)) + ".\n"


def container_settings(recipe: Recipe) -> list[str]:
    """The settings of the container that `builder run` starts, besides image and command."""
    run = recipe.run
    mounts = (f"`{v.host}` at `{v.container}`" + (" (read-only)" if v.read_only else "") for v in run.volumes)
    settings = [f"port {run.port}" if run.network == "bridge" else f"the host's network, port {run.port}"]
    settings += [f"shared memory {run.shm_size}"] if run.shm_size else []
    settings += ["locked memory without limit"] if run.memlock else []
    settings += [f"secrets by name {', '.join(run.secrets)}"] if run.secrets else []
    return [*settings, *mounts]


def _profiles(project: Project, recipe: Recipe) -> str:
    shared = shared_profiles(project, recipe)
    names = [*recipe.profiles, *shared]
    titles = {**recipe.profiles, **shared}
    rows = [(name, titles[name].title, _changes(project, recipe, name)) for name in names]
    how = "Give the same `--profile NAME` to `build`, `prefetch` and `run`, one profile: some change image or weights."
    return f"## Profiles\n\n{how}\n\n{table(('profile', 'what', 'changes'), rows)}"


def _changes(project: Project, recipe: Recipe, name: str) -> str:
    served = with_profile(recipe, name, project.shared_profiles)
    changes = [f"base {served.base}"] if served.base != recipe.base else []
    changes += [f"{served.nodes} nodes"] if served.nodes != recipe.nodes else []
    changes += [f"for {served.memory_gb} GB"] if served.memory_gb != recipe.memory_gb else []
    before, after = recipe.serve.flags, served.serve.flags
    changes += [f"no --{flag}" for flag in before if after.get(flag) is None and before[flag] is not None]
    for flag, value in after.items():
        if value is not None and before.get(flag) != value:
            changes.append("`" + " ".join(shell(word) for word in flag_words({flag: value})) + "`")
    changes += [f"`{key}={value}`" for key, value in served.env.items() if recipe.env.get(key) != value]
    if served.serve.model != recipe.serve.model:
        changes.append(f"serves `{served.serve.model}`")
    if served.model.id != recipe.model.id:
        changes.append(f"model {served.model.id}")
    if served.layers != recipe.layers:
        changes.append("layers " + (", ".join(_layer(use) for use in served.layers) or "none"))
    changes += [f"`{key}={value}`" for key, value in served.run.env.items() if recipe.run.env.get(key) != value]
    changes += [word for word in container_settings(served) if word not in container_settings(recipe)]
    return "; ".join(changes)


def _differences(recipe: Recipe) -> str:
    broken = [f"* {id}: {reason}\n" for id, reason in recipe.rules.items()]
    notes = [f"* {note}\n" for note in recipe.notes]
    for name, profile in recipe.profiles.items():
        broken += [f"* {id} (profile {name}): {reason}\n" for id, reason in profile.rules.items() if reason]
        notes += [f"* Profile {name}: {note}\n" for note in profile.notes]
    text = f"## What differs from the sources, and other notes\n\n{''.join(notes)}" if notes else ""
    rules = "[Rules of the hardware](../rules.md) that this recipe breaks on purpose:"
    return text + (f"\n{rules}\n\n{''.join(broken)}" if broken else "")


def _layer(use: LayerUse) -> str:
    return use.layer + (f" ({', '.join(f'{key} {value}' for key, value in use.set.items())})" if use.set else "")
