"""The wheel and the sdist: two builds are equal, and only a tag of main that fits the version is released."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from builder import __version__
from tests.support.project import ROOT
from tests.unit.workflows.checkout import git

TAG = f"v{__version__}"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with some files of this one, and the tag of a release."""
    folder = tmp_path_factory.mktemp("release") / "project"
    top = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore", "scripts/test")
    names = [*top, "builder/__init__.py", "recipes/nemotron-omni.yaml", "dockerfiles/layers/nccl/layer.yaml"]
    names += ["docs/verify.md"]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    changes = (folder / "CHANGELOG.md").read_text()
    (folder / "CHANGELOG.md").write_text(changes.replace("## Unreleased", f"## {__version__} - 2026-01-01"))
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "release")
    git(folder, "tag", TAG)
    return folder


def run(project: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["scripts/ci/run", "release", "--project", str(project), *words]
    more = os.environ | {"BUILDER_PYTHON": sys.executable} | environ
    return subprocess.run(command, cwd=ROOT, env=more, capture_output=True, text=True, check=False)


def test_a_release(released: Path, tmp_path: Path) -> None:
    """Two builds have one hash; so has a third by this test. A file that is not committed is not in them."""
    (released / "builder/secret.py").write_text("not committed")
    done = run(released, TAG, str(tmp_path / "dist"), "--branch", "main", SOURCE_DATE_EPOCH="1")
    (released / "builder/secret.py").unlink()
    assert done.returncode == 0, done.stderr
    sdist, wheel = (line.split("  ")[1] for line in done.stdout.splitlines())
    assert done.stdout == (tmp_path / "dist/SHA256SUMS").read_text()
    assert "### Added" in (tmp_path / "dist/notes.md").read_text()
    with tarfile.open(tmp_path / "dist" / sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "builder/__init__.py", "recipes/nemotron-omni.yaml"} <= names
    assert not {name for name in names if name.startswith(("tests", "scripts")) or "secret" in name}
    with zipfile.ZipFile(tmp_path / "dist" / wheel) as archive:
        names = set(archive.namelist())
        data = archive.read(f"gb10_builder-{__version__}.dist-info/METADATA").decode()
    assert {"builder/data/recipes/nemotron-omni.yaml", "builder/data/dockerfiles/layers/nccl/layer.yaml"} <= names
    assert {name.partition("/")[0] for name in names} == {"builder", f"gb10_builder-{__version__}.dist-info"}
    assert f"Name: gb10-builder\nVersion: {__version__}\n" in data
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=released, check=True, capture_output=True)
    again = (tmp_path / "again" / wheel).read_bytes()
    assert hashlib.sha256(again).hexdigest() in done.stdout


@pytest.mark.parametrize("tag", ["0.1.0", "v0.1", "v1.0.0-beta", "latest", "v0.1.0; id"])
def test_a_tag_that_names_no_version_of_a_release(released: Path, tmp_path: Path, tag: str) -> None:
    done = run(released, tag, str(tmp_path / "dist"))
    assert done.returncode == 2
    assert "[release-tag" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_tag_beside_the_branch(released: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(released, project)
    git(project, "checkout", "-q", "-b", "other")
    git(project, "commit", "-q", "--allow-empty", "-m", "not reviewed")
    git(project, "tag", "-f", TAG)
    done = run(project, TAG, str(tmp_path / "dist"), "--branch", "main")
    assert (done.returncode, "[release-not-on-branch]" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("file", "old", "new", "id"),
    [
        ("builder/__init__.py", __version__, "9.9", "release-version"),
        ("CHANGELOG.md", f"## {__version__}", "## Unreleased", "release-changelog"),
    ],
)
def test_a_commit_that_is_not_ready(released: Path, tmp_path: Path, file: str, old: str, new: str, id: str) -> None:
    project = tmp_path / "project"
    shutil.copytree(released, project)
    (project / file).write_text((project / file).read_text().replace(old, new))
    git(project, "commit", "-q", "-a", "-m", "two")
    git(project, "tag", "-f", TAG)
    done = run(project, TAG, str(tmp_path / "dist"))
    assert (done.returncode, f"[{id}]" in done.stderr) == (3, True)


def test_builds_that_differ_are_not_released(released: Path, tmp_path: Path) -> None:
    """A build hook that writes a file which depends on the time zone."""
    project = tmp_path / "project"
    shutil.copytree(released, project)
    (project / "hook.py").write_text(
        "import os\nfrom hatchling.builders.hooks.plugin.interface import BuildHookInterface\n"
        "class Hook(BuildHookInterface):\n    def initialize(self, version, build_data):\n"
        "        open(os.path.join(self.root, 'builder/zone.py'), 'w').write(os.environ['TZ'])\n"
    )
    settings = (project / "pyproject.toml").read_text().replace('"/LICENSE"', '"/LICENSE", "/hook.py"')
    (project / "pyproject.toml").write_text(settings + '\n[tool.hatch.build.hooks.custom]\npath = "hook.py"\n')
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "two")
    git(project, "tag", "-f", TAG)
    done = run(project, TAG, str(tmp_path / "dist"))
    assert (done.returncode, "[release-differs]" in done.stderr) == (8, True), done.stderr
    assert not (tmp_path / "dist").exists()
