"""Pins bases: asks their registries what their tags are today, and writes the digests into their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from builder.errors import BuilderError, InvalidError, NetworkError, PinError
from builder.lock.findings import Change
from builder.lock.pinfile import with_pin
from builder.lock.seal import is_own_pin, sealed_pin
from builder.model.base import Base, Pin
from builder.model.reference import Reference
from builder.parallel import each
from builder.registry.client import MismatchError, Registry

PLATFORM = "linux/arm64"


@dataclass(frozen=True)
class Pinned:
    """A base that was looked up. file: where it is written to; text: its new content, None when nothing changed."""

    name: str
    file: Path
    text: str | None
    changes: tuple[Change, ...]


def look_up(
    bases: Sequence[tuple[Base, Path]], root: Path, registry: Registry | None = None
) -> list[Pinned | BuilderError]:
    """What the tags of `bases` (each with the file it was read from) are today; in their order, nothing is written.

    root: the project that is written to; a base that comes from another one will get a file of its own there. A base
    that cannot be pinned is an error in the result, naming the base: PinError when its registry has no image for
    linux/arm64 under that tag or one that is not what it says, NetworkError when it does not answer or refuses.
    """
    client = registry or Registry()
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return each(lambda pair: _look_up(pair[0], pair[1], root, client, today), bases, BuilderError)


def resolve_pin(base: Base, registry: Registry, today: str) -> Pin:
    """The pin that the base's tag stands for today; the same value when it still stands for the same digests.

    The digests of the index (None without one) and of the linux/arm64 manifest in it, whose config must name that
    platform too. The registry is then the evidence. today: YYYY-MM-DD. Raises PinError and NetworkError.
    """
    assert base.pin is not None
    reference = Reference.parse(base.pin.image)
    manifest, index = registry.platform_manifest(reference, PLATFORM)
    if (base.pin.index, base.pin.manifest) == (index, manifest.digest) and is_own_pin(base.pin):
        return base.pin
    what = "index, arm64 manifest" if index else "arm64 manifest, without an index"
    evidence = f"{what} and the platform in its config (high): {reference.registry} on {today}, read by builder lock"
    found = Pin(image=base.pin.image, index=index, manifest=manifest.digest, confidence="high", evidence=(evidence,))
    return sealed_pin(found)


def _look_up(base: Base, path: Path, root: Path, registry: Registry, today: str) -> Pinned:
    target = root / "recipes/bases" / path.name
    assert base.pin is not None
    try:
        pin = resolve_pin(base, registry, today)
    except MismatchError as error:
        raise PinError(f"{base.name}: {error.what}", where=error.where, cause=error.cause, next=error.next) from None
    except PinError as error:
        mend = f"correct pin.image in recipes/bases/{path.name}"
        raise PinError(f"{base.name}: {error.what}", where=error.where, cause=error.cause, next=mend) from None
    except NetworkError as error:
        what = f"{base.name}: {error.what}"
        raise NetworkError(what, where=error.where, cause=error.cause, next=error.next) from None
    changes = tuple(
        Change("base", base.name, key, old, new)
        for key in ("index", "manifest")
        if (old := getattr(base.pin, key)) != (new := getattr(pin, key))
    )
    if pin == base.pin:
        return Pinned(base.name, target, None, ())
    try:
        # Bytes: a file keeps its line ends.
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InvalidError(f"cannot read: {error.strerror}", where=str(path)) from None
    return Pinned(base.name, target, with_pin(text, pin, str(path)), changes)
