"""`builder lock --check`: problems of the selection by its files, and with `--remote` by registries and mirrors."""

from __future__ import annotations

from builder.lock.coverage import unmet
from builder.lock.findings import Problem
from builder.lock.freshness import REQUESTS, SECTION, check, requested, stale
from builder.lock.seal import is_own_pin
from builder.lock.selection import LockContext
from builder.model.inputs import Input, from_source
from builder.model.lock import SourceLock
from builder.model.lockfile import load_section


def verify(context: LockContext) -> list[Problem]:
    """The problems of the selection. Uses the network only when `context.remote`.

    An unpinned base is a problem when it is named; without names the number of unpinned bases is only reported, as no
    recipe has to use them. Raises InvalidError for a file that cannot be read.
    """
    problems = _local(context)
    return [*problems, *_remote(context)] if context.remote else problems


def _local(context: LockContext) -> list[Problem]:
    selection = context.selection
    problems = check(context.locks, context.folders) if context.locks else []
    if selection.all:
        problems += _own_sections(context)
        problems += unmet(context.project)
    else:
        sources = set(selection.sources)
        problems = [
            row
            for row in problems
            if row.name in selection.sections
            or (row.kind == "sources" and {row.name, row.name.partition("/")[0]} & sources)
            or (row.name == "sources" and sources)
        ]
    names = context.registry_bases(own=True) if selection.all else selection.bases
    unpinned = [name for name in names if not context.is_pinned(name)]
    if selection.all:
        if unpinned:
            verb = "base is" if len(unpinned) == 1 else "bases are"
            context.say(f"{len(unpinned)} {verb} not pinned: see builder list bases")
    else:
        problems += [Problem("base", name, "is not pinned", f"builder lock --update {name}") for name in unpinned]
    problems += [
        Problem("base", name, "its image or digests were changed since it was pinned", f"builder lock --update {name}")
        for name in names
        if (pin := context.project.base(name).pin) and not is_own_pin(pin)
    ]
    return [*problems, *_options(context)]


def _own_sections(context: LockContext) -> list[Problem]:
    """Problems of the project's own sections when requests.yaml is missing or belongs to another project."""
    requests = requested(context.requests)
    problems = []
    for path in [] if context.is_own else sorted((context.root / "recipes/locks").glob("*.json")):
        request = requests.get(path.stem)
        if request is not None and (what := stale(load_section(path), request, {})):
            problems.append(Problem("section", path.stem, what, f"builder lock --update {path.stem}"))
        elif request is None and path.stem != SECTION:
            advice = f"request it in recipes/locks/{REQUESTS}, or remove {path.name}"
            problems.append(Problem("section", path.stem, f"no {REQUESTS} requests it", advice))
    return problems


def _options(context: LockContext) -> list[Problem]:
    if not context.selection.options:
        return []
    # Imported here: a check without option tables starts faster.
    from builder.knowledge.table import load_table

    problems = []
    for version in context.selection.options:
        if load_table(version) is None:
            command = f"builder lock --update vllm=={version}"
            problems.append(Problem("options", f"vllm=={version}", "has no option table", command))
    return problems


def _remote(context: LockContext) -> list[Problem]:
    """Selected pinned bases and locked sources that are gone or unreachable; without names, those of the project."""
    # Imported here: a local check needs no HTTP.
    from builder.lock.availability import check_bases, check_sources

    names = context.registry_bases(own=True) if context.selection.all else context.selection.bases
    bases = check_bases([context.project.base(name) for name in names if context.is_pinned(name)])
    sources = check_sources(_locked_sources(context))
    for text in sources.warnings:
        context.say(f"warning: {text}")
    context.say(f"requested {bases.count} manifests from registries and {sources.count} files from mirrors")
    return [*bases.problems, *sources.problems]


def _locked_sources(context: LockContext) -> list[Input]:

    section = context.project.section(SECTION) if context.project.has_section(SECTION) else None
    if not isinstance(section, SourceLock):
        return []
    named = set(context.selection.sources)
    all = (context.selection.all and context.owns(SECTION)) or SECTION in named
    return [
        from_source(source, section.locked)
        for source in section.sources
        if all or {source.name, f"{source.name}/{source.version}"} & named
    ]
