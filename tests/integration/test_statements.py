"""What `push` attaches to an image besides its bundle, read by the tools of others; and who vouches for it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement_pb2 import Statement

from builder.attest import cyclonedx, spdx
from builder.attest.envelope import MEDIA_TYPE
from builder.attest.statement import CYCLONEDX, PROVENANCE, REBUILT, SIGNED, SPDX, STATEMENT, TESTED
from builder.digest import Digest
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.smoke.results import MEDIA_TYPE as RESULTS
from tests.support.cli import Cli
from tests.support.signed import RECIPE, Signed
from tests.support.statements import client, cosign, new_key, problems, run

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]
needs_cosign = pytest.mark.skipif(client("cosign") is None, reason="there is no cosign; scripts/test unpacks it")
needs_oras = pytest.mark.skipif(client("oras") is None, reason="there is no oras; scripts/test unpacks it")


@pytest.fixture
def signed(online: Cli, host: str, request: pytest.FixtureRequest) -> Signed:
    return Signed(online, host, "".join(letter for letter in request.node.name.lower() if letter.isalnum()))


@needs_cosign
def test_cosign_verifies_the_image_and_each_statement(signed: Signed) -> None:
    said = cosign("verify", signed.pinned, signed.public)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)[0]["critical"]["image"]["docker-manifest-digest"] == signed.digest
    for kind in ("slsaprovenance1", "cyclonedx", "spdxjson"):
        said = cosign("verify-attestation", signed.pinned, signed.public, "--type", kind)
        assert said.returncode == 0, said.stderr
    for verb, words in (("verify", ()), ("verify-attestation", ("--type", "cyclonedx"))):
        assert cosign(verb, signed.pinned, signed.other_public, *words).returncode != 0


@needs_cosign
def test_a_signature_of_cosign_is_read(signed: Signed) -> None:
    home = signed.cli.folder
    words = ("--allow-insecure-registry", "--yes", "--use-signing-config=false", "--tlog-upload=false")
    assert run("cosign", "generate-key-pair", "--output-key-prefix", str(home / "theirs"), home=home).returncode == 0
    made = run("cosign", "sign", "--key", str(home / "theirs.key"), *words, signed.pinned, home=home)
    assert made.returncode == 0, made.stderr
    said = signed.people(home / "theirs.pub")
    assert (said.code, said.out) == (0, "signed\n"), said.err


@needs_oras
def test_oras_lists_what_is_attached(signed: Signed) -> None:
    said = run("oras", "discover", "--plain-http", "--format", "json", signed.pinned, home=signed.cli.folder)
    assert said.returncode == 0, said.stderr
    kinds = [item["artifactType"] for item in json.loads(said.stdout)["referrers"]]
    assert kinds.count(MEDIA_TYPE) == 4
    assert {cyclonedx.MEDIA_TYPE, spdx.MEDIA_TYPE} <= set(kinds)


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_reads_the_same_image(signed: Signed) -> None:
    words = ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{signed.target}"]
    done = subprocess.run(words, capture_output=True, check=True)
    assert Digest.of(done.stdout) == signed.digest


def test_validators_read_the_documents(signed: Signed) -> None:
    for kind, media_type in ((CYCLONEDX, cyclonedx.MEDIA_TYPE), (SPDX, spdx.MEDIA_TYPE)):
        (document,) = signed.payloads(media_type)
        assert problems(json.loads(document)) == []
        assert signed.statement(kind)["predicate"] == json.loads(document)
        format = "cyclonedx" if kind == CYCLONEDX else "spdx"
        assert signed.cli("sbom", *RECIPE, "--format", format).out.encode() == document + b"\n"
        assert signed.cli("sbom", signed.target, "--format", format).out.encode() == document + b"\n"
    # Without the wheels, the layers are read.
    for digest in signed.hashes("gamma"):
        (signed.cli.folder / "store" / "blobs" / "sha256" / digest).unlink()
    (document,) = signed.payloads(cyclonedx.MEDIA_TYPE)
    assert signed.cli("sbom", *RECIPE).out.encode() == document + b"\n"
    found = signed.statement(PROVENANCE)
    assert ParseDict(found, Statement()).predicate_type == PROVENANCE
    predicate = ParseDict(found["predicate"], Provenance())
    assert {item.name for item in predicate.build_definition.resolved_dependencies} >= {"alpha-1.0-py3-none-any.whl"}


def test_pushing_again_attaches_nothing_new(signed: Signed) -> None:
    before = signed.payloads(MEDIA_TYPE)
    assert signed.push("--key", str(signed.private)) == signed.digest
    assert signed.payloads(MEDIA_TYPE) == before and len(before) == 4


def test_without_a_key_statements_are_not_signed(online: Cli, host: str) -> None:
    signed = Signed.__new__(Signed)
    signed.cli, signed.target = online, f"{host}/said/unsigned:1"
    signed.registry = Registry(config=RegistriesConfig(), credentials=Credentials())
    signed.digest = signed.push()
    assert signed.payloads(MEDIA_TYPE) == []
    (statement,) = signed.payloads(STATEMENT)
    assert json.loads(statement)["predicateType"] == PROVENANCE
    _, public = new_key(online.folder, "own")
    signed.people(public).failed(4, "statement-missing")
    said = signed.verify()
    assert (said.code, said.out) == (0, "identical\n"), said.err


def test_who_vouches_for_an_image(signed: Signed) -> None:
    said = signed.people()
    assert (said.code, said.out) == (0, "signed\n"), said.err
    for words in ("the image", "its provenance", "its SBOM (SPDX)"):
        assert f"signed by {signed.public}: {words}\n" in said.err
    assert "nothing was rebuilt" in said.err
    said = signed.verify("--signed-by", str(signed.public))
    assert (said.code, said.out) == (0, "identical\n"), said.err
    signed.verify("--no-rebuild").failed(2, "verify-checks-nothing")


def test_a_rebuild_is_attested(signed: Signed) -> None:
    said = signed.verify("--attest", "--key", str(signed.other_private))
    assert (said.code, said.out) == (0, "identical\n"), said.err
    predicate = signed.statement(REBUILT)["predicate"]
    assert predicate["verdict"] == "identical"
    assert {part["part"] for part in predicate["parts"] if "key" in part} >= {"root", "placed"}
    said = signed.people(signed.other_public)
    assert said.code == 0 and "a rebuild: identical, on " in said.err, said.err
    if client("cosign") is not None:
        read = cosign("verify-attestation", signed.pinned, signed.other_public, "--type", REBUILT)
        assert read.returncode == 0, read.stderr
    signed.verify("--attest").failed(2, "attest-incomplete")


def test_a_rebuild_of_one_layer_does_not_vouch_for_the_image(signed: Signed) -> None:
    said = signed.verify("--layer", "placed", "--attest", "--key", str(signed.other_private))
    assert (said.code, said.out) == (0, "identical as far as compared\n"), said.err
    signed.people(signed.other_public).failed(4, "statement-missing")


def test_a_difference_is_attested(signed: Signed) -> None:
    signed.cli.small.files["recipes/tiny.yaml"]["env"]["LAST"] = "changed"
    said = signed.cli("verify", signed.target, *RECIPE, "--attest", "--key", str(signed.other_private))
    assert said.code == 8 and said.out == "differs\n", said.err
    predicate = signed.statement(REBUILT)["predicate"]
    assert predicate["verdict"] == "differs"
    assert {part["part"] for part in predicate["parts"] if part["outcome"] == "differs"} >= {"config", "manifest"}
    signed.people(signed.other_public).failed(8, "statement-says-differs")
    # Of its own, the publisher still vouches for it.
    assert signed.people().code == 0


def test_results_of_checks_are_signed(signed: Signed) -> None:
    tested = signed.cli("test", *RECIPE, "--tier", "static")
    assert tested.code in (0, 7), tested.err
    signed.push("--key", str(signed.private), "--with-results")
    predicate = signed.statement(TESTED)["predicate"]
    assert (predicate["result"] == "FAILED") == bool(predicate["failedTests"]) == (tested.code == 7)
    assert "static/interpreter" in [*predicate["passedTests"], *predicate["failedTests"]]
    said = signed.people()
    assert said.code == 0 and f"results of its checks: {predicate['result']}" in said.err


def test_results_without_a_check_that_was_run_are_not_signed(signed: Signed) -> None:
    row = {"id": "device", "kind": "device", "tier": "gpu", "status": "not-run"}
    found = {"digest": signed.digest, "results": [row], "notes": []}
    results = signed.cli.folder / "store" / "results" / f"{signed.digest.tag}.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(found))
    signed.push("--key", str(signed.private), "--with-results")
    assert signed.payloads(RESULTS) == [results.read_bytes()]
    with pytest.raises(AssertionError, match=TESTED):
        signed.statement(TESTED)


def test_keys(signed: Signed, tmp_path: Path) -> None:
    hidden, public = new_key(tmp_path, "hidden", "secret")
    signed.cli("push", signed.target, *RECIPE, "--key", str(hidden)).failed(3, "key-invalid")
    said = signed.cli("push", signed.target, *RECIPE, BUILDER_KEY=str(hidden), BUILDER_KEY_PASSWORD="secret")
    assert said.code == 0, said.err
    assert signed.people(public).code == 0
    signed.people(hidden).failed(3, "key-invalid")
    signed.people(tmp_path / "none").failed(2, "key-unreadable")
    assert SIGNED in {signed.statement(kind)["predicateType"] for kind in (SIGNED, PROVENANCE)}
