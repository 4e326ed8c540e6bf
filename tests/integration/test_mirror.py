"""Mirrors in Debian's docker-registry, and a build in a network namespace without network."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.engine.buildah import BuildahEngine
from builder.engine.docker import DockerEngine
from builder.engine.interface import Engine, LayoutError
from builder.errors import NetworkError, PinError
from builder.mirror.artifact import ARTIFACT, locked_contents
from builder.mirror.repository import RegistryBackend
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from tests.support.debs import with_folders
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.http_registry import Answer, Server, digest_of, image_manifest
from tests.support.mirror import Mirror
from tests.support.mirror_bench import Bench, assert_intact
from tests.support.project import ROOT, Sample, read_base
from tests.support.tars import tar

MakePlan = Callable[..., Plan]
needs_registry = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]


def registry(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that runs docker-registry."""
    for mark in needs_registry:
        test = mark(test)
    return test


@pytest.fixture
def bench(tmp_path: Path, engine: FakeEngine, mirror: Mirror) -> Bench:
    return Bench(tmp_path, engine, mirror)


@registry
def test_a_registry_holds_the_same_artifact_as_a_folder_and_builds_the_same_digest(
    host: str, make_plan: MakePlan, bench: Bench
) -> None:
    plan = make_plan()
    online = bench.build(plan, None, offline=False)
    backend = RegistryBackend(f"{host}/mirror/inputs")
    in_folder, _ = bench.fill(plan).artifacts["tiny.tiny"]
    report = bench.fill(plan, backend=backend)
    artifact, new = report.artifacts["tiny.tiny"]
    assert (artifact, new, set(report.sent)) == (in_folder, True, {item.digest for item in locked_contents(plan)})
    again = bench.fill(plan, backend=backend)
    assert (again.sent, again.artifacts["tiny.tiny"]) == ({}, (artifact, False))
    with urllib.request.urlopen(
        urllib.request.Request(
            f"http://{host}/v2/mirror/inputs/manifests/tiny.tiny",
            headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
        ),
        timeout=5,
    ) as answer:
        assert answer.headers["Docker-Content-Digest"] == artifact.digest
        assert json.loads(answer.read())["artifactType"] == ARTIFACT
    bench.cut()
    store = bench.store()
    assert bench.build(plan, MirrorSource(backend), store).image.digest == online.image.digest
    assert bench.upstream.asked == []
    assert_intact(store)


@registry
def test_a_folder_is_carried_into_a_registry(host: str, make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    artifact, _ = bench.fill(plan).artifacts["tiny.tiny"]
    bench.cut()
    backend = RegistryBackend(f"{host}/mirror/carried")
    report = bench.fill(plan, backend=backend, offline=True, source=bench.source())
    assert (report.failed, report.artifacts["tiny.tiny"]) == ({}, (artifact, True))
    assert bench.build(plan, MirrorSource(backend)).image


@registry
@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_carries_it_too(host: str, make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    artifact, _ = bench.fill(plan).artifacts["tiny.tiny"]
    command = ["skopeo", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"]
    command += [f"oci:{bench.backend().root}:tiny.tiny", f"docker://{host}/mirror/skopeo:tiny.tiny"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "unsupported" in done.stderr.lower():
        pytest.skip("this skopeo knows no artifacts")
    assert done.returncode == 0, done.stderr
    backend = RegistryBackend(f"{host}/mirror/skopeo")
    assert backend.publish(artifact) is False
    assert bench.build(plan, MirrorSource(backend)).image


@registry
def test_exit_status_is_4_for_missing_content_and_6_for_a_registry_that_is_down(
    host: str, make_plan: MakePlan, bench: Bench
) -> None:
    plan = make_plan()
    with fails(PinError, "mirror-input-missing"):
        bench.build(plan, MirrorSource(RegistryBackend(f"{host}/mirror/empty")))
    down = MirrorSource(RegistryBackend("127.0.0.1:9/mirror"))
    store = bench.store()
    with fails(NetworkError, "mirror-input-unreadable"):
        bench.build(plan, down, store)
    assert list(store.tmp.iterdir()) == []
    assert bench.build(plan, MirrorSource(RegistryBackend("127.0.0.1:9/mirror")), offline=False).image


@pytest.mark.engine
@pytest.mark.parametrize("engine", [DockerEngine(), BuildahEngine()], ids=lambda engine: str(engine.name))
@pytest.mark.parametrize("docker", [False, True], ids=["OCI", "Docker"])
def test_an_engine_reads_a_base_from_the_mirror(
    make_plan: MakePlan, small: Sample, tmp_path: Path, mirror: Mirror, engine: Engine, docker: bool
) -> None:
    if not engine.probe().usable:
        pytest.skip(f"{engine.name} cannot be used here")
    bench = Bench(tmp_path, engine, mirror)
    server = Server()
    data = gzip.compress(tar(with_folders({"usr/lib/base.py": "the base\n"})), mtime=0)
    diff = digest_of(gzip.decompress(data))
    described = {"os": "linux", "architecture": "arm64", "rootfs": {"type": "layers", "diff_ids": [diff]}, "config": {}}
    config = json.dumps(described).encode()
    kind = "application/vnd.docker.distribution.manifest.v2+json" if docker else OCI_MANIFEST
    manifest = json.loads(image_manifest(config, data)) | {"mediaType": kind}
    if docker:
        manifest["config"]["mediaType"] = "application/vnd.docker.container.image.v1+json"
        manifest["layers"][0]["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    for blob in (config, data):
        server.on("GET", f"/v2/team/app/blobs/{digest_of(blob)}", Answer(200, blob))
    pin = server.serve_manifest(json.dumps(manifest).encode(), media_type=kind)
    read_base(small, f"{server.host}/team/app:1", pin)
    plan = make_plan(base="vendor")
    bench.fill(plan)
    server.close()
    store = bench.store()
    try:
        built = bench.build(plan, bench.source(), store)
    except LayoutError:
        assert engine.name == "docker"
        pytest.skip("the builder of this docker reads no folders; only its error can be tested")
    listing = store.read(built.records["reader"].listing).decode()
    assert '["opt/reader/copy.py", "file", 420, 9, ""]' in listing
    assert list(store.tmp.iterdir()) == []


@registry
@pytest.mark.engine
@pytest.mark.parametrize("engine", [DockerEngine(), BuildahEngine()], ids=lambda engine: str(engine.name))
def test_an_engine_pulls_a_base_for_steps_that_have_no_network(
    make_plan: MakePlan,
    small: Sample,
    tmp_path: Path,
    mirror: Mirror,
    engine: Engine,
    host: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not engine.probe().usable:
        pytest.skip(f"{engine.name} cannot be used here")
    # docker accepts a registry on loopback without TLS; buildah needs an option.
    (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
    layer = gzip.compress(tar(with_folders({"usr/lib/base.py": "the base\n"})), mtime=0)
    described = {"os": "linux", "architecture": "arm64", "config": {}}
    described["rootfs"] = {"type": "layers", "diff_ids": [digest_of(gzip.decompress(layer))]}
    config = json.dumps(described).encode()
    client, at = Registry(config=RegistriesConfig(), credentials=Credentials()), Reference.parse(f"{host}/team/read:1")
    for blob in (layer, config):
        client.upload(at, digest_of(blob), len(blob), lambda blob=blob: iter([blob]))  # type: ignore[misc]
    pin = client.put_manifest(at, image_manifest(config, layer), OCI_MANIFEST)
    read_base(small, str(at), pin)
    bench = Bench(tmp_path, engine, mirror)
    store = bench.store()
    built = bench.build(make_plan(base="vendor"), None, store, offline=False)
    listing = store.read(built.records["reader"].listing).decode()
    assert '["opt/reader/copy.py", "file", 420, 9, ""]' in listing
    assert list(store.tmp.iterdir()) == []


def unshared(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a network namespace of its own, where not even loopback is up."""
    space = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--user", "--map-root-user"]
    probe = subprocess.run([*space, "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("no network namespace may be made here")
    return subprocess.run(
        [*space, *command], check=False, capture_output=True, text=True, timeout=120, env={**os.environ, **environ}
    )


def test_a_build_without_any_network_has_the_same_digest(
    small: Sample, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.files["recipes/tiny.yaml"]["layers"].remove("compiled")
    small.write(tmp_path / "project")
    monkeypatch.setenv("BUILDER_PROJECT", str(tmp_path / "project"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    builder = [sys.executable, "-m", "builder"]

    def online(*words: str) -> str:
        environ = {**os.environ, "BUILDER_STORE": str(tmp_path / "online")}
        return subprocess.run(
            [*builder, *words], check=True, capture_output=True, text=True, env=environ
        ).stdout.strip()

    digest = online("build", "--recipe", "tiny")
    online("mirror", str(tmp_path / "mirror"), "--recipe", "tiny")
    away = {"BUILDER_STORE": str(tmp_path / "offline")}
    refused = unshared(*builder, "build", "--recipe", "tiny", **away)
    assert refused.returncode == 6, refused.stderr
    words = ("build", "--recipe", "tiny", "--offline", "--mirror", str(tmp_path / "mirror"))
    done = unshared(*builder, *words, **away)
    assert (done.returncode, done.stdout.strip()) == (0, digest), done.stderr
