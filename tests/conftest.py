import gc
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import parsed  # noqa: F401
from tests.support.fixtures import cli, engine, make_plan, make_project, mirror, online, small, small_disk, store
from tests.support.fuzz import times

__all__ = ["cli", "engine", "make_plan", "make_project", "mirror", "online", "small", "small_disk", "store"]

# On a machine with other load the time of an example is not significant.
settings.register_profile("shared-machine", deadline=None, max_examples=times(100))
settings.load_profile("shared-machine")

# A shell starts background jobs with SIGINT ignored, and child processes inherit that: tests of Ctrl-C would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)


MACHINE = {
    "test_builders",
    "test_deploy",
    "test_load",
    "test_mirror",
    "test_smoke_docker",
    "test_smoke_runc",
    "test_smoke_runc_processes",
    "test_smoke_running",
    "test_sparks",
    "test_tar_engines",
}
"""Integration tests that need the container engines, loop over namespaces or register qemu: one after the other."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With pytest-xdist, a module's tests stay in one process: so each fixture of a module runs once.

    First, because pytest-xdist reads the markers in the same hook.
    """
    for item in items:
        place = item.path.relative_to(Path(__file__).parent)
        alone = place.parts[0] == "integration" and place.stem in MACHINE
        item.add_marker(pytest.mark.xdist_group("machine" if alone else f"{place.parent.name}-{place.stem}"))


def pytest_collection_finish() -> None:
    """Take what collecting the tests made out of garbage collection: `run_here` collects after every command."""
    gc.collect()
    gc.freeze()
