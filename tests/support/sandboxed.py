"""A runner of this machine's own programs, and what a script prints in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from builder.smoke.check import CheckNotRun
from builder.smoke.cpu import runc
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import Command, run
from builder.smoke.image.opened import open_image
from tests.support.images import layout, link
from tests.support.programs import own_programs


@pytest.fixture(scope="module", params=["root", "user"])
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuncRunner]:
    """A runner, as root starts it and as another user does."""
    if os.geteuid() != 0 and request.param == "root":
        pytest.skip("only root runs it as root does")
    where = tmp_path_factory.mktemp("runc")
    files = {**own_programs(), "usr/work": link("/proc/self/fd/7")}
    image = layout(where / "image", [files], Env=["PATH=/usr/bin", "A=b c"])
    patch = pytest.MonkeyPatch()
    # The programs are this machine's: no qemu is needed.
    patch.setattr(runc, "native", lambda: True)
    patch.setattr(runc.os, "geteuid", lambda: 0 if request.param == "root" else 12345)
    try:
        runner = RuncRunner(open_image(image), where / "work")
    except CheckNotRun as reason:
        pytest.skip(str(reason))
    finally:
        patch.undo()
    yield runner
    assert [path.name for path in (where / "work").iterdir()] == [open_image(image).digest.replace(":", "-")]


def say(runner: RuncRunner, script: str, **more: str) -> str:
    done = run(runner, Command(["sh", "-c", script], **more), 30)  # type: ignore[arg-type]
    assert done.code == 0, done.output
    return done.output.strip()
