"""Push to Debian's docker-registry: same digest, only missing blobs are sent, the tag comes last."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import BuilderError, NetworkError, PinError, UsageError
from builder.model.reference import Reference
from builder.oci.layout import write_layout
from builder.produce.image import Built
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.push import push_image
from builder.store.store import Store
from builder.verify.bundles import bundles_of
from builder.verify.revision import Revision
from tests.support.cli import Cli, run_here
from tests.support.engine import FakeEngine, build
from tests.support.errors import fails
from tests.support.fixtures import MakePlan
from tests.support.gitrepo import git
from tests.support.mirror import Mirror
from tests.support.project import ROOT
from tests.support.registry import running
from tests.support.terminal import lines_of, terminal

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]
ARM = ["skopeo", "--override-arch", "arm64"]


@pytest.fixture
def built(make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine) -> Built:
    return build(make_plan(), store, engine)


@pytest.fixture
def client() -> Registry:
    return Registry(config=RegistriesConfig(), credentials=Credentials())


class Pushed:
    """What became of each blob."""

    def __init__(self) -> None:
        self.blobs: dict[str, str] = {}

    def __call__(self, digest: str, what: str, size: int) -> None:
        self.blobs[digest] = what


def test_the_digest_stays_and_a_second_push_sends_nothing(host: str, built: Built, store: Store) -> None:
    target = Reference.parse(f"{host}/push/tiny:1")
    first, second = Pushed(), Pushed()
    assert push_image(built.image, store, target, first) == built.image.digest
    assert set(first.blobs.values()) == {"uploaded"}
    assert set(first.blobs) == {layer.digest for layer in built.image.layers}
    assert push_image(built.image, store, target, second) == built.image.digest
    assert set(second.blobs.values()) == {"present"}


def test_a_registry_that_has_lost_a_blob_gets_it_again(tmp_path: Path, built: Built, store: Store) -> None:
    with running(tmp_path) as host:
        target = Reference.parse(f"{host}/push/lost:1")
        push_image(built.image, store, target, Pushed())
        lost = built.image.layers[0].digest
        for path in [*tmp_path.glob(f"data/**/{lost.hex}/data"), *tmp_path.glob(f"data/**/{lost.hex}/link")]:
            path.unlink()
        told = Pushed()
        assert push_image(built.image, store, target, told) == built.image.digest
        assert [digest for digest, what in told.blobs.items() if what == "uploaded"] == [lost]


def test_another_image_sends_only_its_own_layers(
    host: str, make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine
) -> None:
    target = Reference.parse(f"{host}/push/share:1")
    push_image(build(make_plan(), store, engine).image, store, target, Pushed())
    engine.targets = {"compiled": {"opt/widget/other": "another"}}
    other = build(make_plan(sets={"compiled": {"words": "another"}}), store, engine)
    told = Pushed()
    push_image(other.image, store, target, told)
    assert [digest for digest, what in told.blobs.items() if what == "uploaded"] == [other.records["compiled"].digest]


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_reads_it_and_copies_it_with_the_same_digest(
    host: str, built: Built, store: Store, tmp_path: Path
) -> None:
    push_image(built.image, store, Reference.parse(f"{host}/push/seen:1"), Pushed())
    command = [*ARM, "inspect", "--tls-verify=false", f"docker://{host}/push/seen:1"]
    seen = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)
    assert seen["Digest"] == built.image.digest
    assert seen["Layers"] == [layer.digest for layer in built.image.layers]
    assert seen["Env"] == json.loads(built.image.config)["config"]["Env"]
    command = [*ARM, "copy", "--quiet", "--preserve-digests", "--src-tls-verify=false"]
    command += [f"docker://{host}/push/seen:1", f"oci:{tmp_path / 'copy'}:1"]
    subprocess.run(command, check=True, timeout=30)
    write_layout(built.image, store, tmp_path / "ours", name="1")
    assert blobs(tmp_path / "copy") == blobs(tmp_path / "ours")


def blobs(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs/sha256").iterdir()}


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_pushed_layers_unpack(host: str, built: Built, store: Store, tmp_path: Path) -> None:
    push_image(built.image, store, Reference.parse(f"{host}/push/files:1"), Pushed())
    command = [
        *ARM,
        "copy",
        "--quiet",
        "--src-tls-verify=false",
        f"docker://{host}/push/files:1",
        f"dir:{tmp_path / 'd'}",
    ]
    subprocess.run(command, check=True, timeout=30)
    paths: set[str] = set()
    for layer in built.image.layers:
        data = tmp_path / "d" / layer.digest.hex
        listed = subprocess.run(["tar", "--zstd", "-tf", data], capture_output=True, text=True, check=False)
        if listed.returncode:
            pytest.skip("this tar cannot read zstd")
        paths |= set(listed.stdout.splitlines())
    assert {"usr/bin/tool", "opt/widget/lib/libwidget.so", "etc/placed.conf"} <= paths


def test_a_failed_upload_keeps_the_old_tag(
    host: str,
    make_plan: MakePlan,
    mirror: Mirror,
    store: Store,
    engine: FakeEngine,
    client: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = Reference.parse(f"{host}/push/kept:1")
    old = build(make_plan(), store, engine).image
    push_image(old, store, target, Pushed())
    engine.targets = {"compiled": {"opt/widget/other": "a newer one"}}
    new = build(make_plan(sets={"compiled": {"words": "newer"}}), store, engine)
    real = client.upload

    def upload(ref: Reference, digest: str, *rest: Any) -> None:
        if digest == new.records["compiled"].digest:
            raise NetworkError("the line is cut", id="test-cut")
        real(ref, digest, *rest)

    monkeypatch.setattr(client, "upload", upload)
    with fails(NetworkError, "test-cut"):
        push_image(new.image, store, target, Pushed(), client)
    assert client.manifest(target).digest == old.digest
    monkeypatch.setattr(client, "upload", real)
    assert push_image(new.image, store, target, Pushed(), client) == new.image.digest
    assert client.manifest(target).digest == new.image.digest


def test_a_damaged_blob_is_not_pushed(host: str, built: Built, store: Store, client: Registry) -> None:
    target = Reference.parse(f"{host}/push/damaged:1")
    path = store.blob(built.records["root"].digest)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BuilderError):
        push_image(built.image, store, target, Pushed(), client)
    assert not client.has_blob(target, built.records["root"].digest)


def test_another_digest_than_the_images_is_refused(host: str, built: Built, store: Store) -> None:
    with fails(UsageError, "push-digest-mismatch"):
        push_image(built.image, store, Reference.parse(f"{host}/push/tiny@sha256:{'a' * 64}"), Pushed())


def test_from_the_command_line(host: str, built: Built, store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "builder", "push", "--recipe", "tiny", f"{host}/push/command:1"]
    environ = {
        "PATH": "/nowhere",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "BUILDER_PROJECT": str(tmp_path / "project"),
        "BUILDER_STORE": str(store.root),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{host}/push/command@{built.image.digest}\n"


def test_the_command_pushes_to_several_references_and_prints_them(host: str, online: Cli) -> None:
    digest = online("build", "tiny").out.strip()
    first, second, other = f"{host}/many/tiny:1", f"{host}/many/tiny", f"{host}/many/other:1"
    said = online("push", "tiny", first, second, other, "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out) == [
        {"reference": first, "digest": digest, "pinned": f"{host}/many/tiny@{digest}"},
        {"reference": f"{second}:latest", "digest": digest, "pinned": f"{host}/many/tiny@{digest}"},
        {"reference": other, "digest": digest, "pinned": f"{host}/many/other@{digest}"},
    ]
    assert said.err.count("bundle attached") == 2, "once for each repository"
    assert "wheels-alpha" in said.err
    assert said.err.count("  platform     linux/arm64, 4 layers, ") == 2, "what a reader sees, for each repository"
    assert "  title        tiny" in said.err and "  revision     none: " in said.err
    assert online("test", "tiny", "--only", "image-config").code == 0
    (row,) = json.loads(online("images", "--json").out)
    assert (row["recipe"], row["base"], row["digest"]) == ("tiny", "tiny", digest)
    assert row["pushed"] == [first, f"{second}:latest", other]
    assert online("build", "tiny").out.strip() == digest
    assert json.loads(online("images", "tiny", "--json").out)[0]["pushed"] == row["pushed"], "a build keeps the note"
    online.small.files["builder.toml"] = f'registry = "{host}/chosen"\n'
    assert online("push", "tiny").out == f"{host}/chosen/tiny@{digest}\n"
    del online.small.files["builder.toml"]
    (online.folder / "project/builder.toml").unlink()
    online("push", "tiny").failed(2, "push-reference-missing")


def test_a_dry_run_says_what_would_be_sent(host: str, online: Cli) -> None:
    assert online("build", "tiny").code == 0
    place = f"{host}/dry/tiny:1"
    words = ("push", "tiny", place, "--dry-run")
    (before,) = json.loads(online(*words, "--json").out)
    size = sum(row["size"] for row in before["layers"])
    assert before["bytes"] == {"present": 0, "mount": 0, "stream": 0, "upload": size} and len(before["layers"]) == 4
    with pytest.raises(PinError):
        Registry(config=RegistriesConfig(), credentials=Credentials()).manifest(Reference.parse(place))
    pushed = online("push", "tiny", place)
    assert pushed.code == 0 and "  sent " in pushed.err and "/s, in " in pushed.err
    (after,) = json.loads(online(*words, "--json").out)
    assert after["bytes"] == {"present": size, "mount": 0, "stream": 0, "upload": 0}
    assert f"{place}: present " in online(*words).out


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_rows_fit_on_the_terminal_and_name_layers_and_digests(host: str, online: Cli, columns: int) -> None:
    assert online("build", "tiny").code == 0
    place = f"{host}/width/{columns}:1"
    for more in (("--dry-run",), (), ("--dry-run",), ()):
        with terminal(columns) as (file, text):
            words = ("push", "tiny", place, *more)
            environ = online.environment({"TERM": "xterm", "NO_COLOR": "1"})
            assert run_here(words, environ=environ, folder=online.folder, stdout=file, stderr=file).code == 0
            lines = lines_of(text())
        rows = [line for line in lines if " wheels-alpha " in line]
        assert len(rows) == 1 and rows[0].rstrip().endswith("B") == (columns == 60), lines
        assert not [line for line in lines if len(line) > columns and " " in line.strip()], lines
    assert f"{place.rpartition(':')[0]}@sha256:" in "\n".join(lines)


def test_the_commit_of_a_project_in_git_is_on_the_bundle_and_not_in_the_image(host: str, online: Cli) -> None:
    digest = online("build", "tiny").out.strip()
    folder = online.folder / "project"
    online.environ["PATH"] = os.environ["PATH"]
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    online.keep = True
    place = f"{host}/revision/tiny"
    commit = git(folder, "rev-parse", "HEAD").strip()
    said = online("push", "tiny", f"{place}:1")
    assert f"  revision     {commit} (of the bundle: the image depends on no commit)\n" in said.err
    (folder / "recipes/tiny.yaml").write_text((folder / "recipes/tiny.yaml").read_text() + "# changed\n")
    again = online("push", "tiny", f"{place}:2")
    assert f"  revision     {commit}, with changes that are not committed (of the bundle" in again.err
    assert said.out == again.out == f"{place}@{digest}\n"
    client = Registry(config=RegistriesConfig(), credentials=Credentials())
    found = {bundle.revision for bundle in bundles_of(client, Reference.parse(f"{place}:1"), Digest(digest))}
    assert found == {Revision(commit, True), Revision(commit, False)}
