"""Who vouches for an image: demands signed statements about it, and signs what a rebuild has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from builder.attest.keys import PublicKey, SigningKey
from builder.attest.provenance import rebuilt
from builder.attest.statement import CYCLONEDX, PROVENANCE, REBUILT, SIGNED, SPDX, TESTED, Statement
from builder.cli.output import print_json, say
from builder.cli.proof.keys import read_signing_key
from builder.cli.proof.policy import ImagePolicy, enforce
from builder.digest import Digest
from builder.engine.interface import Engine, host_architecture
from builder.errors import DiffersError, PinError, UsageError
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.plan.bundle import write_bundle
from builder.registry.client import Registry
from builder.registry.signed import Ignored, Said, signed_statements
from builder.smoke.image.remote import remote_image
from builder.verify.compare import Compared
from builder.verify.statements import attach_signed
from builder.verify.vary.run import Varied

_NAMES = {
    SIGNED: "the image",
    PROVENANCE: "its provenance",
    CYCLONEDX: "its SBOM (CycloneDX)",
    SPDX: "its SBOM (SPDX)",
    TESTED: "results of its checks",
    REBUILT: "a rebuild",
}


def demand_only(
    reference: Reference, keys: Sequence[PublicKey], policy: ImagePolicy | None, *, rebuild: bool, json: bool
) -> None:
    """`verify --no-rebuild`: demand signed statements and nothing else. rebuild: --attest, which has nothing to sign.

    Raises UsageError, and as `demand_signed`.
    """
    if not (keys or policy) or rebuild:
        what = "--no-rebuild without --signed-by or --policy checks nothing"
        what = "--no-rebuild has nothing to attest" if rebuild else what
        raise UsageError(what, id="verify-checks-nothing", next="builder verify REF --no-rebuild --signed-by key.pub")
    image = remote_image(reference).digest
    demand_signed(reference, image, keys, policy)
    say("nothing was rebuilt: whether the plan makes these bytes is not checked")
    if json:
        print_json({"image": image, "verdict": "signed", "signed_by": [key.name for key in keys]})
    else:
        print("signed")


def demand_signed(reference: Reference, image: Digest, keys: Sequence[PublicKey], policy: ImagePolicy | None) -> None:
    """Print who says what about an image; each of the keys must vouch for it, and a policy must be met.

    Raises as `enforce`, PinError when a key does not, DiffersError when one says that a rebuild differs, NetworkError.
    """
    if policy is not None:
        enforce(policy, reference, image)
    if not keys:
        return
    where = reference.pinned(image)
    said, ignored = read_statements(Registry(), reference, image, keys)
    for item in said:
        if item.statement.rebuilt_differs:
            raise DiffersError(
                f"{item.signer.name} has signed that a rebuild of the image differs",
                id="statement-says-differs",
                where=where,
                cause=f"statement {item.artifact}",
                next=f"rebuild it yourself: builder verify {where}",
            )
    for key in keys:
        if not any(item.signer is key and _vouches(item.statement) for item in said):
            only = "it has signed only results of checks, or a rebuild of some layers"
            raise PinError(
                f"no statement that vouches for the image is signed by {key.name}",
                id="statement-missing",
                where=where,
                cause="; ".join(sorted({item.problem for item in ignored})[:3])
                or (only if said else "none is attached to the image"),
                next="ask its publisher for the key, or for the digest that was signed",
            )


def read_statements(
    client: Registry, reference: Reference, image: Digest, keys: Sequence[PublicKey]
) -> tuple[list[Said], list[Ignored]]:
    """The statements about an image that some of the keys signed, and what does not count; prints all of them.

    Raises NetworkError.
    """
    found = list(signed_statements(client, reference, image, keys))
    said = [item for item in found if isinstance(item, Said)]
    ignored = [item for item in found if isinstance(item, Ignored)]
    for item in said:
        say(f"signed by {item.signer.name}: {_words(item.statement)}")
    for other in ignored:
        say(f"does not count: statement {other.artifact.short}: {other.problem}")
    return said, ignored


def _vouches(statement: Statement) -> bool:
    """Whether who signs this stands for the image: results of checks, and a rebuild of some layers, do not say so."""
    return statement.rebuilt_identical or statement.type in (SIGNED, PROVENANCE, CYCLONEDX, SPDX)


def _words(statement: Statement) -> str:
    name = _NAMES.get(statement.type, f"a statement of the type {statement.type[:80]}")
    if statement.type == REBUILT:
        verifier = statement.predicate.get("verifier")
        about = verifier if isinstance(verifier, dict) else {}
        texts = (str(about.get(member) or "none")[:60] for member in ("architecture", "engine"))
        on, engine = texts
        verdict, time = (str(statement.predicate.get(member))[:40] for member in ("verdict", "finishedOn"))
        return f"{name}: {verdict}, on {on} with the engine {engine}, {time}"
    if statement.type == TESTED:
        return f"{name}: {str(statement.predicate.get('result'))[:20]}"
    return name


def attesting_key(path: Path | None, reference: str | None) -> SigningKey:
    """The key of `verify --attest`. Raises UsageError, InvalidError."""
    key = read_signing_key(path)
    if key is None or reference is None:
        what = "--attest needs a key to sign with" if key is None else "--attest needs an image in a registry"
        raise UsageError(what, id="attest-incomplete", next="builder verify REF --attest --key key.pem")
    return key


def attest_rebuild(
    reference: Reference,
    image: Digest,
    plan: Plan,
    verdict: str,
    compared: Sequence[Compared],
    varied: Sequence[Varied],
    *,
    engine: Engine | None,
    key: SigningKey,
) -> None:
    """Sign the outcome of a rebuild, a difference included, and attach it to the image. Raises NetworkError, PinError.

    engine: that compiled; None when none was needed.
    """
    client = Registry()
    version = f"{engine.name} {engine.probe().version}".strip() if engine is not None else None
    rows = [{name: value for name, value in asdict(item).items() if name != "files"} for item in compared]
    said = rebuilt(
        verdict,
        rows,
        {layer.id: layer.key for layer in plan.layers if layer.key},
        plan=Digest.of(write_bundle(plan)),
        machine={"architecture": host_architecture(), "engine": version},
        finished=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        variations=[
            {"variation": item.variation, "layers": item.layers, "changed": item.changed_layers}
            for item in varied
            if item.outcome != "not varied"
        ],
    )
    size = len(client.manifest(reference.at(image)).data)
    artifact = attach_signed(client, reference, image, size, REBUILT, said, key)
    say(f"attested as {artifact}: {verdict}, signed with {key.name}")
