"""The mirror that a build reads its inputs from, and what becomes of one that lacks them or has other bytes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from builder.errors import NetworkError, PinError, UsageError
from builder.inputs.transfer import Failed
from builder.mirror.backend import FolderPlace, Place, is_mirror, place_of, read_small
from builder.model.inputs import Input
from builder.oci.manifest import MANIFEST_LIMIT, parse_manifest


class MirrorSource:
    """A mirror to read inputs and bases from, an InputSource.

    Thread-safe. It remembers which inputs it lacks, for the warnings at the end of a build.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = place.name
        self._lacking: dict[str, str] = {}
        self._down: str = ""
        self._lock = Lock()

    def open(self, item: Input) -> Path | Iterator[bytes]:
        """The file of an input, or its chunks; neither is verified. Raises Failed."""
        if self._down:
            raise Failed("transient", self._down)
        try:
            return self.place.file(item.digest) or self.place.read(item.digest, item.size)
        except PinError:
            raise Failed("gone", "does not have it") from None
        except NetworkError as error:
            # One that does not answer is not waited for again and again.
            self._down = f"{error.what}: {error.cause}" if error.cause else error.what
            raise Failed("transient", self._down) from None
        except OSError as error:
            raise Failed("transient", f"cannot read: {error.strerror or error}") from None

    def base(self, manifest: str) -> tuple[bytes, bytes]:
        """A base's manifest and config, by the manifest's digest. Raises PinError, NetworkError or OSError."""
        data = read_small(self.place, manifest, MANIFEST_LIMIT)
        found = parse_manifest(data, where=self.name)
        if found.is_index:
            raise PinError(f"{manifest} is an index, not one image's manifest", where=self.name)
        return data, read_small(self.place, found.json["config"]["digest"], MANIFEST_LIMIT)

    def mend(self, *words: str) -> str:
        """The `builder mirror` command that completes this mirror."""
        return mirror_command(self.name, *words)

    def lacks(self, name: str, why: str) -> None:
        """Remember that something had to come from elsewhere."""
        with self._lock:
            self._lacking[name] = why

    def warnings(self) -> list[str]:
        """What to tell the user at the end: what had to come from elsewhere, and why."""
        by_reason: dict[str, list[str]] = {}
        for name, why in sorted(self._lacking.items()):
            by_reason.setdefault(why, []).append(name)
        return [
            f"the mirror {self.name} {why}: {', '.join(names[:5])}"
            + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            for why, names in by_reason.items()
        ]


def mirror_source(text: str | None) -> MirrorSource | None:
    """The mirror that `--mirror` names; None without one. Raises UsageError for a folder that is no mirror."""
    if not text:
        return None
    place = place_of(text)
    if isinstance(place, FolderPlace) and not is_mirror(place.root):
        raise UsageError(
            "is not a mirror",
            where=place.name,
            cause="it is no OCI layout",
            next=mirror_command(text, "--recipe", "NAME"),
        )
    return MirrorSource(place)


def mirror_command(name: str, *words: str) -> str:
    """The command that writes to a mirror, as a shell takes it."""
    return shlex.join(("builder", "mirror", name, *words))
