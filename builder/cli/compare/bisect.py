"""`builder bisect`: which change of an image makes a command fail."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.compare.operand import project_at, refuse_registry
from builder.cli.image.build_one import BuildRequest, build_one
from builder.cli.image.built import image_name
from builder.cli.image.given import given_plan
from builder.cli.options import (
    BaseOption,
    BuilderOption,
    EngineOption,
    JobsOption,
    JsonOption,
    MirrorOption,
    OfflineOption,
    ProfileOption,
    SetOption,
    TrustOption,
)
from builder.cli.output import counted, print_json, say, size
from builder.cli.progress import Progress
from builder.cli.request import PlanRequest, asked, open_store
from builder.engine.process import foreground
from builder.engine.select import check_engine
from builder.errors import BuilderError, InvalidError, UsageError
from builder.mirror.source import MirrorSource, mirror_source
from builder.model.plan import Plan
from builder.project import Project
from builder.store.store import Store
from builder.text import printable
from builder.verify.bisect import Found, Group, groups_of, images_needed, search
from builder.verify.hybrid import Change, changes, hybrid, packages
from builder.verify.rebuild import fetch_inputs
from builder.verify.requirements import implied

_SHOWN = 8
_CANNOT_TELL = 125
_NOT_RUN = 126
"""Exit statuses of COMMAND, as for `git bisect run`: 0 good, 125 cannot tell, up to 127 bad, but 126 and 127 (not
executable, not found) and signals end the search."""


def bisect(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="Exit status 0 for a good image.")],
    good: Annotated[str, typer.Option("--good", help="What worked: a revision of the project, or a bundle or image.")],
    bad: Annotated[str, typer.Option("--bad", help="What does not work; HEAD is the last commit.")],
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="The recipe, for revisions.")] = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    trust_plan: TrustOption = False,
    engine: EngineOption = None,
    builder: BuilderOption = None,
    jobs: JobsOption = None,
    load: Annotated[bool, typer.Option("--load", help="Load each image into docker before COMMAND runs.")] = False,
    offline: OfflineOption = False,
    mirror: MirrorOption = None,
    json_: JsonOption = False,
) -> None:
    """Find the smallest change between two images that makes COMMAND fail.

    Builds images with a part of the changed packages, wheels, layers and variables, and runs COMMAND for each of them,
    with BUILDER_IMAGE set to its digest, or to its name in docker with --load. Exit status 0 is a good image, 125 one
    that cannot be judged, 1 to 124 a bad one. Layers that are in the store are not built again.
    """
    check_engine(engine, builder)
    store, project, source = open_store(), Project(), mirror_source(mirror)
    request = None
    if recipe is not None:
        request = asked(project, recipe, base, set_, profile)
    elif base or set_ or profile:
        raise UsageError("--base, --set and --profile belong to --recipe", id="bisect-recipe-missing")
    first, second = (
        _plan(text, request, project, store, trusted=trust_plan, offline=offline, source=source) for text in (good, bad)
    )
    found = changes(first, second)
    if not found:
        raise UsageError(f"{good} and {bad} make the same image", id="bisect-nothing-changed")
    needs = _needs(first, second, found, store, offline=offline, source=source)
    groups = groups_of(found, needs)
    sections = len({change.section for change in found})
    say(
        f"{counted(len(found), 'change')} in {counted(sections, 'section')}; "
        f"about {counted(images_needed(len(groups)), 'image')} to build"
    )
    how = BuildRequest(engine, builder, offline, source, jobs, False, None, load, None, True, named=False)
    judge = _Judge(first, second, store, how, command)
    result = search(groups, needs, judge)
    if result is None:
        word, name = ("bad", good) if judge.results[-1] else ("good", bad)
        raise UsageError(
            f"{name} is {word} as well: every image is",
            id="bisect-ends-alike",
            cause="COMMAND judges something else, or needs a machine or a model that is not there",
        )
    _report(result, judge, json=json_)


class _Judge:
    """Builds images and runs the command. results: of the images so far, in order."""

    def __init__(self, good: Plan, bad: Plan, store: Store, how: BuildRequest, command: Sequence[str]) -> None:
        self.results: list[bool | None] = []
        self._good, self._bad, self._store, self._how, self._command = good, bad, store, how, command

    def __call__(self, made: Collection[Change]) -> bool | None:
        say(f"image {len(self.results) + 1}, with {counted(len(made), 'change')}:")
        for change in sorted(made)[:_SHOWN]:
            say(f"  {change}")
        if len(made) > _SHOWN:
            say(f"  and {len(made) - _SHOWN} more")
        result = self._judge(made)
        self.results.append(result)
        say({True: "bad", False: "good", None: "cannot be judged"}[result])
        return result

    def _judge(self, made: Collection[Change]) -> bool | None:
        try:
            built = build_one(self._store, hybrid(self._good, self._bad, made), self._how).built
        except BuilderError as error:
            # Two packages with the same file, or a source that this compiler does not take.
            if isinstance(error, InvalidError) or error.id in ("engine-build-failed", "lock-file-ambiguous"):
                say(str(error))
                return None
            raise
        name = image_name(built) if self._how.load else built.image.digest
        try:
            status = foreground(self._command, env={**os.environ, "BUILDER_IMAGE": name})
        except OSError as error:
            status, text = _NOT_RUN, error.strerror
        else:
            text = f"exit status {status}"
        if status in (0, _CANNOT_TELL):
            return None if status else False
        if 0 < status < _CANNOT_TELL:
            return True
        raise UsageError(
            f"{self._command[0]} did not run to its end: {text}", id="bisect-command-failed", where=f"image {name}"
        )


def _plan(
    text: str,
    request: PlanRequest | None,
    project: Project,
    store: Store,
    *,
    trusted: bool,
    offline: bool,
    source: MirrorSource | None,
) -> Plan:
    """The plan of a revision of the project, of a bundle, or of an image in a registry."""
    if not Path(text).is_file():
        with project_at(project, text.removesuffix(":")) as older:
            if older is not None:
                refuse_registry(text)
                if request is None:
                    raise UsageError(
                        f"{text} is a revision: of which recipe?", id="bisect-recipe-not-given", next="--recipe NAME"
                    )
                return request.plan(older)
    return given_plan(text, store, trusted=trusted, offline=offline, source=source)[0]


def _needs(
    good: Plan, bad: Plan, found: Sequence[Change], store: Store, *, offline: bool, source: MirrorSource | None
) -> dict[Change, frozenset[Change]]:
    """Which changes need which others. Downloads the packages that differ: their metadata says it."""
    changed = {(change.kind, change.name) for change in found}
    wanted = {
        item.digest: item
        for plan in (good, bad)
        for key, items in packages(plan).items()
        if key in changed
        for item in items
        if not store.has(item.digest)
    }
    if wanted:
        say(f"{size(sum(item.size for item in wanted.values()))} to download: the packages that differ")
        with Progress() as progress:
            fetch_inputs(store, list(wanted.values()), offline=offline, listener=progress.on_event, source=source)
    return implied(good, bad, found, store)


def _report(result: Found, judge: _Judge, *, json: bool) -> None:
    """Print the changes that turn the image."""
    groups = [*result.together, *((sum(result.either, ()),) if result.either else ())]
    if json:
        print_json(
            {
                "together": [[asdict(change) for change in group] for group in result.together],
                "either": [[asdict(change) for change in group] for group in result.either],
                "images": len(judge.results),
            }
        )
    else:
        for group in groups:
            print(printable(_text(group, one_of=bool(result.either) and group is groups[-1])))
    if len(groups) > 1:
        say(f"the image is bad only with all {len(groups)} of these")
    say(f"{counted(len(judge.results), 'image')} judged")


def _text(group: Group, *, one_of: bool) -> str:
    text = ", ".join(map(str, group))
    return f"one of: {text}" if one_of else text
