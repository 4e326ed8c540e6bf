"""`builder test` of an image in Debian's docker-registry, and results attached to it there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.produce.image import Built
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.push import push_image
from builder.registry.referrers import attached
from builder.smoke.results import MEDIA_TYPE, read_results
from builder.store.store import Store
from tests.support.cli import CommandResult, run_here
from tests.support.engine import FakeEngine, build
from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]


@pytest.fixture
def built(make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine) -> Built:
    plan: Plan = make_plan()
    return build(plan, store, engine)


def builder(*words: str, folder: Path, store: Path) -> CommandResult:
    environ = {**os.environ, "BUILDER_STORE": str(store), "BUILDER_PROJECT": str(folder)}
    return run_here(words, environ=environ, folder=folder)


def test_an_image_in_a_registry_is_tested_and_none_of_it_is_kept(
    host: str, built: Built, store: Store, tmp_path: Path
) -> None:
    target = f"{host}/smoke/tiny:1"
    push_image(built.image, store, Reference.parse(target), lambda *words: None)
    other = tmp_path / "empty-store"
    done = builder("test", target, "--json", "--html", str(tmp_path / "page"), folder=tmp_path / "project", store=other)
    report = json.loads(done.out)
    failed = [row["id"] for row in report["results"] if row["status"] == "fail"]
    # The small project's programs are shell scripts in name only.
    assert set(failed) <= {"image-starts", "image-elf-ours"}, report
    assert report["digest"] == built.image.digest
    assert built.image.digest in (tmp_path / "page").read_text()
    assert list((other / "blobs" / "sha256").iterdir()) == []
    assert read_results(other / "results", built.image.digest) is not None
    only = builder("test", target, "--only", "image-platform", folder=tmp_path / "project", store=other)
    assert only.code == 0 and "1 passed, 0 failed" in only.out, only.err


def test_results_are_attached_when_the_image_is_pushed(host: str, built: Built, store: Store, tmp_path: Path) -> None:
    target = f"{host}/smoke/attached:1"
    project = tmp_path / "project"
    push = ("push", target, "--recipe", "tiny", "--with-results")
    refused = builder(*push, folder=project, store=store.root)
    assert refused.code == 2 and "builder test --recipe tiny" in refused.err
    builder("test", "--recipe", "tiny", folder=project, store=store.root)
    done = builder(*push, folder=project, store=store.root)
    assert done.code == 0, done.err
    assert done.out.strip().endswith(built.image.digest)
    client = Registry(config=RegistriesConfig(), credentials=Credentials())
    (listed,) = attached(client, Reference.parse(target), built.image.digest, MEDIA_TYPE)
    assert listed["artifactType"] == MEDIA_TYPE
    manifest = client.manifest(Reference.parse(f"{host}/smoke/attached@{listed['digest']}")).json
    assert manifest["subject"]["digest"] == built.image.digest
    (blob,) = manifest["layers"]
    report = json.loads(b"".join(client.blob(Reference.parse(target), Digest(blob["digest"]), blob["size"])))
    assert report["digest"] == built.image.digest
    again = builder(*push, folder=project, store=store.root)
    assert again.code == 0 and len(attached(client, Reference.parse(target), built.image.digest, MEDIA_TYPE)) == 1
