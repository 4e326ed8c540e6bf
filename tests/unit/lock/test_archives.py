"""The tree of a source archive is that of a commit; other archives are refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from builder.errors import InvalidError
from builder.lock.git import tree_of_archive
from tests.support.errors import fails
from tests.support.limits import ends


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


def test_an_archive_of_many_folders_is_refused(tmp_path: Path) -> None:
    """Each file brought 200 folders of its own: 15 GB of memory."""
    path = archive(tmp_path, *((f"a/{number}/" + "d/" * 190 + "x", b"") for number in range(8000)))

    def work() -> None:
        with fails(InvalidError, "source-archive-invalid") as caught:
            tree_of_archive(path)
        assert "too many files" in caught.value.cause

    ends(work, memory=300 << 20)
