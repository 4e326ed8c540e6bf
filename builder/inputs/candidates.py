"""Candidates for one input: the addresses where this machine can find it, and the error when none of them serves it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs import hosts as machine
from builder.inputs.index import project_files
from builder.inputs.mirrors import redact
from builder.inputs.transfer import Reason, TransferError
from builder.model.inputs import Input

if TYPE_CHECKING:
    import requests


@dataclass(frozen=True)
class Hosts:
    """Addresses of package indexes, Debian archives, snapshot archives, and GitHub."""

    indexes: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    github: str = machine.GITHUB


@dataclass(frozen=True)
class Candidate:
    """One place that may serve an input. address: of the file, or of the package index where kind is `index`.

    kind: of a Location, or `mirror` for an InputSource. project: the project's name in a package index.
    """

    kind: str
    address: str
    project: str = ""


def machine_hosts(kinds: Iterable[str]) -> Hosts:
    """The hosts that this machine is configured to use for inputs of these kinds."""
    kinds = set(kinds)
    debian = kinds & {"deb", "source"}
    return Hosts(
        indexes=machine.wheel_indexes() if kinds & {"wheel", "source"} else (),
        debian=machine.deb_roots() if debian else (),
        snapshots=machine.deb_snapshots() if debian else (),
        github=machine.github_root(),
    )


def candidates(item: Input, hosts: Hosts) -> list[Candidate]:
    """Every place that may serve `item`, best first. Raises PinError when this machine knows no host for it."""
    found = []
    for location in item.locations:
        path = quote(location.path)
        if location.kind == "index":
            found += [Candidate("index", index, location.path) for index in hosts.indexes]
        else:
            roots = {"debian": hosts.debian, "snapshot": hosts.snapshots, "github": (hosts.github,)}[location.kind]
            found += [Candidate(location.kind, f"{root}/{path}") for root in roots]
    if not found:
        raise PinError(
            f"{item.name}: this machine knows no mirror for it",
            id="input-no-mirror",
            cause="this machine's apt has no Debian archive and python3-apt's mirror list is not installed",
            next="set BUILDER_DEB_MIRROR to a Debian archive, or BUILDER_DEB_SNAPSHOT to a snapshot archive",
        )
    return found


def file_address(session: requests.Session, candidate: Candidate, item: Input) -> str:
    """The address of the file; a package index is queried for it. Raises TransferError."""
    if candidate.kind != "index":
        return candidate.address
    for package in project_files(session, candidate.address, candidate.project):
        if package.filename == item.file:
            listed = (package.digests or {}).get("sha256", item.sha256)
            if listed != item.sha256:
                raise TransferError(Reason.WRONG, f"the index lists {listed}, the lock says {item.sha256}")
            return package.url
    raise TransferError(Reason.GONE, f"the index does not list {item.file}")


def failure_lines(failures: Mapping[Candidate, TransferError]) -> str:
    """Each candidate and why it did not serve the file, without credentials."""
    rows = (f"{item.kind} {redact(item.address)}: {error.detail}" for item, error in failures.items())
    return "; ".join(rows)


def input_error(item: Input, failures: Mapping[Candidate, TransferError]) -> BuilderError:
    """The error for an input that no candidate served. A digest mismatch outranks other reasons.

    PinError when a mirror has another file or every mirror says that the file is gone, else NetworkError.
    """
    cause = failure_lines(failures)
    reasons = {error.reason for error in failures.values()}
    if Reason.WRONG in reasons:
        return PinError(
            f"{item.name}: {item.file} is not the locked file",
            id="input-mismatch",
            cause=cause,
            next="if you trust the new file: builder lock --update",
        )
    if reasons == {Reason.GONE}:
        advice = "builder lock --update"
        if item.kind == "deb":
            advice = f"set BUILDER_DEB_SNAPSHOT to a snapshot archive that keeps old packages, or {advice}"
        return PinError(
            f"{item.name}: {item.file} vanished from every mirror", id="input-vanished", cause=cause, next=advice
        )
    return NetworkError(
        f"{item.name}: cannot fetch {item.file}",
        id="input-unreachable",
        cause=cause,
        next="check the network and proxy settings and run the command again: files already complete are kept",
    )
