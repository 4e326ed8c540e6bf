"""Sigstore bundles: a signed statement, as cosign 3 and other Sigstore clients read and write it. Pure.

The bundle is the JSON form of dev.sigstore.bundle.v1.Bundle (https://github.com/sigstore/protobuf-specs) with a DSSE
envelope (https://github.com/secure-systems-lab/dsse). The key is named by a hint and is not in the bundle.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from builder.attest.keys import PublicKey, SigningKey
from builder.attest.statement import LIMIT, STATEMENT, Statement, invalid, read_statement
from builder.jsontext import parse_json
from builder.model.canonical import canonical

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_VALUES = 1000
"""JSON values of a bundle; its payload is one."""


@dataclass(frozen=True)
class Envelope:
    """A bundle that was read; nothing is checked yet. payload: the bytes of its statement."""

    payload: bytes
    signature: bytes
    where: str

    def signer(self, keys: Sequence[PublicKey]) -> PublicKey | None:
        """The key that signed the payload; None when it is none of these."""
        message = _signed_bytes(self.payload)
        return next((key for key in keys if key.has_signed(message, self.signature)), None)

    def statement(self) -> Statement:
        """The statement in it. Raises InvalidError."""
        return read_statement(self.payload, self.where)


def sign(statement: bytes, key: SigningKey) -> bytes:
    """The bundle of a statement. Equal statements and keys have equal bundles."""
    envelope = {
        "payload": _encoded(statement),
        "payloadType": STATEMENT,
        "signatures": [{"sig": _encoded(key.sign(_signed_bytes(statement)))}],
    }
    material = {"publicKey": {"hint": key.public.hint}}
    return canonical({"mediaType": MEDIA_TYPE, "verificationMaterial": material, "dsseEnvelope": envelope})


def read_envelope(data: bytes, where: str) -> Envelope:
    """A bundle of anybody with one signature, by a key or a certificate. where: for messages. Raises InvalidError."""
    if len(data) > 2 * LIMIT:
        raise invalid(f"it has more than {2 * LIMIT} bytes", where)
    try:
        bundle: Any = parse_json(data, _VALUES)
        envelope = bundle["dsseEnvelope"]
        (signature,) = envelope["signatures"]
        if bundle["mediaType"] != MEDIA_TYPE or envelope["payloadType"] != STATEMENT:
            raise ValueError("it is not a Sigstore bundle of an in-toto statement")
        payload, signed = _decoded(envelope["payload"]), _decoded(signature["sig"])
    except (KeyError, TypeError):
        raise invalid("it lacks a member that every Sigstore bundle with an envelope has", where) from None
    except ValueError as error:
        raise invalid(str(error), where) from None
    return Envelope(payload, signed, where)


def _signed_bytes(payload: bytes) -> bytes:
    """The pre-authentication encoding of DSSE: what is signed."""
    kind = STATEMENT.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError):
        raise ValueError("its payload or signature is not base64") from None
