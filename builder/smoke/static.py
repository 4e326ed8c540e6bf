"""The static tier: checks that read an image without running it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.image import Image, open_image
from builder.smoke.report import Report, Result, Status
from builder.smoke.tree import Absent, ImageTree

if TYPE_CHECKING:
    from pydantic import ValidationError


class Failed(Exception):
    """A check found what must not be."""


class NotRun(Exception):
    """A check does not apply or cannot look."""


@dataclass(frozen=True)
class Context:
    """What a check looks at. ours: digests of the layers that were built here, None when that is not known."""

    tree: ImageTree
    ours: Collection[str] | None = None

    @property
    def image(self) -> Image:
        """The manifest and configuration."""
        return self.tree.image

    def is_ours(self, layer: int) -> bool:
        """Whether a layer, counted from 0, was built here. Not knowing, every layer counts as ours."""
        return self.ours is None or self.image.layers[layer].digest in self.ours


@dataclass(frozen=True)
class StaticKind:
    """A kind of check. run says what it found, or raises Failed, NotRun or Absent. keeps: files it will read."""

    run: Callable[..., str]
    keeps: Callable[[Image, Mapping[str, Any]], Iterable[str]]


KINDS: dict[str, StaticKind] = {}

ALWAYS = tuple(
    Check(id=f"image-{kind}", tier="static", kind=kind)
    for kind in ("platform", "layer-limit", "layer-size", "parents-0755", "no-setuid", "no-world-writable")
)
"""What every image must pass, whatever its layers ask for."""


def kind(
    name: str, keeps: Callable[[Image, Mapping[str, Any]], Iterable[str]] = lambda image, args: ()
) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a check: a function of the context and keyword arguments, which are the check's `args`."""

    def register(function: Callable[..., str]) -> Callable[..., str]:
        from pydantic import ConfigDict, validate_call

        checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True, strict=True))(function)
        KINDS[name] = StaticKind(checked, keeps)
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
    image = open_image(layout, manifest_digest)
    wanted = [*always, *(check for check in checks if check.tier == "static")]
    report = Report(image.digest)
    with tempfile.TemporaryDirectory(prefix="builder-smoke-", dir=folder) as kept:
        keep = {pattern for check in wanted for pattern in _kind(check).keeps(image, check.args)}
        tree = ImageTree(image, Path(kept), sorted(keep))
        context = Context(tree, ours)
        report.results = [run_check(context, check) for check in wanted]
    if tree.absent:
        report.notes.append(f"{len(tree.absent)} of {len(image.layers)} layers (the base's) are not here to look into")
    return report


def run_check(context: Context, check: Check) -> Result:
    """Run one check. Raises InvalidError when it does not exist or has wrong arguments."""
    from pydantic import ValidationError

    start = time.monotonic()
    status: Status = "pass"
    arguments = {name.replace("-", "_"): _frozen(value) for name, value in check.args.items()}
    try:
        message = _kind(check).run(context, **arguments)
    except ValidationError as error:
        raise invalid_args(check, error) from error
    except NotRun as reason:
        status, message = "not-run", str(reason)
    except (Failed, Absent, ValueError) as reason:
        status, message = "fail", str(reason)
        if context.tree.absent and isinstance(reason, Absent):
            status, message = "not-run", f"{reason}; the base's layers are not here to look into"
    return Result(check.id, check.kind, "static", status, message, round(time.monotonic() - start, 3))


def invalid_args(check: Check, error: ValidationError) -> InvalidError:
    """What to tell about a check whose args do not fit its kind."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return InvalidError(
        f"check {check.id} ({check.kind}): {where}: {problem['msg']}", cause="its args do not fit this kind of check"
    )


def _kind(check: Check) -> StaticKind:
    # The kinds register themselves; importing them here keeps this module free of a cycle.
    from builder.smoke import kinds_config, kinds_cuda, kinds_files  # noqa: F401

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
    return tuple(value) if isinstance(value, list) else value
