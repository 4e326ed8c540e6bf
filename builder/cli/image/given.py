"""A plan that the command line gives as a bundle: a file, or what is attached to an image."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from builder.cli.output import say
from builder.errors import UsageError
from builder.mirror.basefetch import base_image
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.plan.bundle import LIMIT, read_bundle
from builder.registry.client import Registry
from builder.regular import read_regular
from builder.smoke.image.remote import remote_image
from builder.store.store import Store
from builder.verify.bundles import bundle_of


def given_plan(text: str, store: Store, *, trusted: bool, offline: bool, source: MirrorSource | None) -> Plan:
    """The plan of `--plan FILE|REF`. A file is the user's own; the plan of an image is shown, and asked for.

    store, offline, source: where the base of a plan is read.

    Raises BuilderError.
    """
    path = Path(text)
    if path.exists():
        try:
            return read_bundle(read_regular(path, LIMIT, follow=True), text)
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", id="bundle-unreadable", where=text) from None
    reference = Reference.parse(text)
    client = Registry()
    image = remote_image(reference, client)
    plan = bundle_of(
        client, reference, image, lambda plan: base_image(plan, store, offline=offline, source=source)
    ).plan
    ask_trust(plan, text, trusted=trusted)
    return plan


def ask_trust(plan: Plan, where: str, *, trusted: bool) -> None:
    """Show the commands of a stranger's plan and ask whether to run them. Raises UsageError without consent.

    They run in the build engine, without network.
    """
    programs = [layer for layer in plan.layers if layer.producer == "dockerfile"]
    if trusted or not programs:
        return
    for layer in programs:
        say(f"# layer {layer.id}, without a network, as root of a container of the build engine:")
        say(layer.stages.rstrip("\n"))
    if sys.stdin.isatty() and typer.confirm("Run these commands?", err=True):
        return
    raise UsageError(
        f"the plan runs commands in {len(programs)} layers, which nobody has agreed to",
        id="plan-not-trusted",
        where=where,
        next="read them above, then repeat the command with --trust-plan",
    )
