"""The revision of a project: read without running anything that the project's own settings name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.store.removal import remove
from builder.verify.revision import files_at, revision_of
from tests.support.gitrepo import git
from tests.support.limits import ends
from tests.support.project import Sample


@pytest.fixture
def project(small: Sample, tmp_path: Path) -> Path:
    folder = small.write(tmp_path / "project").roots[0]
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def test_a_commit_and_whether_the_files_are_its_own(project: Path) -> None:
    commit = git(project, "rev-parse", "HEAD")
    found = revision_of(project)
    assert found is not None and (found.commit, found.clean) == (commit, True)
    (project / "notes.txt").write_text("not read by plans")
    assert found == revision_of(project)
    changed = project / "recipes" / "tiny.yaml"
    before = changed.read_text()
    changed.write_text(before + "\n")
    assert (again := revision_of(project)) is not None and (again.commit, again.clean) == (commit, False)
    changed.write_text(before)
    (project / "recipes" / "new.yaml").write_text("x")
    assert (again := revision_of(project)) is not None and not again.clean


def test_a_file_of_gigabytes_is_not_read_into_memory(project: Path) -> None:
    large = project / "recipes" / "large"
    large.touch()
    os.truncate(large, 1 << 40)

    def work() -> None:
        assert (found := revision_of(project)) is not None and not found.clean

    ends(work, memory=300 << 20)


def test_many_empty_gigabytes_are_not_read(project: Path) -> None:
    for number in range(400):
        (project / "recipes" / f"large-{number}").touch()
        os.truncate(project / "recipes" / f"large-{number}", 60 << 20)

    def work() -> None:
        assert (found := revision_of(project)) is not None and not found.clean

    ends(work)


def test_folders_below_each_other_and_a_folder_that_is_a_link(project: Path, tmp_path: Path) -> None:
    here = os.open(project / "recipes", os.O_RDONLY)
    try:
        for _ in range(1500):
            os.mkdir("a", dir_fd=here)
            below = os.open("a", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("f", os.O_CREAT, dir_fd=here))
        assert (found := revision_of(project)) is not None and not found.clean
    finally:
        os.close(here)
        remove(project / "recipes/a")  # pytest could not
    assert (found := revision_of(project)) is not None and found.clean
    (project / "recipes").rename(tmp_path / "elsewhere")
    (project / "recipes").symlink_to(tmp_path / "elsewhere")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message=link")
    assert (found := revision_of(project)) is not None and not found.clean, "what it leads to is in no commit"


def test_an_object_that_the_repository_replaces_is_still_itself(project: Path) -> None:
    """`git replace` shows another commit under the id of this one, which nobody else has."""
    first, before = git(project, "rev-parse", "HEAD"), files_at(project, "HEAD")
    (project / "recipes" / "tiny.yaml").write_text("changed")
    git(project, "commit", "--quiet", "--all", "--message=second")
    second = git(project, "rev-parse", "HEAD")
    git(project, "reset", "--quiet", "--soft", first)
    git(project, "replace", first, second)
    assert files_at(project, "HEAD") == before
    assert (found := revision_of(project)) is not None and (found.commit, found.clean) == (first, False)


def test_the_files_of_a_revision(project: Path) -> None:
    recipe = project / "recipes" / "tiny.yaml"
    before = recipe.read_bytes()
    (project / "dockerfiles" / "binary").write_bytes(bytes(range(256)))
    (project / "recipes" / "link").symlink_to("/etc/passwd")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=second")
    recipe.write_text("changed")
    found = files_at(project, "HEAD")
    assert found is not None and found["recipes/tiny.yaml"] == before
    assert found["dockerfiles/binary"] == bytes(range(256)) and "recipes/link" not in found
    older = files_at(project, "HEAD~1")
    assert older is not None and "dockerfiles/binary" not in older
    for name in ("v9", "--output=x", "HEAD:recipes", "HEAD\n", "HEAD^{tree}", ""):
        assert files_at(project, name) is None


def test_a_tree_that_no_checkout_makes(project: Path) -> None:
    blob = git(project, "rev-parse", "HEAD:recipes/tiny.yaml")
    tree = hash_tree(project, f"100644 blob {blob}\t..")
    for _ in range(2):
        tree = hash_tree(project, f"040000 tree {tree}\trecipes")
    commit = git(project, "commit-tree", tree, "-m", "hostile")
    assert files_at(project, commit) is None


def hash_tree(project: Path, line: str) -> str:
    """A tree object of one entry, which git itself refuses to make."""
    mode, _, rest = line.partition(" ")
    identity, name = rest.split(" ", 1)[1].split("\t")
    raw = mode.lstrip("0").encode() + b" " + name.encode() + b"\0" + bytes.fromhex(identity)
    (project / "raw").write_bytes(raw)
    return git(project, "hash-object", "-t", "tree", "-w", "--literally", "raw")


def test_a_folder_without_git(tmp_path: Path) -> None:
    assert revision_of(tmp_path) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"core.fsmonitor": "touch {mark}"},
        {"filter.evil.clean": "touch {mark}; cat", "filter.evil.process": "touch {mark}"},
        {"core.hooksPath": "{hooks}"},
        {"core.pager": "touch {mark}", "pager.ls-tree": "touch {mark}"},
        {"alias.ls-tree": "!touch {mark}", "alias.rev-parse": "!touch {mark}"},
        {
            "core.sshCommand": "touch {mark}",
            "remote.origin.url": "ext::touch% {mark}",
            "remote.origin.promisor": "true",
        },
    ],
)
def test_settings_of_the_project_run_nothing(project: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    mark, hooks = tmp_path / "mark", tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)
    (project / ".gitattributes").write_text("* filter=evil\n")
    for name, value in settings.items():
        git(project, "config", name, value.format(mark=mark, hooks=hooks))
    if "remote.origin.promisor" in settings:
        git(project, "config", "extensions.partialClone", "origin")
        tree = git(project, "rev-parse", "HEAD:recipes")
        (project / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    revision_of(project)
    assert not mark.exists()
