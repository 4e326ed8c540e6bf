"""Statements that are wrong, or not of the image: each is found by the right command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.attest import cyclonedx, spdx
from builder.attest.envelope import MEDIA_TYPE
from builder.attest.statement import PROVENANCE, STATEMENT
from builder.digest import Digest
from builder.model.canonical import canonical
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.bundle import MEDIA_TYPE as BUNDLE
from builder.plan.bundle import read_bundle, write_bundle
from tests.support.cli import Cli
from tests.support.signed import Signed
from tests.support.statements import client, cosign

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]


@pytest.fixture
def signed(online: Cli, host: str, request: pytest.FixtureRequest) -> Signed:
    return Signed(online, host, "".join(letter for letter in request.node.name.lower() if letter.isalnum()))


def other_image(signed: Signed) -> None:
    """The signatures of another image, attached to this one."""
    bundles = signed.payloads(MEDIA_TYPE)
    signed.cli.small.files["recipes/tiny.yaml"]["env"]["LAST"] = "changed"
    signed.digest = signed.push()
    for bundle in bundles:
        signed.attach(bundle, MEDIA_TYPE)


def other_key(signed: Signed) -> None:
    """Signatures by a key that nobody asked for."""
    signed.forget()
    signed.push("--key", str(signed.other_private))


def changed_payload(signed: Signed) -> None:
    """The statements of others under a signature of this key."""
    bundles = [json.loads(item) for item in signed.payloads(MEDIA_TYPE)]
    signed.forget()
    payloads = [item["dsseEnvelope"]["payload"] for item in bundles]
    for item, payload in zip(bundles, reversed(payloads), strict=True):
        item["dsseEnvelope"]["payload"] = payload
        signed.attach(canonical(item), MEDIA_TYPE)


def damaged(signed: Signed) -> None:
    """Bundles that are cut, of another type, and none at all."""
    bundle = signed.payloads(MEDIA_TYPE)[0]
    signed.forget()
    for payload in (bundle[:-9], b"{}", b"[]", bundle.replace(b"vnd.in-toto+json", b"vnd.other+json"), b"\xff"):
        signed.attach(payload, MEDIA_TYPE)


def swapped_layer(signed: Signed) -> None:
    """A manifest with another layer, under the tag of the image, and with its signatures."""
    place = Reference.parse(signed.target)
    manifest = json.loads(signed.registry.manifest(place).data)
    manifest["layers"][1] = manifest["layers"][0]
    bundles = signed.payloads(MEDIA_TYPE)
    signed.digest = signed.registry.put_manifest(place, canonical(manifest), OCI_MANIFEST)
    for bundle in bundles:
        signed.attach(bundle, MEDIA_TYPE)


@pytest.mark.parametrize("fault", [other_image, other_key, changed_payload, damaged, swapped_layer])
def test_what_does_not_count(signed: Signed, fault: Callable[[Signed], None]) -> None:
    fault(signed)
    said = signed.people()
    said.failed(4, "statement-missing")
    assert "does not count: statement" in said.err
    if client("cosign") is not None:
        assert cosign("verify", signed.pinned, signed.public).returncode != 0


def without(document: dict[str, Any], member: str) -> bytes:
    """The document without its last Python distribution."""
    rows = document[member]
    del rows[max(place for place, row in enumerate(rows) if "pkg:pypi/" in json.dumps(row))]
    return canonical(document)


def test_sboms_that_are_not_of_the_image(signed: Signed) -> None:
    expected = []
    for kind, member in ((cyclonedx.MEDIA_TYPE, "components"), (spdx.MEDIA_TYPE, "packages")):
        (document,) = signed.payloads(kind)
        (digest,) = {line for line in document.decode().split('"') if line in signed.hashes("gamma")}
        other = document.replace(b"pypi/gamma@", b"pypi/delta@")
        faults = {
            "it lacks pkg:pypi/gamma@1.0": without(json.loads(document), member),
            "it cannot be read: .*": document[: len(document) // 2],
            "it has another hash for pkg:pypi/gamma@1.0": document.replace(digest.encode(), b"0" * 64),
            ".*; it lists what is not in the image: pkg:pypi/delta@1.0": other,
            "it lacks members of .*": b"{}",
        }
        for words, bad in faults.items():
            signed.attach(bad, kind)
            expected.append(words)
    said = signed.verify("--json")
    assert said.code == 8 and "[verify-differs]" in said.err, said.err
    report = json.loads(said.out)
    assert report["verdict"] == "statements differ"
    assert {part["outcome"] for part in report["parts"] if "SBOM" not in part["part"]} == {"identical"}
    found = [part["detail"] for part in report["parts"] if part["outcome"] == "differs"]
    for words in expected:
        assert sum(re.fullmatch(words, detail) is not None for detail in found) == expected.count(words), (words, found)


def test_a_bundle_of_a_stranger_in_an_sbom(signed: Signed) -> None:
    """Anybody who may push can attach a bundle with the names of the image's layers, and any inputs."""
    (bundle,) = signed.payloads(BUNDLE)
    own = signed.cli("sbom", signed.target)
    assert "as the bundle" in own.err and "anybody who may push" in own.err
    plan = read_bundle(bundle, "own")
    other = write_bundle(replace(plan, env=(), recipe="a-lie"))
    signed.forget()
    signed.attach(other, BUNDLE)
    said = signed.cli("sbom", signed.target)
    assert said.code == 0 and "as the bundle" not in said.err
    assert "a-lie" not in said.out
    assert "alpha-1.0-py3-none-any.whl" in own.out
    assert "alpha-1.0-py3-none-any.whl" not in said.out


def test_a_blob_that_is_swapped_in_the_registry(signed: Signed, tmp_path_factory: pytest.TempPathFactory) -> None:
    manifest = signed.registry.manifest(Reference.parse(signed.target))
    lower, upper = manifest.layers[0].digest, manifest.layers[1].digest

    def files(digest: Digest) -> set[Path]:
        """Those of every registry of this run."""
        name = f"registry*/data/**/sha256/{digest.hex[:2]}/{digest.hex}/data"
        return {path.resolve() for path in tmp_path_factory.getbasetemp().rglob(name)}

    before, other = (files(item).pop().read_bytes() for item in (lower, upper))
    try:
        for path in files(lower):
            # Of the same format and length: only the digest tells.
            path.write_bytes(other.ljust(len(before), b"\0")[: len(before)])
        said = signed.cli("sbom", signed.target)
        assert said.code in (3, 4) and said.out == "" and lower in said.err, said
        # Another layer in the manifest is another image, which nobody has signed: see swapped_layer.
        assert signed.people().code == 0
    finally:
        for path in files(lower):
            path.write_bytes(before)


def test_provenance_of_another_plan(signed: Signed) -> None:
    statement = signed.statement(PROVENANCE)
    statement["predicate"]["buildDefinition"]["resolvedDependencies"].pop()
    signed.attach(canonical(statement), STATEMENT)
    said = signed.verify()
    assert said.code == 8 and "resolvedDependencies of the plan differ" in said.err, said.err
