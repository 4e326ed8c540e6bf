"""builder.atomic: a file is written whole or not at all, and several files only when all can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.atomic import staged, write_file
from builder.regular import is_regular
from tests.support.hostile import Outside, limit


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing"])
def test_a_link_or_pipe_is_replaced_and_nothing_outside_is_written(tmp_path: Path, kind: str) -> None:
    """A project of somebody else may have a link to any file in place of a lock file."""
    outside = Outside(tmp_path)
    outside.put(kind, tmp_path / "file")
    with limit():
        write_file(tmp_path / "file", b"new")
    assert is_regular(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "new"
    outside.assert_unchanged()


def test_writing_keeps_the_mode(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    write_file(tmp_path / "real", b"new")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640
    write_file(tmp_path / "made/here", b"x")
    assert (tmp_path / "made/here").stat().st_mode & 0o777 == 0o644


def test_a_file_that_cannot_be_written_leaves_the_others_unchanged(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old")
    (tmp_path / "file").write_text("not a folder")
    wanted = {tmp_path / "one": b"new", tmp_path / "file/two": b"new"}
    with pytest.raises(OSError), staged(wanted) as put:
        put(tmp_path / "one")
    assert (tmp_path / "one").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "one"]


def test_a_staged_file_that_is_not_put_is_removed(tmp_path: Path) -> None:
    files = {tmp_path / name: name.encode() for name in ("one", "two")}
    with staged(files) as put:
        assert not (tmp_path / "one").exists()
        put(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
