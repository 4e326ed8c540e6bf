"""The page of an image in a registry: what its configuration and what is attached to it say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builder.attest.cyclonedx import MEDIA_TYPE as CYCLONEDX_TYPE
from builder.attest.envelope import MEDIA_TYPE as ENVELOPE
from builder.attest.keys import PublicKey
from builder.attest.provenance import tested
from builder.attest.score import image_level, scores
from builder.attest.spdx import MEDIA_TYPE as SPDX_TYPE
from builder.attest.statement import STATEMENT, TESTED
from builder.errors import BuilderError, InvalidError, NetworkError, PinError
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.plan.explain import INPUT_KINDS
from builder.plan.imageconfig import BASE_LABEL, RECIPE_LABEL
from builder.project import Project
from builder.registry.client import Registry
from builder.registry.referrers import attached, read_attached
from builder.registry.signed import Ignored, Said, signed_statements
from builder.site.facts import Package, Page, Proof, State, mapping
from builder.site.stored import VENDOR, layers_of, overrides
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.remote import remote_image
from builder.smoke.report import Report
from builder.smoke.results import LIMIT, MEDIA_TYPE, parse_results
from builder.verify.bundles import bundles_of

_MOST = 20
"""Artifacts of one type that are looked at."""


def remote_page(text: str, project: Project, keys: Sequence[PublicKey], client: Registry) -> Page:
    """The page of an image. keys: of those whose statements count. Raises NetworkError, PinError, InvalidError."""
    reference = Reference.parse(text)
    image = remote_image(reference, client)
    pinned = reference.pinned(image.digest)
    plan = _plan(client, reference, image)
    labels = mapping(image.settings.get("Labels"))
    found = list(signed_statements(client, reference, image.digest, keys)) if keys else []
    said = [item for item in found if isinstance(item, Said)]
    report, vouched = _report(client, reference, image, said)
    recipe = str(labels.get(RECIPE_LABEL) or reference.repository.rpartition("/")[2])[:100]
    return Page(
        recipe=recipe,
        base=str(labels.get(BASE_LABEL) or "unknown base")[:100],
        digest=image.digest,
        place=str(reference),
        commands={"Pull it": f"docker pull {pinned}", "Rebuild and compare it": f"builder verify {pinned}"},
        config=image.config,
        layers=layers_of(image),
        packages=_packages(plan),
        note=f"As the attached plan says. {VENDOR}" if plan else "No plan is attached to the image.",
        proofs=[*_attachments(client, reference, image, plan), *_signatures(client, reference, image, keys, found)],
        report=report,
        vouched=vouched,
        overrides=overrides(project, recipe),
    )


def _plan(client: Registry, reference: Reference, image: OpenedImage) -> Plan | None:
    """The plan of a bundle that names the layers of the image; None when there is none."""
    named = [name for name in image.names if name]
    try:
        for bundle in bundles_of(client, reference, image.digest):
            if [layer.id for layer in bundle.plan.layers if layer.producer != "config"] == named:
                return bundle.plan
    except NetworkError:
        raise
    except BuilderError:
        pass
    return None


def _packages(plan: Plan | None) -> list[Package]:
    inputs = [item for layer in plan.layers for item in layer.inputs] if plan is not None else []
    found = {Package(INPUT_KINDS[item.kind], item.package, item.version) for item in inputs if item.kind in INPUT_KINDS}
    return sorted(found)


def _report(
    client: Registry, reference: Reference, image: OpenedImage, said: Sequence[Said]
) -> tuple[Report | None, bool]:
    """The last attached results of checks that can be read, and whether a signed statement says the same of each check.

    Anybody who may push can attach results: those that are signed come first.
    """
    signed = [item.statement.predicate for item in said if item.statement.type == TESTED]
    last: Report | None = None
    for descriptor in reversed(attached(client, reference, image.digest, MEDIA_TYPE)[:_MOST]):
        try:
            payload = read_attached(client, reference, descriptor, LIMIT).payload
            report = parse_results(payload, image.digest, str(reference))
        except (InvalidError, PinError):
            continue
        if tested(image.digest, [(item.tier, item.id, item.status) for item in report.results]) in signed:
            return report, True
        last = last or report
    return last, False


def _attachments(client: Registry, reference: Reference, image: OpenedImage, plan: Plan | None) -> Iterator[Proof]:
    yield Proof("Plan", "yes" if plan else "no", "attached: anybody can rebuild it" if plan else "not attached")
    kinds = {CYCLONEDX_TYPE: "CycloneDX", SPDX_TYPE: "SPDX"}
    boms = [name for kind, name in kinds.items() if attached(client, reference, image.digest, kind)]
    yield Proof("Bill of materials", "yes" if boms else "no", " and ".join(boms) or "not attached")


def _signatures(
    client: Registry,
    reference: Reference,
    image: OpenedImage,
    keys: Sequence[PublicKey],
    found: Sequence[Said | Ignored],
) -> Iterator[Proof]:
    """found: what is attached and signed, if there are keys."""
    if not keys:
        count = sum(len(attached(client, reference, image.digest, kind)[:_MOST]) for kind in (ENVELOPE, STATEMENT))
        text = f"{count} statements are attached, and none was checked" if count else "no statement is attached"
        yield Proof("Signed", "unknown", text)
        return
    said = [item for item in found if isinstance(item, Said)]
    signers = list(dict.fromkeys(item.signer.name for item in said))
    rest = f"; {len(found) - len(said)} other statements do not count" if len(found) > len(said) else ""
    yield Proof(
        "Signed", "yes" if signers else "no", (f"by {', '.join(signers)}" if signers else "by none of the keys") + rest
    )
    pairs = [(item.signer.name, item.statement) for item in said]
    level = image_level(scores([layer.digest for layer in image.layers], pairs), pairs)
    states: dict[str, State] = {"differs": "no", "bit-identical": "yes"}
    yield Proof("Rebuilt", states.get(level, "unknown"), level)
