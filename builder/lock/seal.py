"""The seal of a section or a pin: whether it still is what was resolved, whoever edited or merged the file since."""

from __future__ import annotations

from typing import TypeVar

from builder.model.base import Pin
from builder.model.canonical import fingerprint
from builder.model.common import Strict
from builder.model.lock import LockSection, WheelLock

CHANGED = "was changed since it was resolved, by hand or by a merge"

Section = TypeVar("Section", bound=Strict)


def sealed(section: Section) -> Section:
    """The section with its seal: the hash of canonical JSON over all of it but the seal."""
    return section.model_copy(update={"seal": _seal(section)})


def is_whole(section: LockSection) -> bool:
    """Whether the section is as it was sealed. A seal finds accidents; what a build uses is checked by its own hash."""
    return section.seal == _seal(section)


def held(section: WheelLock) -> str:
    """A digest of what a section binds those to that leave it out: its distributions and their versions."""
    return fingerprint([[wheel.name, wheel.version] for wheel in section.wheels])


def sealed_pin(pin: Pin) -> Pin:
    """The pin with its seal: a hash over the image's name and the digests."""
    return pin.model_copy(update={"seal": _pin_seal(pin)})


def is_own_pin(pin: Pin) -> bool:
    """Whether the digests are those of this image: as they were sealed, or set by hand, without a seal."""
    return pin.seal in (None, _pin_seal(pin))


def _pin_seal(pin: Pin) -> str:
    return fingerprint([pin.image, pin.index, pin.manifest])


def _seal(section: Strict) -> str:
    return fingerprint(section.model_dump(mode="json", exclude={"seal"}))
