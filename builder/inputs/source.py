"""An InputSource: where a build may read its inputs before it asks the upstreams; `mirror/` implements it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from builder.errors import BuilderError, NetworkError, PinError
from builder.inputs.transfer import Failed
from builder.model.inputs import Input


class InputSource(Protocol):
    """A complete or partial copy of the inputs. Thread-safe. name: what errors call it."""

    name: str

    def open(self, item: Input) -> Path | Iterator[bytes]:
        """The file of an input, or its chunks; neither is verified. Raises Failed."""

    def lacks(self, name: str, why: str) -> None:
        """Remember that an input had to come from elsewhere."""

    def mend(self, *words: str) -> str:
        """The command that completes this source."""


def source_error(item: Input, source: InputSource, failed: Failed) -> BuilderError:
    """The error for an input that the only mirror there is could not give."""
    if failed.trouble == "wrong":
        return PinError(
            f"{item.name}: {item.file} in the mirror is not what was locked",
            where=source.name,
            cause=failed.reason,
            next=f"mend it where there is a network: {source.mend('--verify', '--recipe', 'NAME')}",
        )
    if failed.trouble == "gone":
        return PinError(
            f"{item.name}: {item.file} is neither in the store nor in the mirror, and this is offline",
            where=source.name,
            next=f"complete the mirror where there is a network: {source.mend('--recipe', 'NAME')}",
        )
    return NetworkError(f"{item.name}: cannot read {item.file} from the mirror", where=source.name, cause=failed.reason)
