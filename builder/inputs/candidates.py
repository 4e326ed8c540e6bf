"""Where one input can be had on this machine, and what to tell the user when none of the places works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs import hosts as machine
from builder.inputs.mirrors import redact
from builder.inputs.transfer import TIMEOUT, Failed, as_failed, check_status
from builder.model.inputs import Input

if TYPE_CHECKING:
    import requests


@dataclass(frozen=True)
class Hosts:
    """Where files come from: addresses of package indexes, Debian archives, snapshot archives, and GitHub."""

    indexes: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    github: str = machine.GITHUB


@dataclass(frozen=True)
class Mirror:
    """One place to try: the address of a file, or for an index that of the index."""

    kind: str
    address: str
    project: str = ""


def machine_hosts(kinds: Iterable[str]) -> Hosts:
    """What this machine is configured to use for inputs of these kinds."""
    kinds = set(kinds)
    debian = kinds & {"deb", "source"}
    return Hosts(
        indexes=machine.wheel_indexes() if "wheel" in kinds else (),
        debian=machine.deb_roots() if debian else (),
        snapshots=machine.deb_snapshots() if debian else (),
        github=machine.github_root(),
    )


def mirrors_of(item: Input, hosts: Hosts) -> list[Mirror]:
    """Every place where `item` may be, best first. Raises PinError when this machine knows none."""
    found = []
    for location in item.locations:
        path = quote(location.path)
        if location.kind == "index":
            found += [Mirror("index", index, location.path) for index in hosts.indexes]
        else:
            roots = {"debian": hosts.debian, "snapshot": hosts.snapshots, "github": (hosts.github,)}[location.kind]
            found += [Mirror(location.kind, f"{root}/{path}") for root in roots]
    if not found:
        raise PinError(
            f"{item.name}: no mirror is known that has it",
            cause="this machine's apt has no Debian archive and python3-apt's mirror list is not installed",
            next="set BUILDER_DEB_MIRROR to a Debian archive, or BUILDER_DEB_SNAPSHOT to a snapshot archive",
        )
    return found


def address_of(session: requests.Session, mirror: Mirror, item: Input) -> str:
    """The file's address; an index is asked for it. Raises Failed."""
    if mirror.kind != "index":
        return mirror.address
    from pypi_simple import ACCEPT_ANY, NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

    with as_failed():
        try:
            page = PyPISimple(mirror.address, session=session).get_project_page(
                mirror.project, timeout=TIMEOUT, accept=ACCEPT_ANY
            )
        except NoSuchProjectError:
            raise Failed("gone", "the index has no such project") from None
        except UnsupportedContentTypeError:
            raise Failed("refused", "the answer is not a package index") from None
        except Exception as error:
            if (response := getattr(error, "response", None)) is not None:
                check_status(response)
            raise
    for package in page.packages:
        if package.filename == item.file:
            listed = (package.digests or {}).get("sha256", item.sha256)
            if listed != item.sha256:
                raise Failed("wrong", f"the index lists sha256:{listed}, locked is {item.digest}")
            return package.url
    raise Failed("gone", f"the index does not list {item.file}")


def failure(item: Input, failures: Mapping[Mirror, Failed]) -> BuilderError:
    """The error for an input that no mirror gave: vanished, changed, or out of reach."""
    told = "; ".join(f"{mirror.kind} {redact(mirror.address)}: {failed.reason}" for mirror, failed in failures.items())
    troubles = {failed.trouble for failed in failures.values()}
    if "wrong" in troubles:
        return PinError(
            f"{item.name}: {item.file} is not what was locked",
            cause=told,
            next="if the new file is to be trusted: builder lock --update",
        )
    if troubles == {"gone"}:
        advice = "builder lock --update"
        if item.kind == "deb":
            advice = f"set BUILDER_DEB_SNAPSHOT to a snapshot archive that keeps old packages, or {advice}"
        return PinError(f"{item.name}: {item.file} vanished from every mirror", cause=told, next=advice)
    return NetworkError(
        f"{item.name}: cannot fetch {item.file}",
        cause=told,
        next="check the network and proxy settings and run the command again: what is complete is kept",
    )
