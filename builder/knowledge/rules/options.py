"""Rules about environment variables, options and values that the vLLM version of the base must have."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

from packaging.version import Version

from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject, option_problem
from builder.knowledge.table import Table
from builder.versions import python_version


@rule(
    "GB10-020",
    "Only environment variables that the vLLM version reads",
    severity="error",
    scope="VLLM_* in layers, `env` and `run.env`, on bases with an option table; TRITON_PTXAS_PATH from Triton 3.6 on",
    why="vLLM logs `Unknown vLLM environment variable` and ignores it; Triton 3.6 calls another ptxas for this GPU.",
    fix="remove the variable; since 0.24 options select backends (--moe-backend, --linear-backend)",
    source="option tables",
)
def known_variables(s: Subject) -> Found:
    ptxas = "TRITON_PTXAS_PATH"
    if python_version(s.base.triton) >= Version("3.6") and ptxas in {**s.recipe.env, **s.recipe.run.env}:
        message = f"Triton {s.base.triton} ignores {ptxas} for this GPU and uses TRITON_PTXAS_BLACKWELL_PATH"
        yield Problem(message, _set_by(s, ptxas))
    if s.table is None:
        return
    for name in s.env:
        if name.startswith("VLLM_") and name not in s.table.env:
            yield Problem(f"vLLM {s.table.vllm} does not read {name}{_close(name, s.table.env)}", _set_by(s, name))


def _set_by(s: Subject, name: str) -> tuple[str, ...]:
    if name in s.recipe.run.env:
        return ("run", "env", name)
    return ("env", name) if name in s.recipe.env else ("layers",)


@rule(
    "GB10-021",
    "Only options and values that the vLLM version has",
    severity="error",
    scope="the serving command, on bases with an option table",
    why="The server does not start, or the option has another meaning.",
    fix="use the closest option or value of that version",
    source="option tables",
)
def known_options(s: Subject) -> Found:
    table = s.table
    if table is None:
        return
    for name, value in s.flags.items():
        if name == "speculative-disable-by-batch-size":
            continue
        if not table.has_flag(name):
            yield option_problem(name, f"vLLM {table.vllm} has no option --{name}{_close(name, table.flags)}")
        elif value is False and table.flags.get(name) != "toggle":
            yield option_problem(name, f"vLLM {table.vllm} has no option --no-{name}")
        elif isinstance(value, str) and (name in table.json_keys or value.lstrip().startswith("{")) and _no_json(value):
            yield option_problem(name, f"--{name} {value} is not JSON: write it as a mapping")
        elif isinstance(value, str) and not _plugged(s, name) and not table.accepts(name, value):
            yield option_problem(
                name, f"vLLM {table.vllm}: --{name} does not accept {value}{_close(value, table.choices[name])}"
            )
        elif isinstance(value, bool) and table.flags.get(name) == "value":
            yield option_problem(name, f"vLLM {table.vllm}: --{name} needs a value")
        elif isinstance(value, dict):
            for key in value:
                if name in table.json_keys and key not in table.json_keys[name]:
                    yield option_problem(
                        name, f"vLLM {table.vllm}: {name} has no key {key}{_close(key, table.json_keys[name])}"
                    )
    yield from _speculation(s, table)


def _no_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _speculation(s: Subject, table: Table) -> Found:
    method = s.speculation.get("method")
    if method is not None and method != "suffix" and method not in table.speculative_methods:
        yield option_problem("speculative-config", f"vLLM {table.vllm} has no speculative method {method}")
    backend = s.speculation.get("moe_backend")
    if backend is not None and not table.accepts("moe-backend", str(backend)):
        yield option_problem("speculative-config", f"vLLM {table.vllm} has no MoE backend {backend}")


def _plugged(s: Subject, name: str) -> bool:
    """Whether a plugin may add values of this option."""
    plugins = {"reasoning-parser": "reasoning-parser-plugin", "tool-call-parser": "tool-parser-plugin"}
    return plugins.get(name) in s.flags


@rule(
    "GB10-022",
    "The vLLM version has no option table",
    severity="note",
    scope="bases with vLLM before 0.18.1, with a nightly build, or with an unknown version",
    why="Environment variables and options cannot be checked: this note replaces a silent pass.",
    fix="run `builder lock --update vllm==VERSION` once the version is known",
    source="option tables",
)
def no_table(s: Subject) -> Found:
    if s.table is None:
        version = f"vLLM {s.base.vllm}" if s.base.vllm else "an unknown version of vLLM"
        yield Problem(f"options are not checked: there is no option table for {version}", ("base",))


def _close(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; it has {found[0]}" if found else ""
