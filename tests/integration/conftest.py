from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.registry import running


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of an empty registry."""
    with running(tmp_path_factory.mktemp("registry")) as started:
        yield started


MACHINE = {
    "test_deploy",
    "test_load",
    "test_mirror",
    "test_smoke_docker",
    "test_smoke_runc",
    "test_smoke_running",
    "test_tar_engines",
}
"""Modules that need the container engines, loop over namespaces or register qemu: one after the other."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With pytest-xdist, a module's tests stay in one process: so each fixture of a module runs once.

    First, because pytest-xdist reads the markers in the same hook.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            name = item.path.stem
            item.add_marker(pytest.mark.xdist_group("machine" if name in MACHINE else name))
