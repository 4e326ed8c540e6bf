"""The serving command: entrypoint and command of an image, as lists of words."""

from __future__ import annotations

import json
from typing import Any

from builder.model.base import Base
from builder.model.recipe import Recipe


def flag_words(flags: dict[str, Any]) -> list[str]:
    """Options of `vllm serve` as words: true is a switch, false its negation, a mapping JSON, a list several words."""
    words: list[str] = []
    for name, value in flags.items():
        if value is None:
            continue
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        elif isinstance(value, dict):
            words += [f"--{name}", json.dumps(value, separators=(",", ":"), ensure_ascii=False)]
        elif isinstance(value, list | tuple):
            words += [f"--{name}", *map(str, value)]
        else:
            words += [f"--{name}", str(value)]
    return words


def serving(recipe: Recipe, base: Base) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Entrypoint (None: the base's own stays) and command that serve the recipe on this base.

    The entrypoint of vllm-openai is `vllm serve`. NGC's entrypoint runs the command, which therefore starts with `vllm
    serve`. An entrypoint that builds the command from variables gets no command. A recipe's wrapper replaces `vllm
    serve` on all other bases. Hermetic bases have no entrypoint, and some images need another one.
    """
    pinned = recipe.model.revision if (recipe.serve.model or recipe.model.id) == recipe.model.id else None
    flags = {**({"revision": pinned} if pinned else {}), **recipe.serve.flags}
    words = (recipe.serve.model or recipe.model.id, *flag_words(flags))
    if recipe.serve.wrapper is not None and base.entrypoint != "environment":
        return (recipe.serve.wrapper,), words
    if base.family == "hermetic" or base.entrypoint == "replaced":
        return ("vllm", "serve"), words
    if base.entrypoint == "vllm-serve":
        return None, words
    if base.entrypoint == "environment":
        return None, ()
    return None, ("vllm", "serve", *words)
