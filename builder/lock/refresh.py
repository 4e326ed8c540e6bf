"""`builder lock` and `builder lock --update`: resolves what was chosen, writes what changed, tells both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from builder.atomic import staged
from builder.digest import Digest
from builder.errors import BuilderError
from builder.lock.findings import Change, Kind, Problem, problem, raise_for
from builder.lock.seal import is_whole
from builder.lock.selection import Chosen, Lock
from builder.lock.sourcelist import SECTION, Wanted, locked_sources, stale_sources, wanted_sources, with_sources
from builder.model.lock import Source
from builder.model.lockfile import write_section


@dataclass
class Refreshed:
    """changes: what was written. failed: what could not be resolved and stays as it was."""

    changes: list[Change] = field(default_factory=list)
    failed: list[Problem] = field(default_factory=list)


def refresh(
    lock: Lock,
    chosen: Chosen,
    *,
    update: bool,
    keep_going: bool = False,
    say: Callable[[str], None] = lambda text: None,
    done: Refreshed | None = None,
) -> Refreshed:
    """Resolve `chosen` and write what changed; `done` (given to look at after an error) is what is returned.

    update: anew, also what is locked already; else only what is missing or was asked for differently. Without names,
    update looks up the project's pinned bases; bases that are not pinned yet are pinned when they are named. say: told
    what is being done. Bases and sources are all looked up before any of them is written; sections are written one by
    one, as each takes long. Raises what cannot be resolved; with keep_going it is told in the result instead.
    """
    made = done if done is not None else Refreshed()
    # Usage first: nothing is asked of the network for a command line that is wrong.
    bases = _bases(lock, chosen, update)
    sources = _sources(lock, chosen, update)
    _pin(lock, bases, made, keep_going, say)
    _lock_sources(lock, sources, made, keep_going, say)
    for version in chosen.options:
        _table(version, made, keep_going, say)
    _sections(lock, chosen, made, update, keep_going, say)
    return made


def _bases(lock: Lock, chosen: Chosen, update: bool) -> list[str]:
    names = list(chosen.bases)
    if chosen.every:
        names = lock.registry_bases(own=True) if update else []
    pinned = {name for name in names if (pin := lock.project.base(name).pin) and pin.manifest}
    if chosen.every:
        return [name for name in names if name in pinned]
    return names if update else [name for name in names if name not in pinned]


def _sources(lock: Lock, chosen: Chosen, update: bool) -> list[Wanted]:
    wanted = wanted_sources(lock.requests, chosen.sources)
    if not wanted or lock.locks is None:
        return wanted
    section = locked_sources(lock.locks)
    if not is_whole(section):
        # Whoever seals it anew must have looked at all of it.
        return wanted_sources(lock.requests, tuple(lock.requests.sources))
    stale = stale_sources(lock.requests, section)
    return wanted if update else [one for one in wanted if one in stale]


def _pin(lock: Lock, names: Sequence[str], made: Refreshed, keep_going: bool, say: Callable[[str], None]) -> None:
    if not names:
        return
    from builder.lock.bases import Pinned, look_up

    say(f"asking for {names[0] if len(names) == 1 else f'{len(names)} bases'}")
    bases = [(lock.project.base(name), lock.project.base_path(name)) for name in names]
    found = look_up(bases, lock.root)
    _failures("base", names, found, made, keep_going)
    changed = {one.file: one for one in found if isinstance(one, Pinned) and one.text is not None}
    with staged({file: (one.text or "").encode("utf-8") for file, one in changed.items()}) as put:
        for file, pinned in changed.items():
            put(file)
            made.changes += pinned.changes
            if any(change.item == "manifest" and change.old for change in pinned.changes):
                say(f"{pinned.name} is another image now: check what recipes/bases/{pinned.name}.yaml says of it")


def _lock_sources(
    lock: Lock, wanted: Sequence[Wanted], made: Refreshed, keep_going: bool, say: Callable[[str], None]
) -> None:
    if not wanted or lock.locks is None:
        return
    from builder.lock.sources import look_up

    say(f"fetching {'/'.join(wanted[0]) if len(wanted) == 1 else f'{len(wanted)} sources'}")
    old = locked_sources(lock.locks)
    found = look_up(lock.requests, wanted, old.sources)
    _failures("sources", ["/".join(one) for one in wanted], found, made, keep_going)
    good = [one for one in found if isinstance(one, Source)]
    if len(good) < len(found) and not is_whole(old):
        return
    new, changes = with_sources(lock.requests, old, good)
    if new != old:
        write_section(lock.locks / f"{SECTION}.json", new)
        made.changes += changes


def _failures(kind: Kind, names: Sequence[str], found: Sequence[object], made: Refreshed, keep_going: bool) -> None:
    failed = [(name, error) for name, error in zip(names, found, strict=True) if isinstance(error, BuilderError)]
    problems = [problem(kind, name, error) for name, error in failed]
    made.failed += problems
    if keep_going:
        return
    if len(failed) == 1:
        raise failed[0][1]
    raise_for(problems, f"{len(problems)} of {len(names)} cannot be locked; nothing of them was written")


def _table(version: str, made: Refreshed, keep_going: bool, say: Callable[[str], None]) -> None:
    from builder.knowledge.table import load_table
    from builder.lock.tables import update_table
    from builder.store.store import default_root

    say(f"reading the options of vllm {version}")
    old = load_table(version)
    try:
        changed = update_table(version, default_root().parent / "builder-sdists")
    except BuilderError as error:
        if not keep_going:
            raise
        made.failed.append(problem("options", f"vllm=={version}", error))
        return
    if changed is not None:
        before = Digest.from_hex(old.sdist) if old else None
        made.changes.append(Change("options", f"vllm=={version}", "sdist", before, Digest.from_hex(changed.sdist)))


def _sections(
    lock: Lock, chosen: Chosen, made: Refreshed, update: bool, keep_going: bool, say: Callable[[str], None]
) -> None:
    if not chosen.sections or lock.locks is None:
        return
    from builder.lock.sections import update as resolve

    def failed(name: str, error: BuilderError) -> None:
        kind: Kind = "debs" if name in lock.requests.debs else "wheels"
        made.failed.append(problem(kind, name, error))

    resolve(
        lock.locks,
        chosen.sections,
        fresh_too=update,
        started=lambda name: say(f"resolving {name}"),
        changed=made.changes.extend,
        failed=failed if keep_going else None,
    )
