"""Sources are locked from a real git repository behind a server: commit, tree and archive must belong together."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError
from builder.lock.git import tree_of_archive
from builder.model.lock import SourceLock
from builder.model.lockfile import load_section
from tests.support import forge as forges
from tests.support.cli import Cli, CommandResult
from tests.support.errors import fails
from tests.support.forge import Forge, git
from tests.support.limits import ends
from tests.support.mirror import Mirror

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


# --- the tree of an archive ---


def archive(tmp_path: Path, *members: tuple[str, bytes | str | None]) -> Path:
    """Files by name; text is a link, None a folder."""
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            made.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def test_the_empty_tree(tmp_path: Path) -> None:
    # The output of `git hash-object -t tree /dev/null`.
    assert tree_of_archive(archive(tmp_path, ("a/", None)))[0] == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.mark.parametrize(
    "members",
    [
        [("a/x", b""), ("b/y", b"")],
        [("x", b"")],
        [("a/x", b""), ("a/x", b"")],
        [("a/x", b""), ("a/x/y", b"")],
        [("a/../x", b"")],
        [("a/.git/config", b"")],
        [("a//x", b"")],
        [("a/" + "d/" * 300 + "x", b"")],
        [],
    ],
    ids=["two tops", "no top", "twice", "file and folder", "up", "git", "empty part", "deep", "empty"],
)
def test_archives_with_members_that_no_commit_has_are_refused(tmp_path: Path, members: list[tuple[str, bytes]]) -> None:
    with fails(InvalidError, "source-archive-invalid"):
        tree_of_archive(archive(tmp_path, *members))


@pytest.mark.parametrize("data", [b"", b"x", b"\x1f\x8b\x08", b"\x1f\x8b\x08\0\0\0\0\0\0\0xxxxxxxxxx"])
def test_files_that_are_not_archives_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with fails(InvalidError, "source-archive-invalid"):
        tree_of_archive(tmp_path / "x")


def test_an_archive_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a/zeros")
    member.size = 15 * (64 << 20)
    parts = [gzip.compress(member.tobuf()), *[gzip.compress(bytes(64 << 20), 1)] * 15, gzip.compress(bytes(1024))]
    (tmp_path / "x").write_bytes(b"".join(parts))

    def work() -> None:
        with fails(InvalidError, "source-archive-invalid") as caught:
            tree_of_archive(tmp_path / "x")
        assert "too many bytes" in caught.value.cause

    ends(work, memory=200 << 20)
