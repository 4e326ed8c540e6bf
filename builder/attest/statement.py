"""in-toto statements about an image: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. Pure.

A statement is canonical JSON, so that equal facts are equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from builder.digest import Digest
from builder.errors import InvalidError
from builder.jsontext import parse_json
from builder.model.canonical import canonical

STATEMENT = "application/vnd.in-toto+json"
"""The media type of a statement, also the payload type in a DSSE envelope."""
LIMIT = 4 << 20
"""Bytes of a statement, signed or not. The largest SBOM of a shipped recipe has 0.6 MB."""
VALUES = 200_000
"""JSON values of one."""

SIGNED = "https://sigstore.dev/cosign/sign/v1"
"""The image as such: what `cosign verify` asks for."""
PROVENANCE = "https://slsa.dev/provenance/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
SPDX = "https://spdx.dev/Document"
"""The types that `cosign verify-attestation` calls slsaprovenance1, cyclonedx and spdxjson."""
TESTED = "https://in-toto.io/attestation/test-result/v0.1"
REBUILT = "urn:builder:rebuilt:v1"
LAYER = "urn:builder:layer:v1"
"""A layer that was built under its layer key: an entry of a layer cache."""

_TYPE = "https://in-toto.io/Statement/v1"
_SUBJECTS = 64


@dataclass(frozen=True)
class Statement:
    """A statement that was read. subjects: the digests that it is about."""

    subjects: tuple[Digest, ...]
    type: str
    predicate: Mapping[str, Any]

    @property
    def rebuilt_identical(self) -> bool:
        """Whether it says that a rebuild of the whole image was identical."""
        return self.type == REBUILT and self.predicate.get("verdict") == "identical"

    @property
    def rebuilt_differs(self) -> bool:
        """Whether it says that a rebuild differs."""
        return self.type == REBUILT and self.predicate.get("verdict") in ("differs", "content identical")


def write_statement(image: Digest, type: str, predicate: Mapping[str, Any], *others: Digest) -> bytes:
    """A statement about an image. type: of the predicate, one of this module. others: further subjects."""
    subject = [{"digest": {"sha256": digest.hex}} for digest in (image, *others)]
    return canonical({"_type": _TYPE, "subject": subject, "predicateType": type, "predicate": predicate})


def read_statement(data: bytes, where: str) -> Statement:
    """A statement of anybody. where: for messages. Raises InvalidError."""
    try:
        found = parse_json(data, VALUES)
        if found["_type"] != _TYPE or not 0 < len(found["subject"]) <= _SUBJECTS:
            raise ValueError("it is not an in-toto statement of version 1 about some subjects")
        subjects = [Digest.from_hex(item["digest"]["sha256"]) for item in found["subject"]]
        if not isinstance(found["predicateType"], str) or not isinstance(found["predicate"], dict):
            raise ValueError("its predicate is not an object with a type")
    except (KeyError, TypeError):
        raise invalid("it lacks a member that every statement has", where) from None
    except ValueError as error:
        raise invalid(str(error), where) from None
    return Statement(tuple(subjects), found["predicateType"], found["predicate"])


def invalid(problem: str, where: str) -> InvalidError:
    """The error for a statement, or an envelope of one, that is malformed."""
    return InvalidError(f"not a valid statement: {problem}", id="statement-invalid", where=where)
