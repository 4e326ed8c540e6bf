"""MirrorSource: the mirror that a build reads inputs and bases from (`--mirror`), and its warnings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from builder.digest import Digest
from builder.errors import NetworkError, PinError, UsageError
from builder.inputs.transfer import Reason, TransferError
from builder.mirror.backend import Backend, parse_backend, read_small
from builder.mirror.folder import FolderBackend, is_layout
from builder.model.inputs import Input
from builder.oci.manifest import MANIFEST_LIMIT, parse_manifest
from builder.text import first_few


class MirrorSource:
    """A mirror to read inputs and bases from; an InputSource.

    Thread-safe. It records the inputs that it lacks, for the warnings at the end of a build.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name
        self._missing: dict[str, str] = {}
        self._unreachable: str = ""
        self._lock = Lock()

    def open(self, item: Input) -> Path | Iterator[bytes]:
        """The file of an input, or its chunks. The caller verifies the bytes. Raises TransferError."""
        if self._unreachable:
            raise TransferError(Reason.TRANSIENT, self._unreachable)
        try:
            return self.backend.file(item.digest) or self.backend.read(item.digest, item.size)
        except PinError:
            raise TransferError(Reason.GONE, "lacks the file") from None
        except NetworkError as error:
            # Recorded, so that each further input does not wait for the same silent registry.
            self._unreachable = f"{error.what}: {error.cause}" if error.cause else error.what
            raise TransferError(Reason.TRANSIENT, self._unreachable) from None
        except OSError as error:
            raise TransferError(Reason.TRANSIENT, f"cannot read: {error.strerror or error}") from None

    def base(self, manifest: Digest) -> tuple[bytes, bytes]:
        """A base's manifest and config, by the manifest's digest. Raises PinError, NetworkError or OSError."""
        data = read_small(self.backend, manifest, MANIFEST_LIMIT)
        found = parse_manifest(data, where=self.name)
        if found.is_index:
            raise PinError(
                f"{manifest} is an index, not the manifest of one image", id="mirror-base-index", where=self.name
            )
        return data, read_small(self.backend, found.config.digest, MANIFEST_LIMIT)

    def repair_command(self, *words: str) -> str:
        """The `builder mirror` command that completes this mirror."""
        return mirror_command(self.name, *words)

    def report_missing(self, name: str, why: str) -> None:
        """Record that the build had to take something from elsewhere."""
        with self._lock:
            self._missing[name] = why

    def warnings(self) -> list[str]:
        """For the end of a build: what came from elsewhere, and why."""
        by_reason: dict[str, list[str]] = {}
        for name, why in sorted(self._missing.items()):
            by_reason.setdefault(why, []).append(name)
        return [f"the mirror {self.name} {why}: {first_few(names)}" for why, names in by_reason.items()]


def mirror_source(text: str | None) -> MirrorSource | None:
    """The mirror that `--mirror` names; None without one. Raises UsageError for a folder that is no mirror."""
    if not text:
        return None
    backend = parse_backend(text)
    if isinstance(backend, FolderBackend) and not is_layout(backend.root):
        raise UsageError(
            "is not a mirror",
            id="mirror-not-layout",
            where=backend.name,
            cause="it is not an OCI layout",
            next=mirror_command(text, "--recipe", "NAME"),
        )
    return MirrorSource(backend)


def mirror_command(name: str, *words: str) -> str:
    """The `builder mirror` command for this mirror, quoted for a shell."""
    return shlex.join(("builder", "mirror", name, *words))
