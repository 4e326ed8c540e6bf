"""Reads the page of a project in a package index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.inputs.transfer import TIMEOUT, Reason, TransferError, check_status, transfer_errors
from builder.pattern import compiled

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage

_TAG = rb"""\s(?:[^<>"']|"[^"<]*"|'[^'<]*')*>"""
_LINK = rb"(?i)<(?:base|meta)" + _TAG + rb"|<a" + _TAG + rb"[^<]*</a\s*>"
_MOST_LINKS = 100_000
_YEARS = (1990, 3000)


def project_files(session: requests.Session, index: str, project: str) -> list[DistributionPackage]:
    """The files that a package index (index: its address) lists for a project. Raises TransferError."""
    from pypi_simple import ACCEPT_ANY, ProjectPage, PyPISimple

    address = PyPISimple(index, session=session).get_project_url(project)
    with transfer_errors():
        answer = session.get(address, headers={"Accept": ACCEPT_ANY}, timeout=TIMEOUT)
        if answer.status_code == 404:
            raise TransferError(Reason.GONE, "the index has no such project")
        check_status(answer)
        try:
            if "html" in answer.headers.get("Content-Type", "html"):
                answer._content = _links(answer.content)
            found = ProjectPage.from_response(answer, project).packages
        except TransferError:
            raise
        except Exception as error:
            # Malformed HTML, JSON, versions and addresses are errors of many types, of several libraries.
            raise _no_index() from error
    return [file for file in found if _is_dated(file)]


def _links(page: bytes) -> bytes:
    """The links of an HTML page, and nothing else of it: the time of Python's parser is quadratic in broken tags."""
    found = compiled(_LINK).findall(page)
    if len(found) > _MOST_LINKS:
        raise TransferError(Reason.REFUSED, f"a page of more than {_MOST_LINKS} files")
    return b"\n".join([b"<!DOCTYPE html>", *found])


def _is_dated(file: DistributionPackage) -> bool:
    """Whether its time, if it has one, has a zone and can be calculated with."""
    time = file.upload_time
    return time is None or (time.tzinfo is not None and _YEARS[0] < time.year < _YEARS[1])


def _no_index() -> TransferError:
    return TransferError(Reason.REFUSED, "the answer is not a package index")
