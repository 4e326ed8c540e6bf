"""InputSource: a copy of the inputs that a build reads before it asks the upstreams. `mirror/` implements it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs.transfer import Reason, TransferError
from builder.model.inputs import Input


class InputSource(Protocol):
    """A complete or partial copy of the inputs. Thread-safe. name: how error messages call it."""

    name: str

    def open(self, item: Input) -> Path | Iterator[bytes]:
        """The file of an input, or its chunks. The caller verifies the bytes. Raises TransferError."""

    def report_missing(self, name: str, why: str) -> None:
        """Record that the build had to take an input from elsewhere."""

    def repair_command(self, *words: str) -> str:
        """The command that completes this source."""


def source_error(item: Input, source: InputSource, error: TransferError) -> BuilderError:
    """The error for an input that the source could not serve while offline."""
    if error.reason is Reason.WRONG:
        return PinError(
            f"{item.name}: {item.file} in the mirror is not the locked file",
            id="mirror-input-mismatch",
            where=source.name,
            cause=error.detail,
            next=f"where there is a network, repair it: {source.repair_command('--verify', '--recipe', 'NAME')}",
        )
    if error.reason is Reason.GONE:
        return PinError(
            f"{item.name}: {item.file} is neither in the store nor in the mirror, and this is offline",
            id="mirror-input-missing",
            where=source.name,
            next=f"where there is a network, complete the mirror: {source.repair_command('--recipe', 'NAME')}",
        )
    return NetworkError(
        f"{item.name}: cannot read {item.file} from the mirror",
        id="mirror-input-unreadable",
        where=source.name,
        cause=error.detail,
    )
