"""Keys for statements: ECDSA on P-256, in the PEM files that openssl and cosign write. Pure."""

from __future__ import annotations

import base64
import hashlib
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from builder.errors import InvalidError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_MAKE = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem"


@dataclass(frozen=True)
class PublicKey:
    """A key that checks signatures. name: as the user named it, for output."""

    key: EllipticCurvePublicKey
    name: str

    @cached_property
    def hint(self) -> str:
        """How a Sigstore bundle names the key: base64 of the SHA-256 of its DER form."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        der = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(der).digest()).decode()

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Whether this key made the signature."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            self.key.verify(signature, message, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A key that signs."""

    key: EllipticCurvePrivateKey
    name: str

    @cached_property
    def public(self) -> PublicKey:
        """The key that checks its signatures."""
        return PublicKey(self.key.public_key(), self.name)

    def sign(self, message: bytes) -> bytes:
        """The signature (DER). It is deterministic (RFC 6979), so that attaching the same again changes nothing."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return self.key.sign(message, ECDSA(SHA256(), deterministic_signing=True))


def signing_key(pem: bytes, password: str | None, where: str) -> SigningKey:
    """A private key. password: of an encrypted one. where: its file, for messages. Raises InvalidError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if b"ENCRYPTED SIGSTORE PRIVATE KEY" in pem or b"ENCRYPTED COSIGN PRIVATE KEY" in pem:
        cause = "cosign encrypts keys in its own way; it imports those of openssl (cosign import-key-pair --key FILE)"
        raise _refused("it is a key in cosign's own form", where, cause)
    try:
        key = load_pem_private_key(pem, password.encode() if password is not None else None)
    except TypeError:
        state = "not encrypted" if password is not None else "encrypted"
        raise _refused(f"it is {state}", where, "BUILDER_KEY_PASSWORD holds the password of an encrypted key") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _refused("it is damaged, of an unknown form, or has another password", where) from None
    return SigningKey(_on_p256(key, where), where)


def public_key(pem: bytes, where: str) -> PublicKey:
    """A public key. where: its file, for messages. Raises InvalidError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in pem:
        next = f"openssl pkey -in {shlex.quote(where)} -pubout -out key.pub"
        raise _refused("it is a private key, where a public one is expected", where, next=next)
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise _refused("it is damaged or of an unknown form", where) from None
    return PublicKey(_on_p256(key, where), where)


def _on_p256(key: Any, where: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1

    if not isinstance(getattr(key, "curve", None), SECP256R1):
        raise _refused("it is not an ECDSA key on the curve P-256", where, next=_MAKE)
    return key


def _refused(problem: str, where: str, cause: str = "", next: str = "") -> InvalidError:
    step = next or "name a key in PEM; docs/statements.md says how to make one"
    return InvalidError(f"not a usable key: {problem}", id="key-invalid", where=where, cause=cause, next=step)
