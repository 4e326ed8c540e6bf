"""Sources are locked from a real git repository behind a server: commit, tree and archive must belong together."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.model.lock import SourceLock
from builder.model.lockfile import load_section
from tests.support import forge as forges
from tests.support.cli import Cli, CommandResult
from tests.support.forge import Forge, git
from tests.support.http_server import serving
from tests.support.mirror import Mirror
from tests.support.pyindex import Index

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
FILES = {"Makefile": "all:\n", "src/a.c": "int a;\n", "src-b": "b\n", "ä/ö": "ü\n", ".gitignore": "*.o\n"}
ARCHIVE = "/someone/tool/archive/refs/tags/v1.0.tar.gz"
POOL = "pool/main/t/tool/tool_1.0.orig.tar.gz"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    with forges.running(tmp_path / "forge") as started:
        yield started


@pytest.fixture
def project(cli: Cli, forge: Forge, mirror: Mirror) -> Project:
    folder = forge.repository("someone/tool", FILES, "v1.0")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("src/a.c")
    forge.repository("someone/tool", {}, "v1.0")
    forge.repository("someone/tool", {"src/a.c": "int b;\n"}, "v2.0")
    cli.environ |= {**mirror.environment, "BUILDER_GITHUB": forge.address, "PATH": f"{cli.folder}/bin:/usr/bin:/bin"}
    cli.keep = True
    return Project(cli, forge, mirror)


class Project:
    """A project that requests the source `tool`."""

    def __init__(self, cli: Cli, forge: Forge, mirror: Mirror) -> None:
        self.cli, self.forge, self.mirror = cli, forge, mirror
        self.cli.write()
        self.locks = cli.folder / "project/recipes/locks"
        (self.locks / "sources.json").unlink()
        self.ask({"versions": ["1.0", "2.0"]})

    def ask(self, request: dict[str, Any]) -> None:
        names = ("tiny-root", "tiny-wheels", "toolchain-amd64", "toolchain-arm64")
        sections = {name: json.loads((self.locks / f"{name}.json").read_text()) for name in names}
        asked: dict[str, Any] = {"debs": {}, "wheels": {}}
        for name, section in sections.items():
            asked[section["kind"]][name] = section["request"]
        asked["sources"] = {"tool": {"github": "someone/tool", **request}}
        (self.locks / "requests.yaml").write_text(json.dumps(asked))

    def __call__(self, *words: str) -> CommandResult:
        return self.cli("lock", *words)

    def refused(self, code: int, *words: str) -> str:
        before = {path.name: path.read_bytes() for path in self.locks.iterdir()}
        said = self(*words)
        assert said.code == code, (said.code, said.err)
        assert {path.name: path.read_bytes() for path in self.locks.iterdir()} == before
        return said.err

    @property
    def sources(self) -> dict[str, Any]:
        section = load_section(self.locks / "sources.json")
        assert isinstance(section, SourceLock)
        return {source.version: source for source in section.sources}


def test_a_source_is_locked_with_commit_tree_and_archive(project: Project, forge: Forge) -> None:
    assert "tool/1.0, tool/2.0: is not locked yet" in project.refused(4, "--check", "sources")
    said = project("--json", "tool")
    assert said.code == 0, said.err
    repository = forge.root / "someone/tool"
    for version in ("1.0", "2.0"):
        found = project.sources[version]
        assert found.commit == git(repository, "rev-parse", f"v{version}^{{commit}}")
        assert found.tree == git(repository, "rev-parse", f"v{version}^{{tree}}")
        archive = forge.archive("someone/tool", f"v{version}")
        assert (found.sha256, found.size) == (hashlib.sha256(archive).hexdigest(), len(archive))
        assert [mirror.kind for mirror in found.mirrors] == ["github"]
    rows = json.loads(said.out)["changes"]
    assert [row["item"] for row in rows if row["name"] == "tool/1.0"] == ["commit", "tree", "sha256", "mirrors"]
    assert project("--check", "sources").code == 0
    forge.asked.clear()
    assert project("tool").err.endswith("nothing changed\n")
    assert forge.asked == []


def test_a_version_can_be_a_whole_commit(project: Project, forge: Forge) -> None:
    commit = git(forge.root / "someone/tool", "rev-parse", "v1.0^{commit}")
    project.ask({"versions": [commit]})
    said = project("tool")
    assert said.code == 0, said.err
    found = project.sources[commit]
    assert (found.commit, found.tree) == (commit, git(forge.root / "someone/tool", "rev-parse", "v1.0^{tree}"))
    assert found.mirrors[0].path == f"someone/tool/archive/{commit}.tar.gz"
    project.ask({"versions": ["f" * 40]})
    assert f"there is no tag {'f' * 40}" in project.refused(4, "tool")


def test_a_source_distribution_is_locked_from_the_package_index(project: Project, cli: Cli) -> None:
    with serving() as server:
        index = Index(server)
        cli.environ["UV_DEFAULT_INDEX"] = index.address
        index.add("tool", "1.0")
        index.add_sdist("tool", "2.0", b"sdist")
        project.ask({"github": None, "index": "tool", "versions": ["2.0"]})
        said = project("--json", "tool")
        assert said.code == 0, said.err
        found = project.sources["2.0"]
        assert (found.file, found.size, found.commit) == ("tool-2.0.tar.gz", 5, None)
        assert found.sha256 == hashlib.sha256(b"sdist").hexdigest()
        assert project("--check", "sources").code == 0
        assert project("--check", "--remote", "tool").code == 0
        project.ask({"github": None, "index": "tool", "versions": ["1.0"]})
        assert "no package index has its sdist" in project.refused(4, "tool")
        index.files["tool"][1]["hashes"] = {"sha256": "0" * 64}
        index.add("tool", "3.0")
        project.ask({"github": None, "index": "tool", "versions": ["2.0"]})
        assert "[source-distribution-differs]" in project.refused(4, "--update", "tool")
    project.ask({"index": "tool", "versions": ["2.0"]})
    assert "exactly one of github and index" in project.refused(3, "tool")


def test_an_update_of_one_version_requests_only_that_version_and_changes_no_byte(project: Project) -> None:
    assert project("sources").code == 0
    before = (project.locks / "sources.json").read_bytes()
    project.forge.asked.clear()
    said = project("--update", "tool/1.0")
    assert (said.code, said.out) == (0, "")
    assert any("v1.0" in line for line in project.forge.asked)
    assert not any("v2.0" in line for line in project.forge.asked)
    assert (project.locks / "sources.json").read_bytes() == before


def test_every_version_of_an_edited_section_is_resolved_again(project: Project, forge: Forge) -> None:
    assert project("tool").code == 0
    path = project.locks / "sources.json"
    good = path.read_text()
    path.write_text(good.replace(project.sources["2.0"].sha256, "0" * 64))
    errors = project.refused(4, "--check", "tool/1.0")
    assert "tool/1.0: sources.json was changed since it was resolved" in errors
    assert "builder lock tool/1.0" in errors
    # Entries that were not resolved are not sealed.
    forge.broken.add(ARCHIVE.replace("1.0", "2.0"))
    project.refused(6, "--update", "tool/1.0", "--keep-going")
    forge.broken.clear()
    rows = json.loads(project("--update", "--json", "tool/1.0").out)["changes"]
    assert [(row["name"], row["item"], row["old"]) for row in rows] == [("tool/2.0", "sha256", "0" * 64)]
    assert project.sources["2.0"].sha256 in good
    assert project("--check", "sources").code == 0


def test_an_update_reports_a_moved_tag_as_a_change(project: Project, forge: Forge) -> None:
    assert project("tool").code == 0
    old = project.sources["1.0"].commit
    forge.repository("someone/tool", {"Makefile": "other:\n"}, "v1.0")
    said = project("--update", "--json", "tool/1.0")
    rows = {row["item"]: row for row in json.loads(said.out)["changes"]}
    assert rows["commit"]["old"] == old
    assert rows["commit"]["new"] == project.sources["1.0"].commit != old
    assert {"commit", "tree", "sha256"} == set(rows)


def test_a_plain_file_server_can_serve_a_repository(project: Project, forge: Forge) -> None:
    forge.dumb = True
    assert project("tool").code == 0
    assert project.sources["2.0"].commit == git(forge.root / "someone/tool", "rev-parse", "v2.0^{commit}")


def test_an_archive_that_is_not_the_tags_tree_is_refused(project: Project, forge: Forge) -> None:
    forge.archives[ARCHIVE] = forge.archive("someone/tool", "v2.0")
    errors = project.refused(4, "tool")
    assert "[source-tree-mismatch]" in errors
    assert git(forge.root / "someone/tool", "rev-parse", "v2.0^{tree}") in errors


def test_a_second_mirror_must_serve_the_same(project: Project, forge: Forge, mirror: Mirror) -> None:
    project.ask({"versions": ["1.0"], "debian": {"1.0": POOL}})
    mirror.pool[POOL] = forge.archive("someone/tool", "v2.0")
    assert "[source-mirrors-differ]" in project.refused(4, "tool")
    del mirror.pool[POOL]
    assert "[source-mirrors-incomplete]" in project.refused(6, "tool")
    mirror.pool[POOL] = forge.archive("someone/tool", "v1.0")
    assert project("tool").code == 0
    assert [entry.kind for entry in project.sources["1.0"].mirrors] == ["debian", "github"]
    # What was compared once may be lost later, as long as the bytes stay those.
    del mirror.pool[POOL]
    assert project("--update", "tool").code == 0
    forge.lost.add(ARCHIVE)
    assert "[source-archive-gone]" in project.refused(4, "--update", "tool")


def test_missing_tags_and_unreachable_servers_are_errors(project: Project, forge: Forge) -> None:
    project.ask({"versions": ["9.0"]})
    assert "[git-tag-missing]" in project.refused(4, "tool")
    project.ask({"versions": ["1.0"]})
    forge.broken.add(ARCHIVE)
    assert "[source-archive-unreachable]" in project.refused(6, "tool")
    project.cli.environ["BUILDER_GITHUB"] = "http://me:secret@127.0.0.1:1"
    errors = project.refused(6, "tool")
    assert "[git-tag-unreadable]" in errors
    assert "secret" not in errors
    project.cli.environ["PATH"] = f"{project.cli.folder}/bin"
    assert "[git-missing]" in project.refused(2, "tool")


def test_remote_checks_ask_every_mirror(project: Project, forge: Forge, mirror: Mirror) -> None:
    project.ask({"versions": ["1.0"], "debian": {"1.0": POOL}})
    mirror.pool[POOL] = forge.archive("someone/tool", "v1.0")
    assert project("tool").code == 0
    assert project("--check", "--remote", "sources").code == 0
    del mirror.pool[POOL]
    said = project("--check", "--remote", "sources")
    assert (said.code, "warning: tool 1.0: debian" in said.err) == (0, True)
    forge.lost.add(ARCHIVE)
    assert "tool/1.0: no mirror has tool-1.0.tar.gz" in project.refused(4, "--check", "--remote", "tool")
    forge.lost.clear()
    forge.archives[ARCHIVE] = b"other"
    assert "has 5 bytes" in project.refused(4, "--check", "--remote", "tool/1.0")
    forge.broken.add(ARCHIVE)
    assert "HTTP 503" in project.refused(6, "--check", "--remote", "tool")


def test_versions_without_a_request_are_removed(project: Project) -> None:
    assert project("tool").code == 0
    project.ask({"versions": ["2.0"]})
    assert "tool/1.0: is locked, but no longer requested" in project.refused(4, "--check", "tool")
    assert "[lock-source-version-unknown]" in project.refused(2, "--update", "tool/1.0")
    assert project("--update", "tool").code == 0
    assert list(project.sources) == ["2.0"]
