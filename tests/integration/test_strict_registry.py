"""A registry that does exactly what the specification says: with the referrers API, without mounts."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.signed import RECIPE, Signed
from tests.support.statements import client, cosign, run
from tests.support.strict_registry import StrictRegistry, strict_registry

UNKNOWN = {"BLOB_UNKNOWN", "MANIFEST_UNKNOWN"}
"""What a client may ask for in vain: whether something is there."""


@pytest.fixture
def registry() -> Iterator[StrictRegistry]:
    with strict_registry() as started:
        yield started


@pytest.fixture
def signed(online: Cli, registry: StrictRegistry) -> Signed:
    return Signed(online, registry.host, "image")


def test_push_and_verify(signed: Signed, registry: StrictRegistry) -> None:
    assert {*registry.refused} <= UNKNOWN, registry.refused
    signed.push("--key", str(signed.private), "--with-inputs")
    assert {*registry.refused} <= UNKNOWN, registry.refused
    repository = registry.repositories["said/image"]
    # The registry lists what is attached: no tag does.
    assert [*repository.tags] == ["1"]
    said = signed.verify("--offline", "--trust-plan", "--signed-by", str(signed.public))
    assert (said.code, said.out) == (0, "identical\n"), said.err
    before = len(registry.asked)
    signed.push("--key", str(signed.private))
    assert [line for line in registry.asked[before:] if line.split()[0] in ("POST", "PATCH")] == []
    copy = signed.target.replace("/image:", "/copy:")
    assert signed.cli("push", copy, *RECIPE).code == 0
    assert registry.repositories["said/copy"].tags == {"1": signed.digest}
    before = len(registry.asked)
    assert signed.cli("push", copy, *RECIPE).code == 0
    # One question and one answer for the image and for each of its artifacts: the number of layers does not matter.
    assert len(registry.asked) - before <= 12, registry.asked[before:]
    assert not [line for line in registry.asked[before:] if "/blobs/" in line]


@pytest.mark.skipif(client("cosign") is None or client("oras") is None, reason="there is no cosign, or no oras")
def test_cosign_and_oras_read_what_the_api_lists(signed: Signed) -> None:
    for verb, words in (("verify", ()), ("verify-attestation", ("--type", "slsaprovenance1"))):
        said = cosign(verb, signed.pinned, signed.public, *words)
        assert said.returncode == 0, said.stderr
        assert cosign(verb, signed.pinned, signed.other_public, *words).returncode != 0
    said = run("oras", "discover", "--plain-http", "--format", "json", signed.pinned, home=signed.cli.folder)
    assert said.returncode == 0, said.stderr
    kinds = {item["artifactType"] for item in json.loads(said.stdout)["referrers"]}
    assert {"application/vnd.cyclonedx+json", "application/spdx+json"} <= kinds


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_copies_the_image(signed: Signed, tmp_path: Path) -> None:
    words = ["skopeo", "copy", "--quiet", "--src-tls-verify=false", f"docker://{signed.pinned}", f"oci:{tmp_path}/copy"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((tmp_path / "copy/index.json").read_text())["manifests"]
    assert entry["digest"] == signed.digest
