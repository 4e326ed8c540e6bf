"""The steps of the workflow `publish`, with the real `builder` and a real registry; and what stops them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builder.model.reference import Reference
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from tests.support.mirror import Mirror
from tests.support.nightly import nightly
from tests.support.project import ROOT, Sample

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
    pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed; runners have it"),
]
COMMIT = "c" * 40


class Run:
    """One run of the workflow. Each machine has its own store; artifacts are folders below `artifacts`."""

    def __init__(self, folder: Path, small: Sample, mirror: Mirror, host: str, name: str) -> None:
        small.files["recipes/tiny.yaml"]["layers"].remove("compiled")
        small.write(folder / "project")
        self.folder = folder
        self.mirror = mirror
        self.images = f"{host}/{name}"

    def __call__(self, machine: str, *command: str, code: int = 0, **more: str) -> str:
        """Run the script of a step. Returns its standard error, or standard output when it succeeds."""
        environ = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "BUILDER_PYTHON": sys.executable,
            "BUILDER_PROJECT": str(self.folder / "project"),
            "BUILDER_STORE": str(self.folder / "stores" / machine),
            "GITHUB_OUTPUT": str(self.folder / f"output-{machine}"),
            "GITHUB_REPOSITORY": "someone/images",
            "GITHUB_SHA": COMMIT,
            **self.mirror.environment,
            **more,
        }
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stderr if code else done.stdout

    def build(self, machine: str, code: int = 0, **more: str) -> str:
        results = str(self.folder / "artifacts" / machine)
        environ = {"RECIPES": "tiny", "BASE": "hermetic", "TIERS": "", "RESULTS": results, **more}
        return self(machine, "scripts/ci/build", code=code, **environ)

    def record(self, machine: str, **change: Any) -> dict[str, Any]:
        """The record of a machine, after a change of it."""
        path = self.folder / "artifacts" / machine / "tiny.json"
        record = json.loads(path.read_text()) | change
        path.write_text(json.dumps(record))
        return dict(record)

    def test(self) -> None:
        """Run the static tier; the small image is none that passes it."""
        self("arm64", "scripts/ci/run", "builder", "test", "--recipe", "tiny", "--base", "tiny", code=7)

    def push(self, code: int = 0) -> str:
        return self(
            "arm64", "scripts/ci/run", "push", self.images, "--results", str(self.folder / "artifacts/arm64"), code=code
        )

    def compare(self, code: int = 0) -> str:
        words = ("--builds", "2", "--tested", "--published", self.images)
        return self("digests", "scripts/ci/run", "compare", str(self.folder / "artifacts"), *words, code=code)

    def tag(self, tip: str = COMMIT, code: int = 0) -> str:
        """The last step. tip: what GitHub says is the last commit of main."""
        gh = self.folder / "bin/gh"
        gh.parent.mkdir(exist_ok=True)
        gh.write_text(f"#!/bin/sh\necho {tip}\n")
        gh.chmod(0o755)
        outputs = dict(line.split("=", 1) for line in (self.folder / "output-digests").read_text().splitlines())
        return self("tag", "scripts/ci/tag", code=code, IMAGES=outputs["images"])

    def tags(self) -> dict[str, str]:
        """The digest of each tag."""
        client = Registry(config=RegistriesConfig(), credentials=Credentials())
        place = f"{self.images}/tiny"
        names = client.tags(Reference.parse(place))
        found = {name: client.manifest(Reference.parse(f"{place}:{name}")).digest for name in names}
        return {name: digest for name, digest in found.items() if not name.startswith("sha256-")}


@pytest.fixture
def run(tmp_path: Path, small: Sample, mirror: Mirror, host: str, request: pytest.FixtureRequest) -> Run:
    return Run(tmp_path, small, mirror, host, "".join(filter(str.isalnum, request.node.name.lower())))


@pytest.fixture
def tested(run: Run) -> Run:
    """Built on two machines, and tested on one, as if it had passed."""
    for machine in ("arm64", "amd64"):
        run.build(machine)
    run.test()
    run.record("arm64", tested=["static", "cpu"])
    return run


def test_from_the_inputs_to_the_tags(run: Run) -> None:
    """The second machine builds when every upstream has gone, from the mirror that the first job made."""
    matrix = json.dumps({"include": [{"group": "tiny", "base": "hermetic", "recipes": "tiny"}]})
    run("inputs", "scripts/ci/mirror", MATRIX=matrix, MIRROR=f"{run.images}/inputs")
    run.build("arm64")
    run.mirror.pool.clear()
    run.mirror.wheels.clear()
    assert "[input-vanished]" in run.build("amd64", code=4)
    run.build("amd64", BUILDER_MIRROR=f"{run.images}/inputs")
    assert "[publish-untested]" in run.push(code=7)
    run.test()
    digest = run.record("arm64", tested=["static", "cpu"])["digest"]
    run.push()
    assert run.tags() == {}
    run.compare()
    run.tag()
    tags = run.tags()
    assert tags.pop("latest") == digest
    assert [name[:5] for name in tags] == ["plan-"]
    assert set(tags.values()) == {digest}


@nightly
def test_what_stops_a_tag(tested: Run) -> None:
    """Each fault, and the step that finds it; then the same run without the fault."""
    tested.push()
    other = "sha256:" + "e" * 64
    digest = tested.record("amd64", digest=other)["digest"]
    assert digest == other
    assert "**differ**" in tested.compare(code=8)
    right = tested.record("arm64")["digest"]
    tested.record("amd64", digest=right)
    hidden = tested.folder / "artifacts/amd64/tiny.json"
    hidden.rename(tested.folder / "hidden")
    assert "fewer than 2" in tested.compare(code=8)
    hidden.write_bytes((tested.folder / "hidden").read_bytes()[:-20])
    assert "[record-invalid]" in tested.compare(code=3)
    (tested.folder / "hidden").rename(hidden)
    tested.record("arm64", tested=["static"])
    assert "[publish-untested]" in tested.compare(code=7)
    tested.record("arm64", tested=["static", "cpu"])
    tested.compare()
    assert tested.tags() == {}
    tested.tag(tip="d" * 40)
    assert "latest" not in tested.tags()
    (plan,) = tested.tags()
    # Somebody moves the tag of the plan to another manifest.
    client = Registry(config=RegistriesConfig(), credentials=Credentials())
    named = Reference.parse(f"{tested.images}/tiny:{plan}")
    manifest = client.manifest(named)
    client.put_manifest(named, manifest.data + b"\n", manifest.media_type)
    assert "**differ**" in tested.compare(code=8)
    assert "[publish-differs]" in tested.tag(code=8)
    assert "latest" not in tested.tags()
