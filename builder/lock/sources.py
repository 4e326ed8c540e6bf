"""Locks source archives: the tag's commit and tree from git, and the same archive from every mirror; or the source
distribution of a project in a package index."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from builder.digest import Digest
from builder.errors import BuilderError, NetworkError, PinError, UsageError
from builder.inputs.candidates import Hosts, candidates, file_address, machine_hosts
from builder.inputs.fetch import new_session
from builder.inputs.index import project_files
from builder.inputs.mirrors import redact
from builder.inputs.transfer import Reason, TransferError, save
from builder.lock.findings import Change
from builder.lock.freshness import UNREQUESTED, SourceKey, archive_name, stale_sources
from builder.lock.git import read_tag, tree_of_archive
from builder.lock.seal import is_sealed, sealed
from builder.model.inputs import Input, from_source
from builder.model.lock import LockRequests, Source, SourceLock, SourceRequest
from builder.parallel import each

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage


@dataclass(frozen=True)
class Answer:
    """The archive that one mirror serves; `failed` when it serves none. size in bytes."""

    address: str
    sha256: str = ""
    size: int = 0
    failed: TransferError | None = None


def look_up(
    requests: LockRequests, wanted: Sequence[SourceKey], locked: Sequence[Source], hosts: Hosts | None = None
) -> list[Source | BuilderError]:
    """The current commit, tree and archive of each source in `wanted`, in order; nothing is written.

    hosts: replaces the configuration of this machine. Every mirror that answers must serve the same archive, and the
    archive must hold exactly the tree of the tag's commit. A mirror that does not answer is kept only when the archive
    still is the locked one. Errors are in the result: PinError (vanished, another tree, different archives),
    NetworkError (no answer), UsageError (no git).
    """
    known = hosts or machine_hosts({"source"})
    before = {(source.name, source.version): source for source in locked}
    cancel = Event()

    @contextlib.contextmanager
    def stopping() -> Iterator[None]:
        cancel.set()
        yield

    # Of this thread: a thread that waits for a silent mirror would never remove its own.
    with tempfile.TemporaryDirectory(prefix="builder-source-", ignore_cleanup_errors=True) as root:

        def find(key: SourceKey) -> Source:
            folder = Path(tempfile.mkdtemp(dir=root))
            try:
                return _look_up(key, requests.sources[key[0]], before.get(key), known, folder, cancel)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return each(find, wanted, BuilderError, 8, stopping)


def _look_up(
    wanted: SourceKey, request: SourceRequest, before: Source | None, hosts: Hosts, folder: Path, cancel: Event
) -> Source:
    name, version = wanted
    where = f"{name}/{version}"
    if request.index is not None:
        return _source_distribution(name, version, request, hosts, folder)
    commit, tree = read_tag(f"{hosts.github}/{request.github}.git", request.tag_of(version), folder / "git", cancel)
    mirrors = request.mirrors_of(version)
    path = folder / archive_name(name, version)
    draft = Source(
        name=name, version=version, file=path.name, sha256="0" * 64, size=0, commit=commit, tree=tree,
        mirrors=mirrors,
    )  # fmt: skip
    answers = _answers(from_source(draft, "1970-01-01T00:00:00Z"), hosts, path)
    good = [answer for answer in answers if answer.failed is None]
    details = "; ".join(
        f"{redact(answer.address)}: {answer.failed or Digest.from_hex(answer.sha256)}" for answer in answers
    )
    if not good:
        if all(answer.failed and answer.failed.reason is Reason.GONE for answer in answers):
            raise PinError(f"{where}: no mirror has its archive", id="source-archive-gone", cause=details)
        raise NetworkError(f"{where}: no mirror serves its archive", id="source-archive-unreachable", cause=details)
    if len({answer.sha256 for answer in good}) > 1:
        raise PinError(f"{where}: its mirrors serve different archives", id="source-mirrors-differ", cause=details)
    found = draft.model_copy(update={"sha256": good[0].sha256, "size": good[0].size})
    missing = len(answers) < len(mirrors) or len(good) < len(answers)
    if missing and (before is None or (before.sha256, before.mirrors) != (found.sha256, mirrors)):
        raise NetworkError(
            f"{where}: not every mirror could be compared",
            id="source-mirrors-incomplete",
            cause=details,
            next="try again where all of them can be reached; BUILDER_DEB_MIRROR names a Debian archive",
        )
    archived, named = tree_of_archive(path)
    if archived != tree or named not in (None, commit):
        raise PinError(
            f"{where}: its archive does not hold the tree of its tag",
            id="source-tree-mismatch",
            cause=f"the tag is commit {commit} with tree {tree}, the archive holds tree {archived}",
            next="do not use the archive until you know the reason",
        )
    return found


def _source_distribution(name: str, version: str, request: SourceRequest, hosts: Hosts, folder: Path) -> Source:
    """The sdist of a version, from the first package index that lists it; downloaded, and compared with the index."""
    assert request.index is not None
    failures = []
    with new_session() as session:
        for index in hosts.indexes:
            try:
                found = sdist_of(project_files(session, index, request.index), version)
                answer = _download(session, found.url, folder / found.filename)
            except TransferError as failed:
                failures.append((failed.reason, f"{redact(index)}: {failed}"))
                continue
            if (found.digests or {}).get("sha256", answer.sha256) != answer.sha256:
                raise PinError(
                    f"{name}/{version}: {found.filename} is not the file that the package index lists",
                    id="source-distribution-differs",
                    cause=f"the index lists sha256:{found.digests['sha256']}, the file has sha256:{answer.sha256}",
                )
            mirrors = request.mirrors_of(version)
            return Source(
                name=name, version=version, file=found.filename, sha256=answer.sha256, size=answer.size, mirrors=mirrors
            )
    cause = "; ".join(text for _, text in failures) or "this machine knows no package index"
    if failures and all(reason is Reason.GONE for reason, _ in failures):
        raise PinError(f"{name}/{version}: no package index has its sdist", id="source-archive-gone", cause=cause)
    raise NetworkError(f"{name}/{version}: no mirror serves its archive", id="source-archive-unreachable", cause=cause)


def sdist_of(files: Sequence[DistributionPackage], version: str) -> DistributionPackage:
    """The .tar.gz of a version among a project's files. Raises TransferError when there is none, or it is withdrawn."""
    for file in files:
        if file.package_type == "sdist" and file.version == version and file.filename.endswith(".tar.gz"):
            if file.is_yanked:
                raise TransferError(Reason.GONE, f"{file.filename} was withdrawn by its publisher")
            return file
    raise TransferError(Reason.GONE, f"the index lists no sdist (.tar.gz) of {version}")


def _answers(item: Input, hosts: Hosts, path: Path) -> list[Answer]:
    """The answer of each mirror but snapshot archives. The first archive received is at `path` afterwards."""
    answers = []
    with new_session() as session:
        for mirror in candidates(item, hosts):
            if mirror.kind == "snapshot":
                continue
            target = path if not path.exists() else path.with_suffix(".other")
            try:
                answers.append(_download(session, file_address(session, mirror, item), target))
            except TransferError as failed:
                target.unlink(missing_ok=True)
                answers.append(Answer(mirror.address, failed=failed))
    return answers


def _download(session: requests.Session, address: str, path: Path) -> Answer:
    return Answer(address, *save(session, address, path))


def requested_sources(requests: LockRequests, names: Sequence[str]) -> list[SourceKey]:
    """The requested sources that `names` (NAME or NAME/VERSION) mean. Raises UsageError."""
    found: dict[SourceKey, None] = {}
    for text in names:
        name, _, version = text.partition("/")
        request = requests.sources.get(name)
        if request is None:
            raise UsageError(
                f"no request names the source {text}: it is pinned by hand",
                id="lock-source-unrequested",
                next="edit recipes/locks/sources.json, or request the source in requests.yaml",
            )
        if version and version not in request.versions:
            known = ", ".join(request.versions)
            raise UsageError(
                f"no source {text} is requested",
                id="lock-source-version-unknown",
                cause=f"the requested versions are {known}",
                next="add the version to requests.yaml",
            )
        found |= dict.fromkeys((name, known) for known in request.versions if version in ("", known))
    return list(found)


def with_sources(
    requests: LockRequests, section: SourceLock, found: Sequence[Source]
) -> tuple[SourceLock, list[Change]]:
    """The section with the `found` sources and without those that are no longer requested, and the changes.

    Without changes the section stays the same, sealed.
    """
    before = {(source.name, source.version): source for source in section.sources}
    dropped = {key for key, why in stale_sources(requests, section).items() if why == UNREQUESTED}
    after = {key: source for key, source in before.items() if key not in dropped}
    after |= {(source.name, source.version): source for source in found}
    changes = []
    for key in sorted(before.keys() | after.keys()):
        for field in ("commit", "tree", "sha256", "mirrors"):
            old, new = _field(before.get(key), field), _field(after.get(key), field)
            if old != new:
                changes.append(Change("sources", "/".join(key), field, old, new))
    new_section = section.model_copy(update={"sources": tuple(after[key] for key in sorted(after))})
    if changes or not is_sealed(section):
        new_section = new_section.model_copy(update={"locked": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})
    return sealed(new_section), changes


def _field(source: Source | None, field: str) -> str | None:
    if source is None:
        return None
    value = getattr(source, field)
    if value is None:
        return None
    return str(value) if field != "mirrors" else ", ".join(f"{mirror.kind}:{mirror.path}" for mirror in value)
