"""Whether what is pinned can still be had: registries are asked for bases, mirrors for sources. Nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builder.digest import Digest
from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs.candidates import Candidate, Hosts, candidates, file_address, machine_hosts
from builder.inputs.mirrors import redact
from builder.inputs.transfer import TIMEOUT, Reason, TransferError, check_size, check_status, transfer_errors
from builder.lock.findings import Problem, problem
from builder.model.base import Base
from builder.model.inputs import Input
from builder.model.reference import Reference
from builder.oci.manifest import check_platform
from builder.parallel import each
from builder.registry.client import MismatchError, Registry

PLATFORM = "linux/arm64"


@dataclass(frozen=True)
class Looked:
    """problems: what is gone or cannot be reached. warnings: mirrors that are lost while another one still serves."""

    count: int
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()


def check_bases(bases: Sequence[Base], registry: Registry | None = None) -> Looked:
    """Ask the registries, or their configured mirrors, for the pinned index and manifest of every base, at once.

    Of the index only its presence is asked. The manifest and the config it names are read, a few kilobytes: their bytes
    must hash to the pin, and the config must say linux/arm64.
    """
    client = registry or Registry()
    asked = [
        (base, key, digest)
        for base in bases
        if base.pin is not None
        for key, digest in (("index", base.pin.index), ("manifest", base.pin.manifest))
        if digest is not None
    ]

    def ask(one: tuple[Base, str, Digest]) -> None:
        base, key, digest = one
        assert base.pin is not None
        reference = Reference.parse(base.pin.image).at(digest)
        if key == "index":
            client.check_manifest(reference)
            return
        found = client.manifest(reference)
        if found.is_index:
            raise PinError("the pin is an index, not one platform's image", where=str(reference))
        check_platform(client.config(reference, found), PLATFORM, str(reference))

    problems = []
    for (base, key, _), error in zip(asked, each(ask, asked, BuilderError), strict=True):
        if isinstance(error, BuilderError):
            row = problem("base", base.name, error)
            served = isinstance(error, NetworkError | MismatchError)  # no new pin mends what serves it
            mend = row.next if served else f"builder lock --update {base.name}"
            problems.append(Problem("base", base.name, f"{key}: {row.what}", mend, row.code))
    return Looked(len(asked), tuple(problems))


def check_sources(inputs: Sequence[Input], hosts: Hosts | None = None) -> Looked:
    """Ask every mirror of the source archives whether it has them, in the locked size; nothing is downloaded.

    A source is a problem when no mirror has it: gone (PinError's code) when all say so or serve something else, out of
    reach (NetworkError's) when one of them does not answer.
    """
    known = hosts or machine_hosts({"source"})
    asked = [(item, mirror) for item in inputs for mirror in _mirrors(item, known)]
    answers = each(lambda one: _ask(*one), asked, BuilderError)
    problems, warnings = [], []
    for item in inputs:
        failures = {}
        there = False
        for (other, mirror), failed in zip(asked, answers, strict=True):
            if other is item:
                there |= failed is None
                if isinstance(failed, TransferError):
                    failures[f"{mirror.kind} {redact(mirror.address)}"] = failed
        told = "; ".join(f"{place}: {failed.detail}" for place, failed in failures.items())
        if there:
            warnings += [f"{item.name}: {told}"] if told else []
            continue
        lost = all(failed.reason in (Reason.GONE, Reason.WRONG) for failed in failures.values())
        error = PinError if lost and failures else NetworkError
        mend = "builder lock --update " + item.name.replace(" ", "/") if lost else "check the network and try again"
        text = f"no mirror has {item.file}: {told or 'none is known on this machine'}"
        problems.append(problem("sources", item.name.replace(" ", "/"), error(text, next=mend)))
    return Looked(len(asked), tuple(problems), tuple(warnings))


def _mirrors(item: Input, hosts: Hosts) -> list[Candidate]:
    try:
        return candidates(item, hosts)
    except PinError:
        return []


def _ask(item: Input, mirror: Candidate) -> TransferError | None:
    from builder.inputs.fetch import new_session

    try:
        with new_session() as session, transfer_errors():
            address = file_address(session, mirror, item)
            headers = {"Accept-Encoding": "identity"}
            # Not HEAD: archives that GitHub makes on demand have no length then, and some servers refuse it.
            with session.get(address, stream=True, headers=headers, timeout=TIMEOUT) as response:
                check_status(response)
                length = response.headers.get("Content-Length", "")
                if length.isdigit():
                    check_size(int(length), item)
    except TransferError as failed:
        return failed
    return None
