"""The static tier: checks that read an image without running it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.image.opened import Image, open_image
from builder.smoke.image.scan import Looks
from builder.smoke.image.tree import Absent, ImageTree
from builder.smoke.report import Report, Result, Status

if TYPE_CHECKING:
    from pydantic import ValidationError


class Failed(Exception):
    """A check found what must not be."""


class Warned(Exception):
    """A check found what should not be, but may."""


class NotRun(Exception):
    """A check does not apply or cannot look."""


@dataclass(frozen=True)
class Found:
    """What a check found, where text is not enough. details: for --json and the page."""

    message: str
    details: Any


@dataclass(frozen=True)
class Context:
    """What a check looks at. ours: digests of the layers that were built here, None when that is not known."""

    tree: ImageTree
    ours: Collection[str] | None = None

    @property
    def image(self) -> Image:
        """The manifest and configuration."""
        return self.tree.image

    def name(self, layer: int) -> str:
        """What people call a layer: the id it was built under, else its number."""
        return self.image.names[layer] or f"layer {layer}"

    def is_ours(self, layer: int) -> bool:
        """Whether a layer, counted from 0, was built here. Not knowing, every layer counts as ours."""
        return self.ours is None or self.image.layers[layer].digest in self.ours


Reads = Literal["nothing", "ours", "all"]
"""Which layers a kind of check looks into: none, those built here, or whichever has a file."""


@dataclass(frozen=True)
class StaticKind:
    """A kind of check. run says what it found, or raises Failed, Warned, NotRun or Absent.

    keeps: files whose content it will read. reads: the layers it looks into. looks: what is to be looked at in them.
    """

    run: Callable[..., str | Found]
    keeps: Callable[[Image, Mapping[str, Any]], Iterable[str]]
    reads: Reads
    looks: Looks
    one_path: bool = False
    """Whether it looks at nothing but what its argument `path` leads to."""


KINDS: dict[str, StaticKind] = {}

ALWAYS = tuple(
    Check(id=f"image-{kind}", tier="static", kind=kind)
    for kind in (
        "platform",
        "config",
        "layer-limit",
        "layer-size",
        "blobs",
        "parents-0755",
        "places",
        "owners",
        "no-setuid",
        "no-world-writable",
        "no-secrets",
        "no-bytecode",
        "elf-ours",
        "symbol-versions",
        "gpu-code",
        "distributions",
        "records",
        "starts",
        "vllm-env",
    )
)
"""What every image must pass, whatever its layers ask for."""


def kind(
    name: str,
    keeps: Callable[[Image, Mapping[str, Any]], Iterable[str]] = lambda image, args: (),
    *,
    reads: Reads = "all",
    looks: Looks = Looks(),  # noqa: B008 (a frozen value)
    one_path: bool = False,
) -> Callable[[Callable[..., str | Found]], Callable[..., str | Found]]:
    """Register a check: a function of the context and keyword arguments, which are the check's `args`."""

    def register(function: Callable[..., str | Found]) -> Callable[..., str | Found]:
        from pydantic import ConfigDict, validate_call

        checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True, strict=True))(function)
        KINDS[name] = StaticKind(checked, keeps, reads, looks, one_path)
        return function

    return register


def run_static(
    layout: Path,
    manifest_digest: str | None,
    checks: Sequence[Check],
    *,
    ours: Collection[str] | None = None,
    always: Sequence[Check] = ALWAYS,
    folder: Path | None = None,
) -> Report:
    """Run the static checks among `checks`, and those of every image, on one image.

    layout: an OCI layout, or a store. ours: digests of the layers built here (the others are the base's).
    folder: where to put files that checks read, by default the system's folder for temporary files.
    Raises InvalidError for a check that does not exist or has wrong arguments, and for an unreadable image.
    """
    return check_image(open_image(layout, manifest_digest), checks, ours=ours, always=always, folder=folder)


def check_image(
    image: Image,
    checks: Sequence[Check],
    *,
    ours: Collection[str] | None = None,
    always: Sequence[Check] = ALWAYS,
    folder: Path | None = None,
) -> Report:
    """The same for an image that was opened, be it here or in a registry."""
    asked = [check for check in checks if check.tier == "static"]
    # A check by the name of one that every image must pass takes its place: with exceptions, or with what is known.
    named = {check.id: check for check in asked}
    every = {check.id for check in always}
    wanted = [*(named.get(check.id, check) for check in always), *(check for check in asked if check.id not in every)]
    kinds = [_kind(check) for check in wanted]
    report = Report(image.digest)
    with tempfile.TemporaryDirectory(prefix="builder-smoke-", dir=folder) as kept:
        keep = {pattern for kind, check in zip(kinds, wanted, strict=True) for pattern in kind.keeps(image, check.args)}
        looks = Looks(*(any(getattr(kind.looks, name) for kind in kinds) for name in ("elf", "secrets", "hash")))
        only = _layers(image, kinds, ours)
        tree = ImageTree(image, Path(kept), sorted(keep), looks, only, _until(image, wanted, kinds))
        context = Context(tree, ours)
        report.results = [run_check(context, check) for check in wanted]
    if tree.absent and "all" in (kind.reads for kind in kinds):
        report.notes.append(f"{len(tree.absent)} of {len(image.layers)} layers (the base's) are not here to look into")
    return report


def _layers(image: Image, kinds: Iterable[StaticKind], ours: Collection[str] | None) -> list[int]:
    """The layers to read: what is in a registry is not fetched for checks that do not need it."""
    reads = {kind.reads for kind in kinds}
    if reads <= {"nothing"}:
        return []
    return [
        number
        for number, blob in enumerate(image.layers)
        if ours is None or blob.digest in ours or ("all" in reads and blob.remote is None)
    ]


def _until(image: Image, checks: Sequence[Check], kinds: Sequence[StaticKind]) -> list[str] | None:
    """The paths to look for from the top layer down, when nothing but them is asked of an image in a registry."""
    asked = [(check, kind) for check, kind in zip(checks, kinds, strict=True) if kind.reads != "nothing"]
    if not any(blob.remote for blob in image.layers) or not all(kind.one_path for _, kind in asked):
        return None
    paths = [str(check.args.get("path") or "") for check, _ in asked]
    return paths if all(paths) else None


def run_check(context: Context, check: Check) -> Result:
    """Run one check. Raises InvalidError when it does not exist or has wrong arguments."""
    from pydantic import ValidationError

    start = time.monotonic()
    status: Status = "pass"
    arguments = {name.replace("-", "_"): _frozen(value) for name, value in check.args.items()}
    details = None
    try:
        found = _kind(check).run(context, **arguments)
        message, details = (found.message, found.details) if isinstance(found, Found) else (found, None)
    except ValidationError as error:
        raise invalid_args(check, error) from error
    except NotRun as reason:
        status, message = "not-run", str(reason)
    except Warned as reason:
        status, message = "warn", str(reason)
    except (Failed, Absent, ValueError) as reason:
        status, message = "fail", str(reason)
        if context.tree.absent and isinstance(reason, Absent):
            status, message = "not-run", f"{reason}; the base's layers are not here to look into"
    return Result(check.id, check.kind, "static", status, message, round(time.monotonic() - start, 3), details)


def invalid_args(check: Check, error: ValidationError) -> InvalidError:
    """What to tell about a check whose args do not fit its kind."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return InvalidError(
        f"check {check.id} ({check.kind}): {where}: {problem['msg']}", cause="its args do not fit this kind of check"
    )


def _kind(check: Check) -> StaticKind:
    # The kinds register themselves; importing them here keeps this module free of a cycle.
    from builder.smoke.static import kinds  # noqa: F401

    try:
        return KINDS[check.kind]
    except KeyError:
        import difflib

        close = difflib.get_close_matches(check.kind, KINDS, 1)
        raise InvalidError(
            f"check {check.id}: no static check {check.kind!r}",
            next=f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(KINDS))}",
        ) from None


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
