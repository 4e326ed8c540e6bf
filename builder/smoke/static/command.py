"""What is strange in the command of an image without a plan: programs, code, servers and files that it names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence

from builder.knowledge.table import load_table
from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.static.context import Context
from builder.smoke.static.python import distributions

_OPTIONS = re.compile(
    r"--(?:middleware|logits-processors|worker-(?:extension-)?cls|scheduler-cls|\w+(?:-\w+)*-plugin|otlp-traces-endpoint)(?:=.*)?"
    r"|.*module-path.*",
    re.DOTALL,
)
"""Options of vLLM that name code or a server, also as keys of JSON."""
_NAMES_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""A part of a command that may be the name of a class: `module.Class`."""
_NUMBER = re.compile(r"-[0-9.]+")
_BETWEEN = re.compile(r"[=,;:@\"'{}()\[\]\s]+")
_MOST_PIECES = 1000
"""Parts of the words of a command that may be paths."""
_ADDRESSES = frozenset(("addr", "address", "ip", "endpoint", "url", "urls", "host", "hosts"))
"""The last words of options and keys that name a machine; `--host` is where the server listens."""


def strange_command(context: Context, holds: Callable[[str], bool]) -> Iterator[str]:
    """What only a plan explains in a command, in a few words each. holds: whether a folder has files of ours."""
    settings, tree = context.image.settings, context.tree
    where = str(settings.get("WorkingDir") or "/")
    words = [*(settings.get("Entrypoint") or ()), *(settings.get("Cmd") or ())]
    if not words:
        yield "no command"
    if not {"Entrypoint", "Cmd"} & set(context.own_fields):
        return
    started = words[1:2] if words and posixpath.basename(words[0]) == "env" else words[:1]
    if words and started != ["vllm"] and started not in [[f"{folder}/vllm"] for folder in context.path]:
        yield f"the command {' '.join(words)[:100]}"
    yield from (f"the option {word[:100]}" for word in words if _OPTIONS.fullmatch(word.replace("_", "-")))
    yield from (
        f"the option {word[:100]}, which is another one's beginning, or unknown" for word in _short(context, words)
    )
    yield from (f"the address in {word[:100]}" for word in words if "://" in word or any(_addressed(word)))
    parts = [piece for word in words[1:] for piece in _BETWEEN.split(word)]
    yield from (f"{piece[:100]}, which the command names" for piece in parts if _NAMES_CODE.fullmatch(piece))
    pieces = [piece for piece in parts if "/" in piece] + words[1:]
    if len(pieces) > _MOST_PIECES:
        yield "a very long command"
    for piece in dict.fromkeys(pieces[:_MOST_PIECES]):
        if piece.startswith("/") and posixpath.normpath(piece).strip("/") == "":
            yield "the folder /, which the command names"
        path = posixpath.join("/", where, piece)
        is_inside = bool(piece.strip("./")) and tree.exists(path)
        if is_inside and (tree.stat(path).kind == "file" or not piece.startswith("/") or holds(path)):
            yield f"{path[:200]}, which the command names"


def _short(context: Context, words: Sequence[str]) -> Iterator[str]:
    """The options that vLLM's table does not have in these letters: its parser completes what is unique."""
    version = next(iter(distributions(context, "vllm")), "")
    table = load_table(version or str((context.image.settings.get("Labels") or {}).get(VLLM_LABEL)))
    for word in words if table is not None else ():
        name = word.partition("=")[0].partition(".")[0].replace("_", "-")
        is_option = word.startswith("-") and not _NUMBER.fullmatch(word)
        if is_option and not (table is not None and name.startswith("--") and table.has_flag(name[2:])):
            yield word


def _addressed(word: str) -> Iterator[str]:
    """The options and keys in a word whose values are addresses of machines."""
    for piece in _BETWEEN.split(word):
        is_name = piece.startswith("--") or "{" in word
        if is_name and piece != "--host" and re.split("[-_.]", piece.lower())[-1] in _ADDRESSES:
            yield piece
