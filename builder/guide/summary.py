"""The summary of one recipe as text, for `builder show`, and facts about its bases."""

from __future__ import annotations

import textwrap
from typing import Any

from builder.knowledge.lint import lint_recipe
from builder.knowledge.table import load_table
from builder.model.base import Base
from builder.model.recipe import Profile, Recipe, Speed
from builder.model.variant import with_profile
from builder.plan.bases import fitting_bases
from builder.project import Project

WIDTH = 110
"""Columns of a summary, where the terminal is not narrower."""
_LABEL = 12


def pin_status(base: Base) -> str:
    """How a base is fixed: built from the lock, a pinned image, or not pinned yet."""
    if base.pin is None:
        return "made here from the lock"
    if base.pin.manifest:
        return f"pinned, confidence {base.pin.confidence}"
    if base.pin.index:
        return "not pinned: only the digest of its index is known"
    return "not pinned"


def rates(speed: Speed) -> str:
    """The measured rates as text, with the base if they were measured with another one."""
    prefill = f", prefill {speed.prefill} tok/s" if speed.prefill else ""
    return f"{speed.tokens_per_second} tok/s{prefill}" + (f", with {speed.base}" if speed.base else "")


def base_facts(project: Project, recipe: Recipe) -> list[dict[str, Any]]:
    """The bases of a recipe as plain data: vLLM version, pin, and whether lint checks options against that version."""
    return [
        {
            "name": base.name,
            "vllm": base.vllm,
            "pin": pin_status(base),
            "buildable": base.pin is None or base.pin.manifest is not None,
            "options_checked": base.vllm is not None and load_table(base.vllm) is not None,
        }
        for base in fitting_bases(project, recipe)
    ]


def recipe_summary(project: Project, recipe: Recipe, width: int = WIDTH) -> str:
    """One recipe on one page: model, speed, layers, bases, profiles, notes, sources and the next command.

    width: in columns.
    """
    model = recipe.model
    weights = [model.quantization or model.weights, f"{model.memory_gb:g} GB" if model.memory_gb else None]
    does = [word for word, given in (("reasoning", model.reasoning), ("tool calls", model.tools)) if given]
    speed = recipe.speed
    named = model.id + (f" at {model.revision}" if model.revision else "")
    named += " (gated: accept its licence, set HF_TOKEN)" if model.gated else ""
    rows: list[tuple[str, str]] = [
        ("model", named),
        ("parameters", model.parameters or ""),
        ("weights", ", ".join(word for word in weights if word)),
        ("takes", ", ".join(model.modalities)),
        ("does", ", ".join(does)),
        ("nodes", f"{recipe.nodes} with {recipe.memory_gb} GB of memory"),
        ("speed", f"{rates(speed)}, one request ({speed.source})" if speed else "not measured"),
        ("layers", ", ".join(use.layer for use in recipe.layers)),
    ]
    lines = _wrapped(f"{recipe.name}: {recipe.title}", width, "", "  ")
    for label, text in rows:
        lines += _row(label, text, width) if text else []
    for number, base in enumerate(base_facts(project, recipe)):
        checked = "" if base["options_checked"] else "; options are not checked"
        text = f"{base['name']}: vLLM {base['vllm'] or 'of unknown version'}; {base['pin']}{checked}"
        lines += _row("base" if number == 0 else "or" if number == 1 else "", text, width)
    shared = shared_profiles(project, recipe)
    for number, (name, profile) in enumerate({**recipe.profiles, **shared}.items()):
        lines += _row("profiles" if number == 0 else "", f"{name}: {profile.title}", width)
    for number, (rule, reason) in enumerate(recipe.rules.items()):
        lines += _row("breaks" if number == 0 else "", f"{rule}: {reason}", width)
    for number, note in enumerate(recipe.notes):
        lines += _row("notes" if number == 0 else "", note, width)
    lines += _row("sources", ", ".join(recipe.sources), width) if recipe.sources else []
    return "\n".join([*lines, _next(project, recipe)])


def shared_profiles(project: Project, recipe: Recipe) -> dict[str, Profile]:
    """The shared profiles that fit this recipe, by name."""
    return {name: item for name, item in project.shared_profiles.items() if _usable(project, recipe, name)}


def _usable(project: Project, recipe: Recipe, shared: str) -> bool:
    """Whether a shared profile fits this recipe: it changes it, breaks no rule, and its name is free."""
    if shared in recipe.profiles or with_profile(recipe, shared, project.shared_profiles).serve == recipe.serve:
        return False
    found = lint_recipe(project, recipe, profiles=[None, shared])
    return not [item for item in found if item.profile == shared and item.level == "error"]


def _next(project: Project, recipe: Recipe) -> str:
    known = base_facts(project, recipe)
    usable = next((base["name"] for base in known if base["buildable"]), None)
    if usable is None:
        return (
            f"next: builder lock --update {recipe.base}, with access to its registry: no base of this recipe is pinned"
        )
    return f"next: builder build --recipe {recipe.name}" + ("" if usable == recipe.base else f" --base {usable}")


def _row(label: str, text: str, width: int) -> list[str]:
    return _wrapped(text, width, f"  {label:{_LABEL}}", " " * (_LABEL + 2))


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    # Words and links are not split, so that they can be copied.
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
