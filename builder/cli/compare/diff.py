"""`builder diff`: what changed between two images, layers, plans, recipes or lock revisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated

import typer

from builder.cli.compare.operand import Operand, commits, find_operand
from builder.cli.compare.summary import file_counts, summary
from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line, say, size
from builder.cli.request import open_store
from builder.errors import ExitCode, UsageError
from builder.plan.diff import Change, CommitOf, Contents, details, differences
from builder.project import Project
from builder.smoke.image.index import LayerIndex
from builder.store.store import Store
from builder.text import one_line
from builder.verify.blame import diffoscope, examined
from builder.verify.cause import Finding
from builder.verify.contents import (
    ReadImage,
    bytes_to_read,
    differing_in,
    image_contents,
    read_both,
    read_versions,
    store_listing,
)
from builder.verify.elfdiff import Budget
from builder.verify.files import FileDifference, differing_files, read_layer

_LONG = 50_000_000
"""Bytes that take so long to read that the user is told."""
_EXAMINED = 10
"""Files whose content is compared."""


@dataclass(frozen=True)
class _Compared:
    """files: None when the two have none that can be compared. findings: for the first files with other content."""

    old: Contents
    new: Contents
    changes: Sequence[Change] = ()
    files: Sequence[FileDifference] | None = None
    findings: Sequence[Finding] = ()
    deeper: str = ""


def diff(
    old: Annotated[str, typer.Argument(metavar="A", help="RECIPE[@BASE], REVISION:[RECIPE[@BASE]], or an image.")],
    new: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    all_: Annotated[
        bool, typer.Option("--details", help="Print every difference; compare the content of the first files.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Show what changed between A and B: exit status 0 when nothing differs, 8 when they differ.

    Each is one of: a recipe of the project; a recipe or the whole lock at a revision of the project's git repository;
    a bundle; an image in a registry, oci:DIR, or the digest of an image or layer in the store; a file with a layer.
    Recipes and bundles are compared as plans: nothing is built, downloaded or read.
    """
    project, store = Project(), open_store()
    sides = find_operand(old, project, store), find_operand(new, project, store)
    found = _compare(*sides, store, commits(project), deep=all_ or json_, text=not json_)
    if json_:
        print_json(_json(found))
    else:
        for line in _lines(found, every=all_):
            print_line(one_line(line), hang=6)
    if found.changes or found.files:
        raise typer.Exit(ExitCode.DIFFERS)


def _compare(old: Operand, new: Operand, store: Store, commit_of: CommitOf, *, deep: bool, text: bool) -> _Compared:
    if old.layer is not None and new.layer is not None:
        first, second = read_layer(old.layer), read_layer(new.layer)
        files = list(differing_files(first, second, ("the first", "the second")))
        names = _layer_contents(old.name, first), _layer_contents(new.name, second)
        paths = [file.path for file in files if file.in_content][:_EXAMINED] if deep else []
        findings = list(examined(first, second, paths))
        deeper = diffoscope(first, second, paths[0]) if text and paths else ""
        # Values of extended attributes and numbers of devices, for example, are no fields of an entry.
        return _Compared(*names, () if files else differences(*names), files, findings, deeper)
    if old.image is not None and new.image is not None:
        if (count := bytes_to_read(old.image, new.image)) > _LONG:
            say(f"reads {size(count)}: the layers that are not in both")
        one, other = read_both(old.image, new.image, store_listing(store))
        names = image_contents(old.name, one, commit_of), image_contents(new.name, other, commit_of)
        files = differing_in(one, other)
        paths = [file.path for file in files if file.in_content] if deep else []
        # Programs and libraries first: a text explains itself.
        paths = sorted(paths, key=lambda path: one.entries[path].machine is None)[:_EXAMINED]
        findings = list(_findings(one, other, paths))
        deeper = ""
        if text and paths:
            deeper = diffoscope(one.layer_of(paths[0]), other.layer_of(paths[0]), paths[0])
        return _Compared(*names, differences(*names), [file for file in files if not file.only_time], findings, deeper)
    first_of, second_of = (_contents(side, store, commit_of) for side in (old, new))
    if first_of is None or second_of is None or "lock" in {first_of.of, second_of.of} != {"lock"}:
        raise UsageError(
            "the two are not of one kind",
            id="diff-kinds-differ",
            where=f"{old.name}, {new.name}",
            cause="a layer is compared with a layer, a lock with a lock, an image or plan with an image or plan",
        )
    if first_of.of != second_of.of and (first_of.vendor or second_of.vendor):
        raise UsageError(
            "a plan on a vendor's base does not say what its base holds",
            id="diff-base-unknown",
            where=old.name if first_of.vendor else new.name,
            next="compare two images, or two plans",
        )
    return _Compared(first_of, second_of, differences(first_of, second_of))


def _layer_contents(name: str, layer: LayerIndex) -> Contents:
    return Contents(name, "layer", {}, layer.blob.size, identity=str(layer.diff_id))


def _contents(side: Operand, store: Store, commit_of: CommitOf) -> Contents | None:
    """The account of a plan, or of an image that is compared with a plan."""
    if side.image is None:
        return side.contents
    return image_contents(side.name, read_versions(side.image, store_listing(store)), commit_of)


def _findings(old: ReadImage, new: ReadImage, paths: Sequence[str]) -> Iterator[Finding]:
    """Compare the contents of files; those of one pair of layers in one pass."""

    def pair(path: str) -> tuple[int, int]:
        return old.layer_of(path).number, new.layer_of(path).number

    budget = Budget()
    for _, group in groupby(sorted(paths, key=lambda path: (*pair(path), path)), pair):
        together = list(group)
        yield from examined(old.layer_of(together[0]), new.layer_of(together[0]), together, budget)


def _lines(found: _Compared, *, every: bool) -> Iterator[str]:
    yield from summary(found.old, found.new, found.changes, _counted(found.files))
    if not every:
        return
    yield ""
    yield from details(found.changes)
    for file in found.files or ():
        yield f"~ file {file}"
    for finding in found.findings:
        yield str(finding)
        yield from (f"    {line}" for line in finding.details)
    yield from found.deeper.splitlines()


def _counted(files: Sequence[FileDifference] | None) -> str | None:
    if files is None:
        return None
    gone = sum(file.aspects == ("only in the first",) for file in files)
    new = sum(file.aspects == ("only in the second",) for file in files)
    return file_counts(len(files) - gone - new, new, gone)


def _json(found: _Compared) -> dict[str, object]:
    return {
        "old": {"name": found.old.name, "size": found.old.size},
        "new": {"name": found.new.name, "size": found.new.size},
        "differs": bool(found.changes or found.files),
        "changes": [asdict(change) for change in found.changes],
        "files": [asdict(file) for file in found.files] if found.files is not None else None,
        "findings": [asdict(finding) for finding in found.findings],
    }
