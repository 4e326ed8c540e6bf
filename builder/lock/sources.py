"""Locks source archives: the tag's commit and tree from git, the archive from every mirror, and that they agree."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.digest import Digest
from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs.candidates import Hosts, candidates, file_address, machine_hosts
from builder.inputs.mirrors import redact
from builder.inputs.transfer import CHUNK, TIMEOUT, Reason, TransferError, check_status, transfer_errors
from builder.lock.git import read_tag
from builder.lock.gittree import tree_of_archive
from builder.lock.sourcelist import Wanted, archive_name
from builder.model.inputs import Input, from_source
from builder.model.lock import LockRequests, Source, SourceRequest
from builder.parallel import each

if TYPE_CHECKING:
    import requests

_LIMIT = 2 << 30
"""Bytes of an archive; more is not read."""


@dataclass(frozen=True)
class Answer:
    """What one mirror serves, or why it serves nothing."""

    address: str
    sha256: str = ""
    size: int = 0
    failed: TransferError | None = None


def look_up(
    requests: LockRequests, wanted: Sequence[Wanted], locked: Sequence[Source], hosts: Hosts | None = None
) -> list[Source | BuilderError]:
    """What `wanted` are today, in their order; nothing is written. hosts: instead of this machine's.

    The archive must be the same from every mirror that answers, and hold exactly the tree of the tag's commit. A mirror
    that cannot be asked is taken over only for bytes that it was locked with. Errors are in the result: PinError
    (vanished, not the tag's tree, different mirrors), NetworkError (no answer), UsageError (no git).
    """
    known = hosts or machine_hosts({"source"})
    before = {(source.name, source.version): source for source in locked}
    return each(lambda one: _look_up(one, requests.sources[one[0]], before.get(one), known), wanted, BuilderError, 8)


def _look_up(wanted: Wanted, request: SourceRequest, before: Source | None, hosts: Hosts) -> Source:
    name, version = wanted
    where = f"{name}/{version}"
    commit, tree = read_tag(f"{hosts.github}/{request.github}.git", request.tag_of(version))
    mirrors = request.mirrors_of(version)
    with tempfile.TemporaryDirectory(prefix="builder-source-") as folder:
        path = Path(folder, archive_name(name, version))
        draft = Source(
            name=name, version=version, file=path.name, sha256="0" * 64, size=0, commit=commit, tree=tree,
            mirrors=mirrors,
        )  # fmt: skip
        answers = _answers(from_source(draft, "1970-01-01T00:00:00Z"), hosts, path)
        good = [answer for answer in answers if answer.failed is None]
        told = "; ".join(
            f"{redact(answer.address)}: {answer.failed or Digest.from_hex(answer.sha256)}" for answer in answers
        )
        if not good:
            gone = all(answer.failed and answer.failed.reason is Reason.GONE for answer in answers)
            raise (PinError if gone else NetworkError)(f"{where}: no mirror has its archive", cause=told)
        if len({answer.sha256 for answer in good}) > 1:
            raise PinError(f"{where}: its mirrors serve different archives", cause=told)
        found = draft.model_copy(update={"sha256": good[0].sha256, "size": good[0].size})
        missing = len(answers) < len(mirrors) or len(good) < len(answers)
        if missing and (before is None or (before.sha256, before.mirrors) != (found.sha256, mirrors)):
            raise NetworkError(
                f"{where}: not every mirror could be compared",
                cause=told,
                next="try again where all of them can be reached; BUILDER_DEB_MIRROR names a Debian archive",
            )
        held, said = tree_of_archive(path)
    if held != tree or said not in (None, commit):
        raise PinError(
            f"{where}: its archive does not hold the tree of its tag",
            cause=f"the tag is commit {commit} with tree {tree}, the archive holds tree {held}",
            next="do not use it before you know why",
        )
    return found


def _answers(item: Input, hosts: Hosts, path: Path) -> list[Answer]:
    """What the mirrors serve; the first archive that comes lies at `path` afterwards. Snapshots are not asked."""
    from builder.inputs.fetch import new_session

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
    seen, size = hashlib.sha256(), 0
    headers = {"Accept-Encoding": "identity"}
    with transfer_errors(), session.get(address, stream=True, headers=headers, timeout=TIMEOUT) as got:
        check_status(got)
        with path.open("wb") as file:
            for chunk in got.raw.stream(CHUNK, decode_content=False):
                size += len(chunk)
                if size > _LIMIT:
                    raise TransferError(Reason.WRONG, f"is longer than {_LIMIT} bytes")
                seen.update(chunk)
                file.write(chunk)
        length = got.headers.get("Content-Length", "")
        if length.isdigit() and int(length) != size:
            raise TransferError(Reason.TRANSIENT, f"the connection broke after {size} of {length} bytes")
    return Answer(address, seen.hexdigest(), size)
