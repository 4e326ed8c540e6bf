"""Reads the page of a project in a package index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.inputs.transfer import TIMEOUT, Reason, TransferError, check_status, transfer_errors

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage


def project_files(session: requests.Session, index: str, project: str) -> list[DistributionPackage]:
    """The files that a package index (index: its address) lists for a project. Raises TransferError."""
    import requests
    from pypi_simple import ACCEPT_ANY, NoSuchProjectError, PyPISimple

    with transfer_errors():
        try:
            page = PyPISimple(index, session=session).get_project_page(project, timeout=TIMEOUT, accept=ACCEPT_ANY)
        except NoSuchProjectError:
            raise TransferError(Reason.GONE, "the index has no such project") from None
        except requests.RequestException as error:
            if error.response is not None:
                check_status(error.response)
            if not isinstance(error, requests.JSONDecodeError):
                raise
            raise _no_index() from error
        except Exception as error:
            # Malformed HTML, JSON, versions and addresses are errors of many types, of several libraries.
            raise _no_index() from error
    return page.packages


def _no_index() -> TransferError:
    return TransferError(Reason.REFUSED, "the answer is not a package index")
