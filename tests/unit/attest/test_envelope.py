"""Keys, statements and Sigstore bundles: what is written is read again, and nothing else is."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from builder.attest.envelope import read_envelope, sign
from builder.attest.keys import PublicKey, SigningKey, public_key, signing_key
from builder.attest.statement import SIGNED, read_statement, write_statement
from builder.digest import Digest
from builder.errors import InvalidError
from tests.support.errors import fails
from tests.support.statements import new_key

IMAGE = Digest.of(b"image")
STATEMENT = write_statement(IMAGE, SIGNED, {})


def pair(folder: Path, name: str = "own") -> tuple[SigningKey, PublicKey]:
    private, public = new_key(folder, name)
    return signing_key(private.read_bytes(), None, name), public_key(public.read_bytes(), name)


def test_a_signed_statement_is_read_again(tmp_path: Path) -> None:
    key, public = pair(tmp_path)
    _, other = pair(tmp_path, "other")
    bundle = sign(STATEMENT, key)
    assert bundle == sign(STATEMENT, key)
    envelope = read_envelope(bundle, "here")
    assert envelope.signer([other, public]) is public
    assert envelope.signer([other]) is None
    assert (envelope.statement().subjects, envelope.statement().type) == ((IMAGE,), SIGNED)


def test_what_is_signed_is_the_encoding_of_dsse(tmp_path: Path) -> None:
    key, public = pair(tmp_path)
    found = json.loads(sign(STATEMENT, key))
    signature = base64.b64decode(found["dsseEnvelope"]["signatures"][0]["sig"])
    message = b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(STATEMENT), STATEMENT)
    assert public.has_signed(message, signature)
    assert not public.has_signed(STATEMENT, signature)


def test_a_key_is_named_as_cosign_names_it() -> None:
    # A key of `cosign generate-key-pair` 3.1.1, and the hint in the bundle of `cosign sign`.
    text = (
        "-----BEGIN PUBLIC KEY-----\n"
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAESW99CLfYu+q9DeHjUza96+ap6K5o\n"
        "lgQ0v94aKhpgWqSp8gpth+sAVhoO7pU3atv4j06Vp6EAEpW3BX4vCxU9eA==\n"
        "-----END PUBLIC KEY-----\n"
    )
    assert public_key(text.encode(), "cosign.pub").hint == "TlDAyuVA1mS22bt2Shikb/qACJtJu5v1XdM8ByVL/OI="


def change(bundle: bytes, *path: str | int, to: Any) -> bytes:
    """The bundle with another value at a place."""
    found = json.loads(bundle)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("mediaType",), "application/vnd.dev.sigstore.bundle+json;version=0.1"),
        (("dsseEnvelope",), None),
        (("dsseEnvelope", "payloadType"), "text/plain"),
        (("dsseEnvelope", "payload"), "not base64!"),
        (("dsseEnvelope", "payload"), 7),
        (("dsseEnvelope", "signatures"), []),
        (("dsseEnvelope", "signatures"), [{"sig": "AA=="}, {"sig": "AA=="}]),
        (("dsseEnvelope", "signatures"), [None]),
        (("dsseEnvelope", "signatures", 0, "sig"), ["AA=="]),
    ],
)
def test_a_bundle_that_is_malformed(tmp_path: Path, path: tuple[str | int, ...], to: Any) -> None:
    bundle = change(sign(STATEMENT, pair(tmp_path)[0]), *path, to=to)
    with fails(InvalidError, "statement-invalid"):
        read_envelope(bundle, "here")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"7", b"\xff", b"[" * 100_000, b'{"a":1,"a":2}'])
def test_what_is_no_statement_and_no_bundle(data: bytes) -> None:
    for read in (read_envelope, read_statement):
        with fails(InvalidError, "statement-invalid"):
            read(data, "here")


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1"),
        (("subject",), []),
        (("subject",), {}),
        (("subject",), [{"digest": {"sha512": "0"}}]),
        (("subject",), [{"digest": {"sha256": "A" * 64}}]),
        (("subject",), [{"digest": {"sha256": IMAGE.hex}}] * 65),
        (("predicateType",), None),
        (("predicate",), []),
    ],
)
def test_a_statement_that_is_malformed(path: tuple[str, ...], to: Any) -> None:
    with fails(InvalidError, "statement-invalid"):
        read_statement(change(STATEMENT, *path, to=to), "here")


def test_a_signature_that_is_no_signature(tmp_path: Path) -> None:
    key, public = pair(tmp_path)
    for text in ("", "AA==", base64.b64encode(b"\x30\x80" * 500).decode()):
        bundle = change(sign(STATEMENT, key), "dsseEnvelope", "signatures", 0, "sig", to=text)
        assert read_envelope(bundle, "here").signer([public]) is None


def pem(key: Any) -> bytes:
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data


def test_keys_that_cannot_be_used(tmp_path: Path) -> None:
    private, public = new_key(tmp_path, "own")
    hidden, _ = new_key(tmp_path, "hidden", "secret")
    assert signing_key(hidden.read_bytes(), "secret", "hidden").public.hint
    sigstore = b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\neyJr\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
    others = [pem(ec.generate_private_key(ec.SECP384R1())), pem(ed25519.Ed25519PrivateKey.generate())]
    for data, password in (
        (hidden.read_bytes(), None),
        (hidden.read_bytes(), "wrong"),
        (private.read_bytes(), "needless"),
        *((data, None) for data in (public.read_bytes(), sigstore, b"", private.read_bytes()[:90], *others)),
    ):
        with fails(InvalidError, "key-invalid"):
            signing_key(data, password, "key.pem")
    for data in (private.read_bytes(), b"", public.read_bytes()[:60]):
        with fails(InvalidError, "key-invalid"):
            public_key(data, "key.pub")
