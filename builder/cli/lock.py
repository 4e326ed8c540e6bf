"""`builder lock`: resolve, refresh and check the lock."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from builder.errors import PinError, UsageError


def lock(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Sections; all when none.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare with what is requested; no network.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Resolve anew what is locked already.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lock what recipes/locks/requests.yaml asks for: sections that are missing or were asked for differently.

    A name as vllm==0.33.0 reads that version's option table anew from its source distribution.
    """
    if check and update:
        raise UsageError("--check only compares, --update resolves: choose one")
    tables = [name.removeprefix("vllm==") for name in names or () if name.startswith("vllm==")]
    if tables and not check:
        _tables(tables)
        names = [name for name in names or () if not name.startswith("vllm==")]
        if not names:
            return
    if check:
        _check(set(names or ()), json_output)
    else:
        _update(names or [], update, json_output)


def _tables(versions: list[str]) -> None:
    from builder.knowledge.fetch import update_table
    from builder.oci.store import default_root

    for version in versions:
        changed = update_table(version, default_root().parent / "builder-sdists")
        print(f"vllm {version}: option table {'written' if changed else 'unchanged'}")


def locks_folder() -> Path:
    """The folder of the lock: the first on the search path that has requests. Raises UsageError."""
    from builder.lock.check import REQUESTS
    from builder.project import search_path

    for root in search_path():
        if (root / "recipes/locks" / REQUESTS).is_file():
            return root / "recipes/locks"
    raise UsageError(f"there is no recipes/locks/{REQUESTS}", next="run this in a project, or set BUILDER_PROJECT")


def _check(names: set[str], json_output: bool) -> None:
    from builder.lock.check import REQUESTS, requested
    from builder.lock.check import check as find
    from builder.lock.load import load_requests

    folder = locks_folder()
    known = {path.stem for path in folder.glob("*.json")} | set(requested(load_requests(folder / REQUESTS)))
    if unknown := sorted(names - known):
        raise UsageError(f"there is no lock section {unknown[0]!r}")
    problems = [problem for problem in find(folder) if not names or problem.section in names]
    if json_output:
        print(json.dumps([asdict(problem) for problem in problems], indent=1))
    if problems:
        raise PinError(
            f"{len(problems)} of the lock's sections are not what is requested",
            cause="; ".join(f"{problem.section}: {problem.what}" for problem in problems),
            next=" && ".join(dict.fromkeys(problem.next for problem in problems)),
        )


def _update(names: list[str], fresh_too: bool, json_output: bool) -> None:
    from builder.lock.update import update as resolve

    changes = resolve(
        locks_folder(), names, fresh_too=fresh_too, started=lambda name: print(f"resolving {name}", file=sys.stderr)
    )
    if json_output:
        print(json.dumps([asdict(change) for change in changes], indent=1))
        return
    for change in changes:
        print(f"{change.section}  {change.package}  {change.old or '-'} -> {change.new or '-'}")
    if not changes:
        print("nothing changed", file=sys.stderr)
