"""`builder verify --project`: whether the plan of an image is the one of a project at a commit."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.bundle import MEDIA_TYPE
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attach
from builder.store.store import Store
from builder.verify import checkout
from builder.verify.checkout import project_of
from tests.support.cli import Cli, CommandResult
from tests.support.errors import fails

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *settings, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=x")
    return git(folder, "rev-parse", "HEAD")


class Published:
    """An image of the small project, and the repository of this project."""

    def __init__(self, cli: Cli, target: str, *options: str) -> None:
        self.cli, self.target = cli, target
        cli.write()
        self.folder = cli.folder / "project"
        git(self.folder, "init", "--quiet")
        self.first = commit(self.folder)
        assert cli("build", "--recipe", "tiny").code == 0
        said = cli("push", target, "--recipe", "tiny", *options)
        assert said.code == 0, said.err
        self.digest = Digest(said.out.strip().rpartition("@")[2])

    def change(self, name: str, old: str, new: str) -> str:
        """A commit with a change; its id."""
        path = self.folder / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        return commit(self.folder)

    def verify(self, project: str, *words: str) -> CommandResult:
        (self.cli.folder / "empty").mkdir(exist_ok=True)
        places = {"BUILDER_PROJECT": str(self.cli.folder / "empty"), "BUILDER_STORE": str(self.cli.folder / "stranger")}
        said = self.cli("verify", self.target, "--project", project, *words, **places)
        assert list((self.cli.folder / "stranger" / "tmp").iterdir()) == []
        return said


@pytest.fixture
def published(online: Cli, host: str, request: pytest.FixtureRequest) -> Published:
    online.keep = True
    online.environ["PATH"] = "/usr/bin:/bin"
    name = "".join(letter for letter in request.node.name.lower() if letter.isalnum())
    return Published(online, f"{host}/origin/{name}:1")


def test_the_plan_of_a_folder_and_of_a_commit(published: Published) -> None:
    url = f"file://{published.folder}"
    for project, name in (
        (str(published.folder), f"{published.folder} at commit {published.first} (--recipe tiny --base tiny)"),
        (f"{url}@{published.first}", f"{url} at commit {published.first} (--recipe tiny --base tiny)"),
    ):
        said = published.verify(project)
        assert (said.code, said.out) == (0, "identical\n"), said.err
        assert f"the plan is the one of {name}" in said.err
    second = published.change("recipes/tiny.yaml", "word", "other")
    # The commit stays what it was.
    assert published.verify(f"{url}@{published.first}").code == 0
    for project in (str(published.folder), f"{url}@{second}"):
        said = published.verify(project)
        said.failed(8, "verify-other-project")
        assert "~ env LAST: " in said.err and second in said.err, said.err


def test_what_differs_is_named(published: Published) -> None:
    for name, old, new, line in (
        (
            "dockerfiles/layers/placed/layer.yaml",
            "link: /etc/placed.conf",
            "link: /etc/x",
            "layer placed: ~ file opt/placed/link",
        ),
        ("recipes/locks/tiny-root.json", "main/tool_", "main/fool_", "layer root: ~ "),
        ("recipes/tiny.yaml", "- placed\n", "", "- layer placed"),
        ("recipes/tiny.yaml", "port: 8000", "port: 8001", "~ option --port: 8000 → 8001"),
    ):
        published.change(name, old, new)
        said = published.verify(str(published.folder))
        assert said.code == 8 and line in said.err, said.err
        git(published.folder, "reset", "--quiet", "--hard", published.first)


def test_a_lock_that_is_rolled_back(published: Published) -> None:
    """An image of an older lock, behind the newest tag: versions of both are named."""
    newest = published.change("recipes/locks/tiny-wheels.json", "alpha-1.0", "alpha-1.1")
    newest = published.change("recipes/locks/tiny-wheels.json", '"version": "1.0"', '"version": "1.1"')
    said = published.verify(f"file://{published.folder}@{newest}")
    said.failed(8, "verify-other-project")
    assert "cause: ~ python alpha: 1.0 → 1.1" in said.err, said.err
    assert published.verify(f"file://{published.folder}@{published.first}").code == 0


def test_a_project_without_the_recipe(published: Published) -> None:
    git(published.folder, "rm", "--quiet", "recipes/tiny.yaml")
    said = published.verify(f"{published.folder}@{commit(published.folder)}")
    said.failed(8, "verify-other-project")


def test_options_come_from_the_publisher_or_from_here(online: Cli, host: str) -> None:
    online.keep = True
    online.environ["PATH"] = "/usr/bin:/bin"
    layer = online.small.files["dockerfiles/layers/placed/layer.yaml"]
    layer["parameters"] = {"word": {"type": "text", "pattern": "[a-z]+", "default": "no", "help": "word"}}
    layer["env"] = [{"name": "WORD", "value": "{{ params.word }}"}]
    published = Published(online, f"{host}/origin/options:1", "--set", "placed.word=yes")
    said = published.verify(str(published.folder))
    assert (said.code, said.out) == (0, "identical\n"), said.err
    assert "--set placed.word=yes" in said.err
    said = published.verify(str(published.folder), "--set", "placed.word=other")
    assert said.code == 8 and "~ env WORD: yes → other" in said.err, said.err


def test_of_several_bundles_the_projects_own_is_taken(published: Published) -> None:
    # Somebody attaches another bundle, which makes the same configuration.
    published.change("recipes/tiny.yaml", "\nmodel:", "\ncompatible: [vllm-openai]\nmodel:")
    assert published.cli("plan", "--recipe", "tiny", "--bundle", str(published.cli.folder / "other")).code == 0
    about = {"mediaType": OCI_MANIFEST, "digest": published.digest, "size": 1}
    client = Registry(config=RegistriesConfig(), credentials=Credentials())
    other = (published.cli.folder / "other").read_bytes()
    attach(client, Reference.parse(published.target), about, other, MEDIA_TYPE)
    for at in (published.first, git(published.folder, "rev-parse", "HEAD")):
        said = published.verify(f"{published.folder}@{at}")
        assert f"the plan is the one of {published.folder} at commit {at}" in said.err
        assert said.code == 0, said.err
        # The provenance is that of the first.
        assert ("it is about another bundle" in said.err) == (at != published.first)


def test_what_names_no_project(published: Published, tmp_path: Path) -> None:
    published.verify(f"file://{published.folder}").failed(2, "project-not-found")
    published.verify(f"{published.folder}@main").failed(2, "project-not-found")
    published.verify(f"{published.folder}@{'1' * 40}").failed(4, "project-commit-missing")
    published.verify(f"{tmp_path}/nothing@{'1' * 40}").failed(4, "project-commit-missing")
    said = published.verify(f"https://user:secret@127.0.0.1:9/x.git@{'1' * 40}")
    said.failed(6, "project-not-fetched")
    assert "secret" not in said.err
    for evil in ("ext::sh -c touch% {}", "--upload-pack=touch {}"):
        mark = tmp_path / "mark"
        published.verify(f"{evil.format(mark)}@{published.first}")
        assert not mark.exists()
    git(published.folder, "rm", "-r", "--quiet", "recipes", "dockerfiles")
    published.verify(f"{published.folder}@{commit(published.folder)}").failed(3, "project-commit-unreadable")
    published.cli("verify", published.target, "--project", ".", "--recipe", "tiny").failed(
        2, "verify-project-and-recipe"
    )


def test_nothing_of_a_strangers_repository_runs(published: Published, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    folder = published.folder
    for hook in ("post-checkout", "post-merge", "reference-transaction", "pre-auto-gc", "post-index-change"):
        path = folder / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {mark}\n")
        path.chmod(0o755)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil export-subst\n")
    (folder / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ext::touch% mark\n')
    (folder / "recipes" / "away.yaml").symlink_to("/etc/passwd")
    for name, value in {
        "filter.evil.smudge": f"touch {mark}",
        "core.fsmonitor": f"touch {mark}",
        "uploadpack.packObjectsHook": f"touch {mark}",
        "core.alternateRefsCommand": f"touch {mark}",
    }.items():
        git(folder, "config", name, value)
    at = commit(folder)
    mark.unlink(missing_ok=True)
    said = published.verify(f"file://{folder}@{at}")
    assert said.code == 0, said.err
    assert not mark.exists()


def test_a_commit_that_is_too_large(published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "_LARGEST", 1 << 20)
    (published.folder / "large").write_bytes(os.urandom(3 << 20))
    at = commit(published.folder)
    with fails(checkout.NetworkError, "project-not-fetched") as caught:
        project_of(f"{published.folder}@{at}", Store(tmp_path / "store").scratch())
    assert "1 MB" in caught.value.cause
