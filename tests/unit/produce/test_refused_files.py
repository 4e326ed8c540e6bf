"""produce.build: files of layers that are refused: of inputs and of steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.engine.interface import BuildRequest, Log
from builder.errors import InvalidError
from builder.model.plan import Plan
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.mirror import Mirror
from tests.support.project import WIDGET, Sample
from tests.support.runner import Runner
from tests.support.tars import File

MakePlan = Callable[..., Plan]


@pytest.mark.parametrize(
    ("members", "id", "what"),
    [
        ({"lib/x.so": "x"}, "layer-files-invalid", "/lib/x.so"),
        ({"tmp/x": "x"}, "layer-files-invalid", "/tmp/x"),
        ({"opt/su": File(b"", 0o4755)}, "layer-files-invalid", "set-user-id"),
        ({"opt/.wh.x": ""}, "layer-files-invalid", ".wh."),
        ({}, "layer-empty", ""),
        ({"etc/placed.conf": "x"}, "layer-file-conflict", "placed covers /etc/placed.conf of layer compiled"),
        ({"opt/placed": "x"}, "layer-folder-conflict", "/opt/placed"),
        ({"usr/bin/tool": "x"}, "layer-file-conflict", "compiled covers /usr/bin/tool of layer root"),
    ],
)
def test_a_layer_that_writes_where_it_must_not_is_invalid(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, members: dict[str, str], id: str, what: str
) -> None:
    engine.targets = {"compiled": members}
    plan = make_plan()
    with fails(InvalidError, id) as caught:
        runner.build(plan)
    assert what in caught.value.what
    assert "layer" in caught.value.where
    assert runner.store.image(plan.key) is None
    assert runner.temporary() == []


def test_a_layer_may_cover_paths_that_it_declares_as_replaced(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner, engine: FakeEngine
) -> None:
    small.files["dockerfiles/layers/compiled/layer.yaml"]["replaces"] = ["/usr/bin/tool"]
    engine.targets = {"compiled": {"usr/bin/tool": "x"}}
    assert runner.build(make_plan()).image


def test_a_broken_wheel_is_invalid_and_named(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner
) -> None:
    small.add_wheels("tiny-wheels", {"alpha": b"no wheel", "beta": b"none", "gamma": b"neither"})
    small.serve(mirror)
    with fails(InvalidError, "layer-files-invalid") as caught:
        runner.build(make_plan())
    assert "-1.0-py3-none-any.whl" in caught.value.what


@pytest.mark.parametrize("left", ["link", "pipe", "folder"])
def test_what_a_step_left_in_place_of_its_files_is_not_read(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, tmp_path: Path, left: str
) -> None:
    """A step of buildah can leave its chroot, and write where its files are expected: a link, too."""

    class Replacing(FakeEngine):
        def build(self, request: BuildRequest, tar_file: Path, log: Log) -> None:
            super().build(request, tar_file, log)
            tar_file.rename(tmp_path / "of-the-user.tar")
            make = {"link": lambda path: path.symlink_to(tmp_path / "of-the-user.tar"), "pipe": os.mkfifo}
            make.get(left, Path.mkdir)(tar_file)

    runner.engine = Replacing({"compiled": WIDGET})
    with limit(20), fails(InvalidError, "layer-files-invalid") as caught:
        runner.build(make_plan())
    assert "a link, a pipe or a folder" in caught.value.what
    assert runner.temporary() == []
