"""`builder lock`: resolve, update and check the lock, and pin bases."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_table, say
from builder.digest import Digest, is_digest
from builder.errors import UsageError
from builder.folders import search_path
from builder.lock.findings import Change, LockReport, raise_for
from builder.lock.refresh import refresh
from builder.lock.selection import LockContext, alone
from builder.lock.verify import verify
from builder.project import Project


def lock(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Bases, sections, sources (NAME or NAME/VERSION), vllm==VERSION; or bases, sections, sources for all.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only compare the lock with its requests; use no network.")
    ] = False,
    remote: Annotated[
        bool, typer.Option("--remote", help="With --check: also query registries and mirrors for every locked entry.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Resolve again what is locked already.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on when an entry cannot be resolved; that entry stays unchanged.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Lock everything that recipes/locks/requests.yaml requests, and pin bases to digests.

    Without options, resolve entries that are missing or whose request changed; with names, only these entries.
    --update also resolves entries that are locked already: without names all sections, all sources and all pinned
    bases of the project. To pin a base for the first time, name it. Each change is printed with its old and new value.
    """
    if check and (update or keep_going):
        raise UsageError("--check excludes --update and --keep-going", id="lock-options-conflict")
    if remote and not check:
        raise UsageError("--remote needs --check", id="lock-remote-without-check", next="builder lock --check --remote")
    with contextlib.nullcontext() if check else alone(search_path()[0], say):
        context = LockContext(
            Project(), names or (), writing=not check, update=update, keep_going=keep_going, remote=remote, say=say
        )
        if check:
            _check(context, json_)
        else:
            _refresh(context, json_)


def _check(context: LockContext, json_: bool) -> None:
    problems = verify(context)
    if json_:
        print_json([asdict(problem) for problem in problems])
    count = len({problem.name for problem in problems})
    if count == 1:
        what, remote = "1 locked entry does not match its request", ", is gone or cannot be reached"
    else:
        what, remote = f"{count} locked entries do not match their requests", ", are gone or cannot be reached"
    raise_for(problems, what + remote if context.remote else what)


def _refresh(context: LockContext, json_: bool) -> None:
    done = LockReport()
    try:
        refresh(context, done)
    except BaseException:
        # These changes are in the files already.
        if done.changes or (json_ and done.failed):
            _print(done, json_)
        raise
    _print(done, json_)
    if not done.changes and not done.failed:
        say("nothing changed")
    entries = "1 entry" if len(done.failed) == 1 else f"{len(done.failed)} entries"
    raise_for(done.failed, f"could not resolve {entries}; the lock keeps the old values")


def _print(done: LockReport, json_: bool) -> None:
    if json_:
        changes = [asdict(change) for change in done.changes]
        print_json({"changes": changes, "failed": [asdict(problem) for problem in done.failed]})
    elif done.changes:
        print_table([_row(change) for change in done.changes], ("name", "item", "old", "new"))


def _row(change: Change) -> dict[str, object]:
    return {**asdict(change), "old": _short(change.old), "new": _short(change.new)}


def _short(text: str | None) -> str | None:
    """The first 16 digits of a digest or commit, which are enough to compare; --json prints all."""
    if text is None:
        return None
    if is_digest(text):
        return f"sha256:{Digest(text).hex[:16]}…"
    is_hex = len(text) in (40, 64) and all(digit in "0123456789abcdef" for digit in text)
    return text[:16] + "…" if is_hex else text
