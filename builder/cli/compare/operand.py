"""The two sides of `builder diff`: what a word of the command line names."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from builder.cli.image.given import image_reference, refuse_ambiguous
from builder.cli.request import asked
from builder.digest import Digest, is_digest
from builder.errors import BuilderError, InvalidError, UsageError
from builder.model.reference import is_host
from builder.oci.manifest import MANIFEST_LIMIT
from builder.plan.bundle import LIMIT, read_bundle
from builder.plan.diff import CommitOf, Contents, lock_contents, plan_contents
from builder.project import Project
from builder.regular import open_regular, read_regular
from builder.smoke.image.opened import LayerBlob, OpenedImage, open_image
from builder.smoke.image.remote import remote_image
from builder.store.store import Store
from builder.verify.revision import files_at, write_files


@dataclass(frozen=True)
class Operand:
    """One side: exactly one of the three is given. name: as the user wrote it."""

    name: str
    contents: Contents | None = None
    image: OpenedImage | None = None
    layer: LayerBlob | None = None


def find_operand(text: str, project: Project, store: Store) -> Operand:
    """What a word names: the first of these that fits.

    RECIPE[@BASE] of the project; REVISION:[RECIPE[@BASE]] of its git repository, a whole lock without a recipe; a
    sha256 digest of an image or layer of the store; oci:DIR; the file of a bundle or of a layer; an image in a
    registry. Raises BuilderError.
    """
    commit_of = commits(project)
    if text.partition("@")[0] in project.recipe_names():
        return Operand(text, _plan(text, project, commit_of))
    if is_digest(text):
        return _stored(Digest(text), store)
    path = Path(text.removeprefix("oci:"))
    if os.path.exists(text):  # noqa: PTH110
        refuse_ambiguous(text)
    # Methods of Path raise for a name that is too long.
    if text.startswith("oci:") or os.path.isdir(path):  # noqa: PTH112
        return Operand(text, image=open_image(path))
    if os.path.exists(path):  # noqa: PTH110
        return _file(path, commit_of)
    revision, colon, rest = text.rpartition(":")
    if colon and "/" not in rest:
        with project_at(project, revision) as older:
            if older is not None:
                refuse_registry(text)
                return Operand(text, _at(older, text, rest))
        if "/" not in revision and (not rest or rest.partition("@")[0] in project.recipe_names()):
            raise unknown_revision(revision, project)
    return Operand(text, image=remote_image(image_reference(text, project.recipe_names())))


def refuse_registry(text: str) -> None:
    """Raises UsageError for the name of a revision that also names a registry: a stranger's clone brings any tags."""
    first, slash, _ = text.partition("/")
    if slash and is_host(first):
        raise UsageError(
            "both a revision of the project and an image in a registry",
            id="revision-ambiguous",
            where=text,
            next="name the revision by its commit, or change the folder",
        )


def unknown_revision(revision: str, project: Project) -> UsageError:
    """The error for a revision that is not in the project's repository."""
    return UsageError(
        f"git knows no revision {revision[:100]!r} of the project",
        id="revision-unknown",
        where=str(project.roots[0]),
        cause="the project is in no git repository, git is missing, or the name is wrong",
        next=f"git -C {shlex.quote(str(project.roots[0]))} log --oneline",
    )


@contextmanager
def project_at(project: Project, revision: str) -> Iterator[Project | None]:
    """The project as it was at a revision of its git repository, in a temporary folder; None when git has none.

    revision: "" is the project as it is now.
    """
    if not revision:
        yield project
        return
    files = files_at(project.roots[0], revision)
    if files is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        write_files(files, Path(folder), f"{project.roots[0]} at {revision}")
        try:
            yield Project((Path(folder), *project.roots[1:]))
        except BuilderError as error:
            # A folder that is gone when the message is read says nothing.
            raise error.replaced(where=error.where.replace(folder, revision)) from error


def commits(project: Project) -> CommitOf:
    """The commits of the sources that a project has locked."""
    found = {key: source.commit for key, (source, _) in project.sources.items()}
    return lambda name, version: found.get((name, version))


def _plan(text: str, project: Project, commit_of: CommitOf) -> Contents:
    recipe, _, base = text.partition("@")
    return plan_contents(asked(project, recipe, base or None).plan(project), commit_of)


def _at(project: Project, text: str, rest: str) -> Contents:
    if rest:
        return replace(_plan(rest, project, commits(project)), name=text)
    return lock_contents(f"lock {text}", [project.section(name) for name in project.section_names()])


def _stored(digest: Digest, store: Store) -> Operand:
    """An image or a layer of the store: a manifest is small and begins with a brace."""
    path = store.blob(digest)
    if not store.has(digest):
        raise UsageError(
            f"{digest} is not in the store",
            id="diff-digest-unknown",
            where=str(store.root),
            next="name an image by its reference, or build it",
        )
    with open_regular(path) as file:
        small = path.stat().st_size <= MANIFEST_LIMIT and file.read(1) == b"{"
    if small:
        return Operand(digest, image=open_image(store.root, digest))
    return Operand(digest, layer=LayerBlob(digest, path.stat().st_size, path))


def _file(path: Path, commit_of: CommitOf) -> Operand:
    try:
        with open_regular(path, follow=True) as file:
            first = file.read(1)
        if first == b"{":
            plan = read_bundle(read_regular(path, LIMIT, follow=True), str(path))
            return Operand(str(path), plan_contents(plan, commit_of))
        size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", id="diff-file-unreadable", where=str(path)) from None
    if not size:
        raise InvalidError("neither a bundle nor a layer: it is empty", id="diff-file-empty", where=str(path))
    # The digest is only its name in messages.
    return Operand(str(path), layer=LayerBlob(Digest.from_hex("0" * 64), size, path))
