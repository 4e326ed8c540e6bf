"""model.textfile: the folder of a layer is read within limits; links and special files are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import InvalidError
from builder.model.textfile import read_folder
from builder.model.variant import extended
from builder.store.removal import remove
from tests.support.errors import fails


def test_the_files_of_a_folder_are_read_by_path(tmp_path: Path) -> None:
    (tmp_path / "a/__pycache__").mkdir(parents=True)
    for name in ("layer.yaml", "b", "a/c", "a/.#c", "a/__pycache__/c.pyc"):
        (tmp_path / name).write_text(name)
    assert read_folder(tmp_path) == {"a/c": b"a/c", "b": b"b"}


def sparse(folder: Path) -> None:
    with (folder / "big").open("wb") as file:
        file.truncate(1 << 36)


def deep(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)


def many(folder: Path) -> None:
    for number in range(1001):
        (folder / str(number)).touch()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (sparse, "layer-folder-too-large"),
        (many, "layer-folder-too-large"),
        (deep, "file-unreadable"),
        (lambda folder: os.mkfifo(folder / "pipe"), "file-not-regular"),
        (lambda folder: (folder / "link").symlink_to("/etc/hostname"), "file-not-regular"),
        (lambda folder: (folder / "link").symlink_to("/etc"), "file-not-regular"),
    ],
    ids=["sparse", "many", "deep", "pipe", "link", "link to a folder"],
)
def test_a_folder_that_cannot_be_a_layer_is_refused(tmp_path: Path, make: Callable[[Path], None], error: str) -> None:
    folder = tmp_path / "layer"
    folder.mkdir()
    make(folder)
    with fails(InvalidError, error):
        read_folder(folder)
    remove(folder)  # pytest cannot remove a deep tree


def test_a_long_chain_of_recipes_is_refused() -> None:
    with fails(InvalidError, "recipe-extends-too-deep"):
        extended("r0", lambda name: {"extends": f"r{int(name[1:]) + 1}"})
