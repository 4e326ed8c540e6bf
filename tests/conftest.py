import gc
import signal

from hypothesis import settings

from tests.support.fixtures import cli, engine, make_plan, make_project, mirror, online, small, small_disk, store
from tests.support.fuzz import times

__all__ = ["cli", "engine", "make_plan", "make_project", "mirror", "online", "small", "small_disk", "store"]

# On a machine with other load the time of an example is not significant.
settings.register_profile("shared-machine", deadline=None, max_examples=times(100))
settings.load_profile("shared-machine")

# A shell starts background jobs with SIGINT ignored, and child processes inherit that: tests of Ctrl-C would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take what collecting the tests made out of garbage collection: `run_here` collects after every command."""
    gc.collect()
    gc.freeze()
