"""Static checks of an image's configuration and manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from builder.smoke.static import Context, Failed, kind

_GB = 1_000_000_000


@kind("platform")
def platform(context: Context, *, platform: str = "linux/arm64") -> str:
    """The configuration says this platform."""
    config = context.image.config
    found = f"{config.get('os')}/{config.get('architecture')}"
    if found != platform:
        raise Failed(f"the image is for {found}, not {platform}")
    return found


@kind("layer-limit")
def layer_limit(context: Context, *, most: int = 127) -> str:
    """No more layers than container engines can mount (127)."""
    count = len(context.image.layers)
    if count > most:
        raise Failed(f"{count} layers, {most} is the limit")
    return f"{count} layers"


@kind("layer-size")
def layer_size(context: Context, *, most_gb: float = 10.0) -> str:
    """No layer blob larger than `most_gb` (10^9 bytes): registries refuse those."""
    sizes = [blob.size for blob in context.image.layers]
    for blob in context.image.layers:
        if blob.size > most_gb * _GB:
            raise Failed(f"{blob.digest} has {blob.size / _GB:.1f} GB, {most_gb:g} is the limit")
    return f"{sum(sizes) / _GB:.2f} GB, the largest layer {max(sizes, default=0) / _GB:.2f} GB"


@kind("env")
def env(
    context: Context,
    *,
    name: str,
    value: str | None = None,
    starts: str | None = None,
    matches: str | None = None,
    absent: bool = False,
) -> str:
    """The variable is set: to `value`, beginning with `starts`, matching `matches` as a whole; or is not set."""
    return _text(
        f"the variable {name}", context.image.env.get(name), value=value, starts=starts, matches=matches, absent=absent
    )


@kind("label")
def label(
    context: Context,
    *,
    name: str,
    value: str | None = None,
    starts: str | None = None,
    matches: str | None = None,
    absent: bool = False,
) -> str:
    """The label is there, with the same conditions as `env`."""
    labels = context.image.settings.get("Labels") or {}
    return _text(f"the label {name}", labels.get(name), value=value, starts=starts, matches=matches, absent=absent)


@kind("entrypoint")
def entrypoint(
    context: Context,
    *,
    entrypoint: Sequence[str] | None = None,
    command: Sequence[str] | None = None,
    begins: bool = False,
) -> str:
    """Entrypoint and command are these; with `begins`, they begin with these."""
    settings = context.image.settings
    found = {"entrypoint": settings.get("Entrypoint") or [], "command": settings.get("Cmd") or []}
    for what, wanted in (("entrypoint", entrypoint), ("command", command)):
        if wanted is None:
            continue
        have = found[what][: len(wanted)] if begins else found[what]
        if list(have) != list(wanted):
            raise Failed(f"the {what} is {found[what]}, expected {'it to begin with ' if begins else ''}{list(wanted)}")
    words = [*found["entrypoint"], *found["command"]]
    return " ".join(words)[:200] or "neither entrypoint nor command"


def _text(
    what: str, found: str | None, *, value: str | None, starts: str | None, matches: str | None, absent: bool
) -> str:
    if absent:
        if found is not None:
            raise Failed(f"{what} is {found!r}, it must not be set")
        return "not set"
    if found is None:
        raise Failed(f"{what} is not set")
    if value is not None and found != value:
        raise Failed(f"{what} is {found!r}, expected {value!r}")
    if starts is not None and not found.startswith(starts):
        raise Failed(f"{what} is {found!r}, expected it to begin with {starts!r}")
    if matches is not None and not re.fullmatch(matches, found):
        raise Failed(f"{what} is {found!r}, which does not match {matches!r}")
    return found
