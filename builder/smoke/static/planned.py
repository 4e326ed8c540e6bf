"""The static check that an image is the planned one: its configuration, field by field, and its layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.static.context import Context, Reads
from builder.text import first_few

_SETS = ("Env", "Labels")


@check_kind("static", "planned", Reads("none"))
def planned(context: Context, *, config: Mapping[str, Any], base: str | None = None) -> str:
    """The configuration is `config`, and nothing else: every field, variable, label, line of history and diff_id.

    A diff_id of null is not known, and then the check does not pass. base: the reference of a base whose configuration
    is not known; then history and diff_ids end with those of `config`, and the other fields are not compared.
    """
    have = context.image.config
    count = len(config["rootfs"]["diff_ids"])
    skip = 0 if base is None else max(0, len(context.image.layers) - count)
    bad = [*_layers(context, config, skip)]
    if base is None:
        bad += _fields("", have, config, ("config", "rootfs", "history"))
        bad += _fields("rootfs.", have.get("rootfs") or {}, config["rootfs"], ("diff_ids",))
        bad += _fields("", have.get("config") or {}, config["config"], _SETS)
        bad += _fields("the variable ", _variables(have), _variables(config))
        if not bad and len(have["config"]["Env"]) != len(config["config"]["Env"]):
            bad.append("a variable is set twice")
        bad += _fields("the label ", context.image.settings.get("Labels") or {}, config["config"].get("Labels") or {})
    if bad:
        raise CheckFailed(first_few(bad))
    if base is not None:
        raise CheckNotRun(
            f"the configuration of {base} is not on this machine; our {count} layers are on top, as planned"
        )
    if unknown := config["rootfs"]["diff_ids"].count(None):
        raise CheckNotRun(
            f"{unknown} of {count} layers were not built on this machine, and cannot be compared; the configuration "
            "is as planned"
        )
    return f"{count} layers and the configuration, as planned"


def _layers(context: Context, config: Mapping[str, Any], skip: int) -> Iterator[str]:
    """Differences in number, names and diff_ids of the layers. skip: layers of a base that is not known."""
    image = context.image
    have = image.diff_ids[skip:]
    wanted = config["rootfs"]["diff_ids"]
    if not len(image.layers) - skip == len(have) == len(wanted):
        yield f"{len(image.layers)} layers and {len(image.diff_ids)} diff_ids, {skip + len(wanted)} are planned"
    elif bad := [
        f"{context.name(skip + number)} is {found}, not {digest}"
        for number, (found, digest) in enumerate(zip(have, wanted, strict=False))
        if digest is not None and found != digest
    ]:
        yield from bad
    lines, planned_lines = image.config.get("history") or [], config["history"]
    if skip:
        lines = lines[max(0, len(lines) - len(planned_lines)) :]
    if lines != planned_lines:
        pairs = enumerate(zip([*lines, None], [*planned_lines, None], strict=False))
        number, found = next(((number, one) for number, (one, other) in pairs if one != other), (len(lines), None))
        text = (found or {}).get("created_by", "absent")
        yield f"line {number + 1} of the history is not the planned one: {str(text)[:80]}"


def _fields(what: str, have: Mapping[str, Any], wanted: Mapping[str, Any], skip: Sequence[str] = ()) -> Iterator[str]:
    """Differences in single fields. A field without a value is as good as none."""
    for name in [*wanted, *(name for name in have if name not in wanted)]:
        if name in skip or (have.get(name) or None) == (wanted.get(name) or None):
            continue
        if wanted.get(name) is None:
            yield f"{what}{name} is not planned"
        elif have.get(name) is None:
            yield f"{what}{name} is planned, but not set"
        else:
            yield f"{what}{name} is not as planned"


def _variables(config: Mapping[str, Any]) -> dict[str, str]:
    words = (config.get("config") or {}).get("Env") or ()
    return {name: value for name, _, value in (word.partition("=") for word in words)}
