"""`builder lock vllm==VERSION`: where the source distribution is while it is read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from builder.knowledge import sdist
from builder.lock.findings import LockReport
from builder.lock.refresh import refresh
from builder.lock.selection import LockContext
from builder.project import Project


def test_it_is_in_a_folder_that_only_this_user_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that holds the store may belong to all: links that another user puts there must lead nowhere."""
    seen: list[Path] = []

    def update_table(version: str, folder: Path) -> None:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        seen.append(folder)

    monkeypatch.setattr(sdist, "update_table", update_table)
    monkeypatch.setenv("BUILDER_STORE", str(tmp_path / "store"))
    (tmp_path / "recipes").mkdir()
    refresh(LockContext(Project((tmp_path,)), ["vllm==0.19.0"]), LockReport())
    assert [folder.exists() for folder in seen] == [False]
    assert [path.name for path in tmp_path.iterdir()] == ["recipes"]
