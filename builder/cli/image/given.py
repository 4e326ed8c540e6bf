"""A plan that the command line gives as a bundle: a file, or what is attached to an image."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from builder.errors import UsageError
from builder.mirror.basefetch import base_image
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.model.reference import DOCKER_HUB, Reference
from builder.oci.assemble import BaseImage
from builder.plan.bundle import LIMIT, read_bundle
from builder.registry.client import Registry
from builder.regular import read_regular
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.remote import remote_image
from builder.store.store import Store
from builder.text import closest, printable
from builder.verify.bundles import Bundle, bundle_of, inputs_source


def given_plan(
    text: str, store: Store, *, trusted: bool, offline: bool, source: MirrorSource | None
) -> tuple[Plan, MirrorSource | None, bool]:
    """The plan of `--plan FILE|REF`, where its inputs are (`source`, else beside the image if they are there), and
    whether it is the user's own.

    A file is the user's own; the plan of an image is shown, and asked for. A file whose path is also the reference of
    an image is refused: it may be in the folder of a stranger. store, offline: for the base of a plan.

    Raises BuilderError.
    """
    path = Path(text)
    if path.exists():
        refuse_ambiguous(text)
        try:
            return read_bundle(read_regular(path, LIMIT, follow=True), text), source, True
        except OSError as error:
            raise UsageError(
                f"cannot be read: {error.strerror}",
                id="bundle-unreadable",
                where=text or ".",
                next="write one: builder plan NAME --bundle FILE",
            ) from None
    reference = image_reference(text)
    client = Registry()
    image = remote_image(reference, client)
    bundle, source = bundle_and_source(client, reference, image, store, offline=offline, source=source)
    ask_trust(bundle.plan, text, trusted=trusted)
    return bundle.plan, source, False


def refuse_ambiguous(text: str) -> None:
    """Raises UsageError when the path of a file is the reference of an image with a registry, a tag or a digest, too:
    the folder may be a stranger's."""
    try:
        found = Reference.parse(text)
    except UsageError:
        return
    if found.registry != DOCKER_HUB or found.tag or found.digest:
        raise UsageError(
            "both a file and an image in a registry",
            id="plan-ambiguous",
            where=text,
            next=f"name the file as ./{text}, or change the folder",
        )


def image_reference(text: str, names: Iterable[str] = ()) -> Reference:
    """The reference that a word is, after it was nothing else. names: what a misspelt word may have meant.

    Raises UsageError also for a plain name or a path of a file, which docker would look up on its hub.
    """
    if text.startswith(("/", ".", "sha256:")) or not {"/", ":"} & set(text):
        raise UsageError(
            f"there is no {text!r}",
            id="operand-unknown",
            cause=closest(text, names) or "no file, recipe, revision or image has this name",
            next="name a file that exists, a recipe (builder list), or REGISTRY/REPOSITORY:TAG",
        )
    return Reference.parse(text)


def bundle_and_source(
    client: Registry,
    reference: Reference,
    image: OpenedImage,
    store: Store,
    *,
    offline: bool,
    source: MirrorSource | None,
    preferred: Callable[[Bundle], bool] | None = None,
) -> tuple[Bundle, MirrorSource | None]:
    """The bundle of an image in a registry, and where its inputs are: the named mirror, else beside the image.

    preferred: the bundles to take first, of those that make the image's configuration.

    Raises BuilderError.
    """

    def inputs(bundle: Bundle) -> MirrorSource | None:
        return source or inputs_source(client, reference, bundle)

    def base(bundle: Bundle) -> BaseImage | None:
        return base_image(bundle.plan, store, offline=offline, source=inputs(bundle))

    bundle = bundle_of(client, reference, image, base, preferred)
    return bundle, inputs(bundle)


def ask_trust(plan: Plan, where: str, *, trusted: bool) -> None:
    """Show the commands of a stranger's plan and ask whether to run them. Raises UsageError without consent.

    They run in the build engine, without network.
    """
    programs = [layer for layer in plan.layers if layer.producer == "dockerfile"]
    if trusted or not programs:
        return
    for layer in programs:
        _show(f"# layer {layer.id}, without a network, as root of a container of the build engine:")
        # All of it, also what the plan says is the toolchain's.
        _show(str(layer.dockerfile).rstrip("\n"))
    _show("# the programs and files that they use are those of the plan, too")
    if sys.stdin.isatty() and typer.confirm("Run these commands?", err=True):
        return
    raise UsageError(
        f"the plan runs commands in {len(programs)} layers, which nobody has agreed to",
        id="plan-not-trusted",
        where=where,
        next="read them above, then repeat the command with --trust-plan",
    )


def _show(text: str) -> None:
    """Print what a question is about, also with --quiet."""
    print(printable(text), file=sys.stderr, flush=True)
