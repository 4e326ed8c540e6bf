"""Checks that pinned bases and locked sources are still available, by requests to registries and mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builder.digest import Digest
from builder.errors import BuilderError, ExitCode, NetworkError, PinError
from builder.inputs.candidates import Candidate, Hosts, candidates, failure_lines, file_address, machine_hosts
from builder.inputs.fetch import new_session
from builder.inputs.transfer import TIMEOUT, Reason, TransferError, check_size, check_status, transfer_errors
from builder.lock.findings import Problem, problem
from builder.mirror.basefetch import index_pin_error
from builder.model.base import Base
from builder.model.inputs import Input
from builder.model.reference import Reference
from builder.oci.manifest import check_platform
from builder.parallel import each
from builder.registry.client import Registry
from builder.registry.errors import MismatchError

PLATFORM = "linux/arm64"


@dataclass(frozen=True)
class Availability:
    """count: how many requests were made. problems: entries that are gone or unreachable. warnings: failing mirrors of
    sources that another mirror still serves.
    """

    count: int
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()


def check_bases(bases: Sequence[Base], registry: Registry | None = None) -> Availability:
    """Request the pinned index and manifest of every base from its registry or the registry's mirrors, in parallel.

    Only the presence of the index is checked. The manifest and its config are read, a few kilobytes: they must match
    their digests, and the config must name linux/arm64.
    """
    client = registry or Registry()
    asked = [
        (base, key, digest)
        for base in bases
        if base.pin is not None
        for key, digest in (("index", base.pin.index), ("manifest", base.pin.manifest))
        if digest is not None
    ]

    def ask(request: tuple[Base, str, Digest]) -> None:
        base, key, digest = request
        assert base.pin is not None
        reference = Reference.parse(base.pin.image).at(digest)
        if key == "index":
            client.check_manifest(reference)
            return
        found = client.manifest(reference)
        if found.is_index:
            raise index_pin_error(reference, base.name)
        check_platform(client.config(reference, found), PLATFORM, str(reference))

    problems = []
    for (base, key, _), error in zip(asked, each(ask, asked, BuilderError), strict=True):
        if isinstance(error, BuilderError):
            row = problem("base", base.name, error)
            # A new pin does not repair a faulty registry.
            is_server_fault = isinstance(error, NetworkError | MismatchError)
            advice = row.next if is_server_fault else f"builder lock --update {base.name}"
            problems.append(Problem("base", base.name, f"{key}: {row.what}", advice, row.code))
    return Availability(len(asked), tuple(problems))


def check_sources(inputs: Sequence[Input], hosts: Hosts | None = None) -> Availability:
    """Ask every mirror of each source whether it has the archive in the locked size; nothing is downloaded.

    A source is a problem when no mirror has it: with the exit code of PinError when the file is gone
    from every mirror or differs there, with that of NetworkError when one of them does not answer.
    """
    known = hosts or machine_hosts({"source"})
    asked = [(item, mirror) for item in inputs for mirror in _known_candidates(item, known)]
    answers = each(lambda pair: _ask(*pair), asked, BuilderError)
    problems, warnings = [], []
    for item in inputs:
        answers_of = {mirror: answer for (other, mirror), answer in zip(asked, answers, strict=True) if other is item}
        failures = {mirror: answer for mirror, answer in answers_of.items() if isinstance(answer, TransferError)}
        details = failure_lines(failures)
        if len(failures) < len(answers_of):
            warnings += [f"{item.name}: {details}"] if details else []
            continue
        problems.append(_source_problem(item, failures, details))
    return Availability(len(asked), tuple(problems), tuple(warnings))


def _source_problem(item: Input, failures: dict[Candidate, TransferError], details: str) -> Problem:
    name = item.name.replace(" ", "/")
    what = f"no mirror has {item.file}: {details or 'no mirror is configured'}"
    gone = all(error.reason in (Reason.GONE, Reason.WRONG) for error in failures.values())
    advice = f"builder lock --update {name}" if gone else "check the network and try again"
    return Problem("sources", name, what, advice, ExitCode.PIN if gone and failures else ExitCode.NETWORK)


def _known_candidates(item: Input, hosts: Hosts) -> list[Candidate]:
    try:
        return candidates(item, hosts)
    except PinError:
        return []


def _ask(item: Input, mirror: Candidate) -> TransferError | None:
    try:
        with new_session() as session, transfer_errors():
            address = file_address(session, mirror, item)
            headers = {"Accept-Encoding": "identity"}
            # Not HEAD: GitHub then sends no length for an archive created on demand, and some servers refuse it.
            with session.get(address, stream=True, headers=headers, timeout=TIMEOUT) as response:
                check_status(response)
                length = response.headers.get("Content-Length", "")
                if length.isdigit():
                    check_size(int(length), item)
    except TransferError as error:
        return error
    return None
