"""Statements about an image in a registry: attached when it is pushed, read with the keys that signed them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from builder.attest import cyclonedx, spdx
from builder.attest.envelope import MEDIA_TYPE, read_envelope
from builder.attest.inventory import Inventory, expected
from builder.attest.keys import SigningKey
from builder.attest.provenance import provenance
from builder.attest.statement import (
    CYCLONEDX,
    LIMIT,
    PROVENANCE,
    SIGNED,
    SPDX,
    STATEMENT,
    VALUES,
    read_statement,
    write_statement,
)
from builder.digest import Digest
from builder.errors import InvalidError, PinError
from builder.jsontext import parse_json
from builder.model.canonical import canonical
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.bundle import write_bundle
from builder.registry.client import Registry
from builder.registry.referrers import Artifact, attach_all, attached, read_attached
from builder.registry.signed import MOST, signed_artifact
from builder.verify.compare import Compared

_PACKAGES = re.compile(r"/(?:dist|site)-packages(?![\w./-])")
"""The folder that a step names when it installs for Python; a step that places one file names a path below it."""
_NAMES = {PROVENANCE: "provenance", CYCLONEDX: "CycloneDX SBOM", SPDX: "SPDX SBOM"}


def statements_about(inventory: Inventory, plan: Plan) -> dict[str, dict[str, Any]]:
    """What a push says about an image: the predicates by type."""
    return {
        PROVENANCE: provenance(plan, Digest.of(write_bundle(plan))),
        CYCLONEDX: cyclonedx.cyclonedx(inventory),
        SPDX: spdx.spdx(inventory),
    }


def attach_statements(
    client: Registry,
    target: Reference,
    image: Digest,
    size: int,
    said: Mapping[str, Mapping[str, Any]],
    key: SigningKey | None,
) -> None:
    """Attach statements to a pushed image. size: of its manifest, in bytes. said: predicates by type.

    SBOMs are attached as they are, for scanners. With a key, the image as such and every statement is signed and
    attached as a Sigstore bundle; without one, the statements that are no SBOMs are attached unsigned.
    Raises NetworkError, PinError.
    """
    plain = {CYCLONEDX: cyclonedx.MEDIA_TYPE, SPDX: spdx.MEDIA_TYPE}
    artifacts = [Artifact(canonical(said[kind]), plain[kind]) for kind in plain if kind in said]
    if key is None:
        artifacts += [
            Artifact(write_statement(image, kind, predicate), STATEMENT, {"in-toto.io/predicate-type": kind})
            for kind, predicate in said.items()
            if kind not in plain
        ]
    else:
        artifacts += [signed_artifact(image, kind, predicate, key) for kind, predicate in {SIGNED: {}, **said}.items()]
    attach_all(client, target, _subject(image, size), artifacts)


def attach_signed(
    client: Registry,
    target: Reference,
    image: Digest,
    size: int,
    kind: str,
    predicate: Mapping[str, Any],
    key: SigningKey,
) -> Digest:
    """Sign one statement and attach it as a Sigstore bundle; returns the digest of the artifact.

    Arguments and errors as those of `attach_statements`.
    """
    (artifact,) = attach_all(client, target, _subject(image, size), [signed_artifact(image, kind, predicate, key)])
    return artifact


def _subject(image: Digest, size: int) -> dict[str, Any]:
    return {"mediaType": OCI_MANIFEST, "digest": image, "size": size}


def compare_statements(client: Registry, reference: Reference, image: Digest, plan: Plan) -> Iterator[Compared]:
    """SBOMs and provenance that are attached to an image, signed or not, against the plan that makes it.

    Provenance of another bundle is not compared: several plans may make the same bytes. Raises NetworkError.
    """
    bundle = Digest.of(write_bundle(plan))
    wanted = provenance(plan, bundle)["buildDefinition"]
    for artifact, kind, document in _documents(client, reference, image):
        name = f"{_NAMES[kind]} {artifact.short}"
        if kind == PROVENANCE and not isinstance(document, str) and _bundle_of(document) not in (None, bundle.hex):
            yield Compared(name, "not compared", artifact, None, "it is about another bundle")
            continue
        problem = document if isinstance(document, str) else _problem(kind, document, plan, wanted)
        yield Compared(name, "differs" if problem else "identical", artifact, None, problem)


def _documents(
    client: Registry, reference: Reference, image: Digest
) -> Iterator[tuple[Digest, str, Mapping[str, Any] | str]]:
    """Digest, type and content of each document; a text says why one cannot be read."""
    types = {cyclonedx.MEDIA_TYPE: CYCLONEDX, spdx.MEDIA_TYPE: SPDX, STATEMENT: PROVENANCE, MEDIA_TYPE: None}
    for media_type, kind in types.items():
        for descriptor in attached(client, reference, image, media_type)[:MOST]:
            artifact = Digest(descriptor["digest"])
            try:
                blob = read_attached(client, reference, descriptor, 2 * LIMIT).payload
                if media_type in (STATEMENT, MEDIA_TYPE):
                    where = f"statement {artifact}"
                    payload = read_envelope(blob, where).payload if media_type == MEDIA_TYPE else blob
                    statement = read_statement(payload, where)
                    if statement.type in _NAMES and image in statement.subjects:
                        yield artifact, statement.type, statement.predicate
                    continue
                document = parse_json(blob, VALUES)
                yield artifact, str(kind), document if isinstance(document, dict) else "it is no JSON object"
            except (InvalidError, PinError, ValueError) as error:
                # A statement that cannot be read says nothing; an SBOM is known by its media type.
                if kind is not None and media_type != STATEMENT:
                    yield artifact, kind, f"it cannot be read: {getattr(error, 'what', error)}"


def _bundle_of(predicate: Mapping[str, Any]) -> str | None:
    """The bundle that provenance says an image was made from; None when it says none."""
    value: Any = predicate
    for name in ("buildDefinition", "externalParameters", "bundle", "sha256"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _problem(kind: str, document: Mapping[str, Any], plan: Plan, wanted: Mapping[str, Any]) -> str:
    """In what a document differs from a plan; "" when it does not. wanted: the build definition of its provenance."""
    if kind == PROVENANCE:
        found = document.get("buildDefinition")
        parts = [name for name in wanted if not isinstance(found, dict) or found.get(name) != wanted[name]]
        return f"{', '.join(parts)} of the plan differ" if parts else ""
    try:
        listed = (cyclonedx if kind == CYCLONEDX else spdx).listed(document)
    except ValueError as error:
        return str(error)
    ours = expected(plan)
    # What a base brings is not in the plan, nor are distributions that steps compile; those have no file of their own.
    hermetic = plan.base_image is None
    compiled = any(layer.producer == "dockerfile" and _PACKAGES.search(layer.stages) for layer in plan.layers)
    unplanned = [
        purl
        for purl, sha256 in listed.items()
        if purl not in ours and not (compiled and purl.startswith("pkg:pypi/") and not sha256)
    ]
    problems = {
        "lacks": [purl for purl in ours if purl not in listed],
        "has another hash for": [purl for purl in ours if purl in listed and listed[purl] != ours[purl]],
        "lists what is not in the image:": unplanned if hermetic else [],
    }
    return "; ".join(
        f"it {words} {', '.join(purls[:3])}{f' and {len(purls) - 3} more' if len(purls) > 3 else ''}"
        for words, purls in problems.items()
        if purls
    )
