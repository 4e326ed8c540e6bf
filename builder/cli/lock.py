"""`builder lock`: resolve, refresh and check the lock."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.options import JsonOption, print_json, say
from builder.digest import Digest, is_digest
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.lock.findings import Change
    from builder.lock.refresh import Refreshed
    from builder.lock.selection import Chosen, Lock


def lock(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Bases, sections, sources (NAME or NAME/VERSION), vllm==VERSION; all bases, sections, sources.",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare with what is requested; no network.")] = False,
    remote: Annotated[
        bool, typer.Option("--remote", help="With --check: also ask registries and mirrors for what is pinned.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Resolve anew what is locked already.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave what cannot be resolved as it is, and go on with the others.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Lock what recipes/locks/requests.yaml asks for, and pin bases to digests.

    Alone it resolves what is missing or was asked for differently; with names, only these. --update resolves what is
    locked already as well: without names all sections, all sources and those bases of the project that are pinned. A
    base that is not pinned yet is pinned by naming it. What changed is printed, old and new.
    """
    from builder.lock.selection import Lock
    from builder.project import Project

    if check and (update or keep_going):
        raise UsageError("--check only compares, --update and --keep-going are for resolving: choose one")
    if remote and not check:
        raise UsageError("--remote goes with --check", next="builder lock --check --remote")
    everything = Lock(Project(), writing=not check)
    chosen = everything.choose(names or ())
    if check:
        _check(everything, chosen, remote, json_)
    else:
        _refresh(everything, chosen, update, keep_going, json_)


def _check(lock: Lock, chosen: Chosen, remote: bool, json_: bool) -> None:
    from builder.lock.findings import raise_for
    from builder.lock.verify import local_problems, remote_problems

    problems = local_problems(lock, chosen, say)
    what = "of what is locked is not as requested"
    if remote:
        problems += remote_problems(lock, chosen, say)
        what = "of what is locked is not as requested, gone or out of reach"
    if json_:
        print_json([asdict(problem) for problem in problems])
    raise_for(problems, f"{len({problem.name for problem in problems})} {what}")


def _refresh(lock: Lock, chosen: Chosen, update: bool, keep_going: bool, json_: bool) -> None:
    from builder.lock.findings import raise_for
    from builder.lock.refresh import Refreshed, refresh

    made = Refreshed()
    try:
        refresh(lock, chosen, update=update, keep_going=keep_going, say=say, done=made)
    except BaseException:
        if made.changes or (json_ and made.failed):  # changes were written
            _tell(made, json_)
        raise
    _tell(made, json_)
    if not made.changes and not made.failed:
        say("nothing changed")
    raise_for(made.failed, f"{len(made.failed)} could not be resolved and stay as they were")


def _tell(made: Refreshed, json_: bool) -> None:
    if json_:
        changes = [asdict(change) for change in made.changes]
        print_json({"changes": changes, "failed": [asdict(problem) for problem in made.failed]})
    elif made.changes:
        _print(made.changes)


def _print(changes: list[Change]) -> None:
    from builder.cli.recipe.listing import print_table

    rows = [{**asdict(change), "old": _short(change.old), "new": _short(change.new)} for change in changes]
    print_table(rows, ("name", "item", "old", "new"))


def _short(text: str | None) -> str | None:
    """A digest or commit in a length that people compare; JSON has the whole."""
    if text is None:
        return None
    if is_digest(text):
        return f"sha256:{Digest(text).hex[:16]}…"
    is_hex = len(text) in (40, 64) and all(letter in "0123456789abcdef" for letter in text)
    return text[:16] + "…" if is_hex else text
