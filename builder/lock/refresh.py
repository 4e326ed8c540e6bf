"""`builder lock` and `--update`: resolves selected bases, sources, option tables and sections; writes changes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from builder.atomic import staged
from builder.errors import BuilderError
from builder.lock.findings import Change, Kind, LockReport, problem, raise_for
from builder.lock.freshness import SECTION, SourceKey, locked_sources, stale_sources
from builder.lock.seal import is_sealed
from builder.lock.selection import LockContext
from builder.model.lock import Source
from builder.model.lockfile import write_section


def refresh(context: LockContext, report: LockReport) -> None:
    """Resolve the selection and write what changed. `report` is filled during the run, so it survives an error.

    Without `context.update` only missing entries and those whose request changed are resolved. Without names an update
    looks up the project's pinned bases; an unpinned base is pinned when it is named. All bases are looked up before one
    is written, and so are all sources; sections are written one by one, as each takes long. Raises the error of what
    cannot be resolved; with `context.keep_going` the report records it instead.
    """
    # Usage errors first: a wrong command line does not use the network.
    bases = _bases(context)
    sources = _sources(context)
    _pin_bases(context, bases, report)
    _lock_sources(context, sources, report)
    for version in context.selection.options:
        _update_table(context, version, report)
    if context.selection.sections and context.locks is not None:
        # Imported here: apt, uv and the package index are needed for sections only.
        from builder.lock.sections import update_sections

        update_sections(context, report)


def _bases(context: LockContext) -> list[str]:
    if context.selection.all:
        return [name for name in context.registry_bases(own=True) if context.is_pinned(name)] if context.update else []
    names = list(context.selection.bases)
    return names if context.update else [name for name in names if not context.is_pinned(name)]


def _sources(context: LockContext) -> list[SourceKey]:
    if not context.selection.sources:
        return []
    # Imported here: HTTP and git are needed for sources only.
    from builder.lock.sources import requested_sources

    wanted = requested_sources(context.requests, context.selection.sources)
    if not wanted or context.locks is None:
        return wanted
    section = locked_sources(context.locks)
    if not is_sealed(section):
        # A new seal covers the whole section, so all of it is looked up.
        return requested_sources(context.requests, tuple(context.requests.sources))
    stale = stale_sources(context.requests, section)
    return wanted if context.update else [key for key in wanted if key in stale]


def _pin_bases(context: LockContext, names: Sequence[str], report: LockReport) -> None:
    if not names:
        return
    # Imported here: the registry client is needed for bases only.
    from builder.lock.bases import Pinned, look_up

    context.say(f"looking up {names[0] if len(names) == 1 else f'{len(names)} bases'}")
    bases = [(context.project.base(name), context.project.base_path(name)) for name in names]
    found = look_up(bases, context.root)
    _record_failures(context, "base", names, found, report)
    changed = {item.file: item for item in found if isinstance(item, Pinned) and item.text is not None}
    with staged({file: (item.text or "").encode("utf-8") for file, item in changed.items()}) as put:
        for file, pinned in changed.items():
            put(file)
            report.changes += pinned.changes
            if any(change.item == "manifest" and change.old for change in pinned.changes):
                context.say(f"{pinned.name} is now another image: check the facts in recipes/bases/{pinned.name}.yaml")


def _lock_sources(context: LockContext, wanted: Sequence[SourceKey], report: LockReport) -> None:
    if not wanted or context.locks is None:
        return
    # Imported here, as in `_sources`.
    from builder.lock.sources import look_up, with_sources

    context.say(f"fetching {'/'.join(wanted[0]) if len(wanted) == 1 else f'{len(wanted)} sources'}")
    old = locked_sources(context.locks)
    found = look_up(context.requests, wanted, old.sources)
    _record_failures(context, "sources", ["/".join(key) for key in wanted], found, report)
    resolved = [item for item in found if isinstance(item, Source)]
    if len(resolved) < len(found) and not is_sealed(old):
        return
    new, changes = with_sources(context.requests, old, resolved)
    if new != old:
        write_section(context.locks / f"{SECTION}.json", new)
        report.changes += changes


def _record_failures(
    context: LockContext, kind: Kind, names: Sequence[str], found: Sequence[object], report: LockReport
) -> None:
    failed = [(name, error) for name, error in zip(names, found, strict=True) if isinstance(error, BuilderError)]
    problems = [problem(kind, name, error) for name, error in failed]
    report.failed += problems
    if context.keep_going:
        return
    if len(failed) == 1:
        raise failed[0][1]
    raise_for(problems, f"{len(problems)} of {len(names)} cannot be locked; none of them was written")


def _update_table(context: LockContext, version: str, report: LockReport) -> None:
    # Imported here: the package index is needed for option tables only.
    from builder.knowledge.sdist import update_table
    from builder.knowledge.table import load_table

    context.say(f"reading the options of vllm {version}")
    old = load_table(version)
    try:
        with tempfile.TemporaryDirectory(prefix="builder-sdist-") as folder:
            changed = update_table(version, Path(folder))
    except BuilderError as error:
        if not context.keep_going:
            raise
        report.failed.append(problem("options", f"vllm=={version}", error))
        return
    if changed is not None:
        before = f"sha256:{old.sdist}" if old else None
        report.changes.append(Change("options", f"vllm=={version}", "sdist", before, f"sha256:{changed.sdist}"))
