"""Pins bases: resolves their tags at their registries; pinfile.py edits the text of their files."""

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
from builder.registry.client import Registry
from builder.registry.errors import MismatchError

PLATFORM = "linux/arm64"


@dataclass(frozen=True)
class Pinned:
    """A base that was looked up. file: the file to write; text: its new content, None when nothing changed."""

    name: str
    file: Path
    text: str | None
    changes: tuple[Change, ...]


def look_up(
    bases: Sequence[tuple[Base, Path]], root: Path, registry: Registry | None = None
) -> list[Pinned | BuilderError]:
    """Resolve the tags of `bases` (each with the file it was read from), in order; nothing is written.

    root: the project that is written to; a base of another project gets a file of its own there. A base that cannot be
    pinned is an error in the result that names the base: PinError when its registry has no image for linux/arm64 under
    the tag or the image does not match its digest, NetworkError when the registry does not answer or refuses.
    """
    client = registry or Registry()
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return each(lambda pair: _look_up(pair[0], pair[1], root, client, today), bases, BuilderError)


def resolve_pin(base: Base, registry: Registry, today: str) -> Pin:
    """The pin that the base's tag resolves to; the pin of `base` itself when the digests are the same.

    It holds the digests of the index (None without one) and of its linux/arm64 manifest, whose config must name that
    platform too. The pin's evidence names the registry and the date. today: YYYY-MM-DD. Raises PinError, NetworkError.
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
    except (PinError, NetworkError) as error:
        # A digest mismatch is the registry's fault: another pin does not repair it.
        is_wrong_image = isinstance(error, PinError) and not isinstance(error, MismatchError)
        advice = f"correct pin.image in recipes/bases/{path.name}" if is_wrong_image else error.next
        raise error.replaced(what=f"{base.name}: {error.what}", next=advice) from None
    changes = tuple(
        Change("base", base.name, key, old, new)
        for key in ("index", "manifest")
        if (old := getattr(base.pin, key)) != (new := getattr(pin, key))
    )
    if pin == base.pin:
        return Pinned(base.name, target, None, ())
    try:
        # Read as bytes, so that the file keeps its line ends.
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InvalidError(f"cannot read: {error.strerror}", id="base-file-unreadable", where=str(path)) from None
    return Pinned(base.name, target, with_pin(text, pin, str(path)), changes)
