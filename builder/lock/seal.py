"""The seal of a section or a pin: a hash that shows whether the file was edited or merged since it was resolved."""

from __future__ import annotations

from typing import TypeVar

from builder.model.base import Pin
from builder.model.canonical import fingerprint
from builder.model.common import Strict
from builder.model.lock import DebLock, LockSection, WheelLock

CHANGED = "was changed since it was resolved, by hand or by a merge"

Section = TypeVar("Section", bound=Strict)


def sealed(section: Section) -> Section:
    """The section with its seal: the hash of canonical JSON over all its other fields."""
    return section.model_copy(update={"seal": _seal(section)})


def is_sealed(section: LockSection) -> bool:
    """Whether the seal matches. A seal detects accidents, not attacks: a build checks each input by its own hash."""
    return section.seal == _seal(section)


def versions_digest(section: DebLock | WheelLock) -> str:
    """A hash of names and versions. Sections that leave out these packages record it in `beside`."""
    if isinstance(section, DebLock):
        return fingerprint([[deb.package, deb.version] for deb in section.packages])
    return fingerprint([[wheel.name, wheel.version] for wheel in section.wheels])


def sealed_pin(pin: Pin) -> Pin:
    """The pin with its seal: a hash over the image's name and the digests."""
    return pin.model_copy(update={"seal": _pin_seal(pin)})


def is_own_pin(pin: Pin) -> bool:
    """Whether the digests belong to this image: the seal matches, or there is none as the pin was set by hand."""
    return pin.seal in (None, _pin_seal(pin))


def _pin_seal(pin: Pin) -> str:
    return fingerprint([pin.image, pin.index, pin.manifest])


def _seal(section: Strict) -> str:
    # A key without a value is left out, so that a new optional key does not break the seals of older files.
    return fingerprint(section.model_dump(mode="json", exclude={"seal"}, exclude_none=True))
