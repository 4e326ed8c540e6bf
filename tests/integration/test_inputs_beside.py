"""`builder push --with-inputs`: an image is rebuilt from its registry alone, when every upstream has gone."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.engine.buildah import BuildahEngine
from builder.mirror.artifact import ARTIFACT
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.bundle import MEDIA_TYPE
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attached
from tests.support.cli import Cli, CommandResult
from tests.support.debs import with_folders
from tests.support.http_registry import Answer, Server, digest_of, image_manifest
from tests.support.mirror import Mirror
from tests.support.project import read_base
from tests.support.registry import in_front_of
from tests.support.tars import tar

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]
CLOSED = "http://127.0.0.1:9"
CUT = {"UV_DEFAULT_INDEX": f"{CLOSED}/simple/", "BUILDER_DEB_MIRROR": f"{CLOSED}/debian", "BUILDER_DEB_SNAPSHOT": ""}
"""Settings of a machine that reaches no upstream."""


def client() -> Registry:
    return Registry(config=RegistriesConfig(), credentials=Credentials())


def publish(cli: Cli, target: str, *words: str) -> tuple[Digest, CommandResult]:
    """Build the project and push it with its inputs."""
    built = cli("build", "--recipe", "tiny", *words)
    assert built.code == 0, built.err
    said = cli("push", target, "--recipe", "tiny", *words[:2], "--with-inputs")
    assert said.code == 0, said.err
    return Digest(said.out.strip().rpartition("@")[2]), said


def away(cli: Cli, *words: str, store: str = "stranger", **more: str) -> CommandResult:
    """Run where there is no project, nothing is built or downloaded, and no upstream answers."""
    (cli.folder / "empty").mkdir(exist_ok=True)
    places = {"BUILDER_PROJECT": str(cli.folder / "empty"), "BUILDER_STORE": str(cli.folder / store)}
    return cli(*words, **places, **CUT, **more)


def test_every_upstream_has_gone(online: Cli, mirror: Mirror, host: str, tmp_path: Path) -> None:
    target = f"{host}/beside/whole:1"
    digest, said = publish(online, target)
    reference = Reference.parse(target)
    (inputs,) = attached(client(), reference, digest, ARTIFACT)
    (bundle,) = attached(client(), reference, digest, MEDIA_TYPE)
    listed = client().manifest(Reference(reference.registry, reference.repository, digest=Digest(inputs["digest"])))
    found = client().manifest(Reference(reference.registry, reference.repository, digest=Digest(bundle["digest"])))
    assert found.json["annotations"]["org.builder.inputs"] == inputs["digest"]
    assert listed.json["subject"]["digest"] == digest and len(listed.layers) == 5
    assert f"inputs: {len(listed.layers)} files" in said.err
    shutil.rmtree(online.folder / "store")
    mirror.pool.clear()
    mirror.wheels.clear()
    mirror.asked.clear()
    said = away(online, "verify", target)
    assert (said.code, said.out) == (0, "identical\n"), said.err
    assert f"takes inputs from {host}/beside/whole first, each by its hash" in said.err
    said = away(online, "build", "--plan", target, store="other")
    assert (said.code, said.out.strip()) == (0, digest), said.err
    assert mirror.asked == []


def test_nothing_is_sent_twice(online: Cli, host: str) -> None:
    target = f"{host}/beside/twice:1"
    digest, _ = publish(online, target)
    again, said = publish(online, target)
    assert again == digest and "of which 0 B sent" in said.err, said.err
    assert len(attached(client(), Reference.parse(target), digest, ARTIFACT)) == 1
    # A bundle without the inputs, which may be listed first, does not hide them.
    assert online("push", target, "--recipe", "tiny").code == 0
    assert away(online, "verify", target).code == 0


def test_a_repository_without_them_or_with_wrong_bytes(online: Cli, mirror: Mirror, host: str) -> None:
    target = f"{host}/beside/wrong:1"
    digest, _ = publish(online, target)
    (inputs,) = attached(client(), Reference.parse(target), digest, ARTIFACT)
    manifest = client().manifest(Reference(host, "beside/wrong", digest=Digest(inputs["digest"])))
    blob = max(manifest.layers, key=lambda layer: layer.size)
    path = f"/v2/beside/wrong/blobs/{blob.digest}"
    for fault, code in (("lost", 4), ("wrong", 4)):
        with in_front_of(host) as front:
            if fault == "lost":
                front.lost.add(path)
            else:
                front.wrong[path] = b"x" * blob.size
            there = target.replace(host, front.host)
            said = away(online, "verify", there, "--offline", store=fault)
            assert said.code == code and said.out == "", said
            # Upstream has it.
            said = online("verify", there, BUILDER_STORE=str(online.folder / f"{fault}-online"))
            assert (said.code, said.out) == (0, "identical\n"), said.err
            assert "warning: the mirror" in said.err


@pytest.mark.engine
def test_layers_of_a_base_that_a_step_reads(online: Cli, host: str) -> None:
    if not BuildahEngine().probe().usable:
        pytest.skip("buildah cannot be used here")
    server = Server()
    data = gzip.compress(tar(with_folders({"usr/lib/base.py": "the base\n"})), mtime=0)
    described = {"os": "linux", "architecture": "arm64", "config": {}}
    config = json.dumps(described | {"rootfs": {"type": "layers", "diff_ids": [digest_of(gzip.decompress(data))]}})
    for blob in (config.encode(), data):
        server.on("GET", f"/v2/team/app/blobs/{digest_of(blob)}", Answer(200, blob))
    pin = server.serve_manifest(image_manifest(config.encode(), data), media_type=OCI_MANIFEST)
    read_base(online.small, f"{server.host}/team/app:1", pin)
    # The engine's own pull would need TLS: the build, too, reads the base from a mirror.
    online.environ |= {"PATH": os.environ["PATH"]}
    base = ("--base", "vendor")
    folder = str(online.folder / "mirror")
    assert online("mirror", folder, "--recipe", "tiny", *base).code == 0
    digest, _ = publish(online, f"{host}/beside/base:1", *base, "--engine", "buildah", "--mirror", folder)
    shutil.rmtree(folder)
    server.close()
    words = ("verify", f"{host}/beside/base:1", "--trust-plan", "--engine", "buildah", "--offline")
    said = away(online, *words)
    assert (said.code, said.out) == (0, "identical\n"), said.err
    assert digest in said.err
