"""Signed statements as OCI artifacts: made, and read with the key that signed each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.attest.envelope import MEDIA_TYPE, Envelope, read_envelope, sign
from builder.attest.keys import PublicKey, SigningKey
from builder.attest.statement import LIMIT, Statement, write_statement
from builder.digest import Digest
from builder.errors import InvalidError, PinError
from builder.model.reference import Reference
from builder.registry.client import Registry
from builder.registry.referrers import Artifact, attached, read_attached

MOST = 100
"""Artifacts of one type that are read of an image."""
_TYPE = "dev.sigstore.bundle.predicateType"
_CONTENT = {"dev.sigstore.bundle.content": "dsse-envelope"}
"""Annotations of cosign: some clients select bundles by them."""


@dataclass(frozen=True)
class Said:
    """A statement about an image that a known key signed. artifact: its digest."""

    artifact: Digest
    statement: Statement
    signer: PublicKey


@dataclass(frozen=True)
class Ignored:
    """An attached artifact that does not count, and why. statement: anybody's, where there is one. signer: if known."""

    artifact: Digest
    problem: str
    statement: Statement | None = None
    signer: PublicKey | None = None


def signed_artifact(
    about: Digest, kind: str, predicate: Mapping[str, Any], key: SigningKey, *others: Digest
) -> Artifact:
    """A signed statement, to be attached to its first subject. kind: the type of its predicate. others: subjects."""
    statement = write_statement(about, kind, predicate, *others)
    return Artifact(sign(statement, key), MEDIA_TYPE, {**_CONTENT, _TYPE: kind})


def signed_statements(
    client: Registry,
    reference: Reference,
    image: Digest,
    keys: Sequence[PublicKey],
    limit: int = 2 * LIMIT,
    *,
    strangers: bool = False,
) -> Iterator[Said | Ignored]:
    """The signed statements that are attached to an image. keys: those whose statements count. limit: bytes of one.

    Anybody who may push can attach one, so one that is wrong does not count and is no failure. Each counts once, and
    what strangers say is read only on demand: a hundred copies would take gigabytes. Raises NetworkError.
    """
    known: set[tuple[str, Digest]] = set()
    for descriptor in attached(client, reference, image, MEDIA_TYPE)[:MOST]:
        artifact = Digest(descriptor["digest"])
        try:
            blob = read_attached(client, reference, descriptor, limit).payload
            envelope = read_envelope(blob, f"statement {artifact}")
            signer = envelope.signer(keys)
            if signer is None:
                said = _of_stranger(envelope) if strangers else None
                yield Ignored(artifact, "it is signed by another key", said)
                continue
            if (found := (signer.hint, Digest.of(envelope.payload))) in known:
                continue
            known.add(found)
            statement = envelope.statement()
        except (InvalidError, PinError) as error:
            yield Ignored(artifact, error.what)
            continue
        if image in statement.subjects:
            yield Said(artifact, statement, signer)
        else:
            other = f"it is about something else, {statement.subjects[0]}"
            yield Ignored(artifact, other, statement, signer)


def _of_stranger(envelope: Envelope) -> Statement | None:
    try:
        return envelope.statement()
    except InvalidError:
        return None
