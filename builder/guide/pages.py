"""The generated documents: docs/recipes/*.md, docs/troubleshooting.md and docs/rules.md."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from builder.guide.summary import rates
from builder.knowledge.loglines import lines
from builder.knowledge.rule import all_rules
from builder.model.recipe import LayerUse, Recipe
from builder.model.variant import with_profile
from builder.plan.command import flag_words
from builder.project import Project
from builder.serve.formats import shell
from builder.serve.spec import transport

_HEADER = "<!-- Made by python -m builder.guide from recipes and rules; not edited by hand. -->\n"


_METRICS = """\
## Metrics

The server counts at `/metrics` (sm121-rules, spark-vllm-guide sections 10 and 14.6):

* `vllm:kv_cache_usage_perc`: how full the cache is; far below 1 for one user.
* `vllm:prefix_cache_hits_total` divided by `vllm:prefix_cache_queries_total`: how much of the prompts was known. The
  gauge of it is gone in vLLM 0.19.
* `grep spec_decode`: how many drafted tokens were accepted; near zero means that speculation only costs.
"""


def documents(project: Project) -> dict[str, str]:
    """The text of every generated document, by its path below docs/."""
    pages = {f"recipes/{name}.md": recipe_page(project, project.recipe(name)) for name in project.recipe_names()}
    pages["recipes/README.md"] = index_page(project)
    pages["troubleshooting.md"] = troubleshooting_page()
    pages["rules.md"] = rules_page()
    return pages


def index_page(project: Project) -> str:
    """docs/recipes/README.md: the table of all recipes."""
    rows = []
    for name in project.recipe_names():
        recipe = project.recipe(name)
        speed = recipe.speed.tokens_per_second if recipe.speed else ""
        model = recipe.model
        kind = (model.parameters, model.quantization, ", ".join(model.modalities))
        rows.append((f"[{name}]({name}.md)", *kind, recipe.nodes, recipe.base, speed))
    head = ("recipe", "parameters", "weights", "in", "nodes", "base", "tok/s")
    speeds = "Speeds are those that the sources measured, decoding one request."
    return f"{_HEADER}# Recipes\n\n{_table(head, rows)}\n{speeds}\n\n{_sources()}"


def recipe_page(project: Project, recipe: Recipe) -> str:
    """docs/recipes/NAME.md: facts, commands, serving command, profiles and notes of one recipe."""
    model = recipe.model
    facts = [
        ("model", model.id),
        ("parameters", model.parameters),
        ("weights", _weights(recipe)),
        ("modalities", ", ".join(model.modalities)),
        ("nodes", recipe.nodes),
        ("base", recipe.base),
        ("also on", ", ".join(recipe.compatible)),
        ("layers", ", ".join(_layer(use) for use in recipe.layers)),
        ("speed", f"{rates(recipe.speed)} ({recipe.speed.source})" if recipe.speed else None),
        ("gated", "yes: accept the licence and set HF_TOKEN" if model.gated else None),
    ]
    parts = [_HEADER, f"# {recipe.name}\n\n{recipe.title}.\n"]
    parts.append(_table(("", ""), [(key, value) for key, value in facts if value not in (None, "")]))
    hermetic = " --base hermetic" if any(name.startswith("hermetic") for name in recipe.compatible) else ""
    run = f"builder run --recipe {recipe.name}{hermetic}"
    commands = [f"builder build --recipe {recipe.name}{hermetic} --load", f"builder prefetch --recipe {recipe.name}"]
    if recipe.nodes == 2:
        link = "--interface NAME" + (" --hca DEVICES" if transport(recipe) == "roce" else "")
        commands.append(f"{run} --role head --ip ADDRESS {link}")
        commands.append(f"{run} --role worker --ip ADDRESS --head ADDRESS {link}    # on the other Spark")
    else:
        commands.append(run)
    parts.append("```sh\n" + "\n".join(commands) + "\n```\n")
    parts.append("## Serving command\n\n```sh\n" + _serving(recipe) + "\n```\n")
    variables = {**recipe.env, **recipe.run.env}
    if variables:
        parts.append("Environment: " + ", ".join(f"`{name}={value}`" for name, value in variables.items()) + ".\n")
    parts.append("Container: " + "; ".join(_container(recipe)) + ".\n")
    if recipe.profiles:
        parts.append("## Profiles\n")
        rows = [_profile_row(project, recipe, name) for name in recipe.profiles]
        parts.append(_table(("profile", "what", "changes"), rows))
    broken = [f"* {id}: {reason}\n" for id, reason in recipe.rules.items()]
    notes = [f"* {note}\n" for note in recipe.notes]
    for name, profile in recipe.profiles.items():
        broken += [f"* {id} (profile {name}): {reason}\n" for id, reason in profile.rules.items() if reason]
        notes += [f"* Profile {name}: {note}\n" for note in profile.notes]
    if broken:
        parts.append("## Rules broken on purpose\n")
        parts.append("".join(broken))
    if notes:
        parts.append("## Notes\n")
        parts.append("".join(notes))
    parts.append("Sources: " + ", ".join(recipe.sources) + ".\n")
    return "\n".join(parts)


def troubleshooting_page() -> str:
    """docs/troubleshooting.md: symptoms with their fixes, and log lines with their meaning."""
    rows = [
        (item["symptom"], item["cause"], item["fix"], item.get("rule", ""), item["source"])
        for item in _data("symptoms")
    ]
    logs = [(f"`{item.line}`", "good" if item.good else "bad", item.means) for item in lines()]
    outside = "Not covered: SGLang, llama.cpp and TensorRT-LLM images, MiniMax in FP8 on two nodes, DeepSeek V4 Flash."
    first = "`builder doctor --recipe NAME` looks at the machine, `builder lint NAME` at the recipe."
    return (
        f"{_HEADER}# Troubleshooting\n\n{first}\n\n"
        f"## Symptoms\n\n{_table(('symptom', 'cause', 'fix', 'rule', 'source'), rows)}\n"
        f"## Log lines\n\n{_table(('line', '', 'meaning'), logs)}\n{_METRICS}\n{outside}\n\n{_sources()}"
    )


def rules_page() -> str:
    """docs/rules.md: every rule."""
    parts = [_HEADER, "# Rules of the hardware\n"]
    for rule in all_rules():
        parts.append(f"## {rule.id}: {rule.title}\n")
        parts.append(f"{rule.severity.capitalize()}. Scope: {rule.scope}.\n")
        parts.append(f"{rule.why}\n\nFix: {rule.fix}. Source: {rule.source}.\n")
    parts.append(_sources())
    return "\n".join(parts)


def write(project: Project, folder: Path) -> None:
    """Write every document below `folder`, and delete pages of recipes that no longer exist."""
    pages = documents(project)
    for path, text in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    for page in (folder / "recipes").glob("*.md"):
        if f"recipes/{page.name}" not in pages:
            page.unlink()


@cache
def _data(name: str) -> Any:
    return yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text("utf-8"))


def _sources() -> str:
    return "## Sources\n\n" + "".join(f"* {name}: {what}\n" for name, what in _data("sources").items())


def _weights(recipe: Recipe) -> str:
    model = recipe.model
    each = " on each node" if recipe.nodes == 2 else ""
    size = f"{model.memory_gb:g} GB{each}" if model.memory_gb else None
    return ", ".join(word for word in (model.quantization, size) if word)


def _container(recipe: Recipe) -> list[str]:
    """The settings of the container that `builder run` starts, besides image and command."""
    run = recipe.run
    mounts = (f"`{v.host}` at `{v.container}`" + (" (read-only)" if v.read_only else "") for v in run.volumes)
    settings = [f"port {run.port}" if run.network == "bridge" else f"the host's network, port {run.port}"]
    settings += [f"shared memory {run.shm_size}"] if run.shm_size else []
    settings += ["locked memory without limit"] if run.memlock else []
    settings += [f"secrets by name {', '.join(run.secrets)}"] if run.secrets else []
    return [*settings, *mounts]


def _serving(recipe: Recipe) -> str:
    words = ["vllm", "serve", recipe.serve.model or recipe.model.id]
    lines = [" ".join(words)]
    for name, value in recipe.serve.flags.items():
        if value is not None:
            lines.append(" ".join(shell(word) for word in flag_words({name: value})))
    return " \\\n  ".join(lines)


def _profile_row(project: Project, recipe: Recipe, name: str) -> tuple[str, str, str]:
    served = with_profile(recipe, name, project.shared_profiles)
    changes = [f"base {served.base}"] if served.base != recipe.base else []
    changes += [f"{served.nodes} nodes"] if served.nodes != recipe.nodes else []
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
    changes += [word for word in _container(served) if word not in _container(recipe)]
    return name, recipe.profiles[name].title, "; ".join(changes)


def _layer(use: LayerUse) -> str:
    return use.layer + (f" ({', '.join(f'{key} {value}' for key, value in use.set.items())})" if use.set else "")


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join("" if c is None else str(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
