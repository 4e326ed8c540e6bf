"""The context of a rendered Dockerfile makes the same files as `builder build`, and appears whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import EngineError, PinError, UsageError
from builder.model.plan import Plan
from builder.produce.context import write_full_context
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.project import Sample
from tests.support.runner import Runner
from tests.support.tars import listing

MakePlan = Callable[..., Plan]


def written(store: Store, plan: Plan, folder: Path) -> Path:
    write_full_context(store, plan, "FROM scratch\n", folder, offline=False, listener=lambda event: None)
    return folder


def test_the_context_has_all_files_that_the_stages_read(
    make_plan: MakePlan, mirror: Mirror, store: Store, tmp_path: Path
) -> None:
    plan = make_plan()
    folder = written(store, plan, tmp_path / "context")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {f"inputs/{item.file}" for layer in plan.layers for item in layer.inputs} <= found
    assert {f"specs/{name}.json" for name in ("root", "wheels-alpha", "wheels-other", "placed")} <= found
    assert {"Dockerfile", "toolchain-amd64.tar", "toolchain-arm64.tar", "layers/compiled/patch.diff"} <= found
    assert {"unpack/__main__.py", "unpack/tree.py"} <= found
    assert (folder / "Dockerfile").read_text() == "FROM scratch\n"


def test_inputs_are_links_into_the_store(make_plan: MakePlan, mirror: Mirror, store: Store, tmp_path: Path) -> None:
    plan = make_plan()
    folder = written(store, plan, tmp_path / "context")
    item = plan.layers[0].inputs[0]
    assert (folder / "inputs" / item.file).samefile(store.blob(item.digest))


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_unpacker_in_the_context_makes_the_files_of_the_layer(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, tmp_path: Path, umask: int
) -> None:
    plan = make_plan(compression="none")
    records = runner.build(plan).records
    folder = written(runner.store, plan, tmp_path / "context")
    for layer in plan.layers:
        if layer.producer != "files":
            continue
        command = [sys.executable, "-m", "unpack", f"specs/{layer.id}.json", "inputs", str(tmp_path / layer.id)]
        subprocess.run(command, cwd=folder, check=True, umask=umask, env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
        members = listing(runner.store.read(records[layer.id].digest))
        assert found(tmp_path / layer.id) == {
            name: ("link", info.linkname) if info.issym() else ("dir" if info.isdir() else "file", info.mode)
            for name, info in members.items()
        }


def found(folder: Path) -> dict[str, tuple[str, object]]:
    made: dict[str, tuple[str, object]] = {}
    for path in folder.rglob("*"):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode & 0o7777
        if path.is_symlink():
            made[name] = ("link", str(path.readlink()))
        else:
            made[name] = ("dir" if path.is_dir() else "file", mode)
    return made


def test_a_folder_that_is_not_empty_is_refused_and_unchanged(
    make_plan: MakePlan, mirror: Mirror, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context/mine").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("context", "file"):
        with fails(UsageError, "context-not-empty"):
            written(store, make_plan(), tmp_path / name)
    assert [path.name for path in (tmp_path / "context").iterdir()] == ["mine"]
    assert mirror.asked == []


def test_an_empty_folder_is_filled(make_plan: MakePlan, mirror: Mirror, store: Store, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    assert (written(store, make_plan(), tmp_path / "context") / "Dockerfile").exists()


def test_on_an_error_there_is_no_folder(
    make_plan: MakePlan, small: Sample, mirror: Mirror, store: Store, tmp_path: Path
) -> None:
    plan = make_plan()
    mirror.wheels["beta"].clear()
    with pytest.raises(PinError):
        written(store, plan, tmp_path / "context")
    assert not [path for path in tmp_path.iterdir() if "context" in path.name]


def test_descriptions_name_no_path_of_this_machine(
    make_plan: MakePlan, mirror: Mirror, store: Store, tmp_path: Path
) -> None:
    folder = written(store, make_plan(), tmp_path / "context")
    for path in folder.glob("specs/*.json"):
        assert str(tmp_path) not in path.read_text()
        assert json.loads(path.read_text()).keys() == {"root", "debs", "wheels", "scheme", "files", "shared"}


def test_no_file_is_written_through_a_link_in_place_of_the_unfinished_folder(
    make_plan: MakePlan, mirror: Mirror, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp, another user may win the race between the removal and the new folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".context.partial").symlink_to(elsewhere)
    monkeypatch.setattr("builder.produce.context.remove", lambda path: None)
    with fails(EngineError, "disk-write-failed"):
        written(store, make_plan(), tmp_path / "context")
    assert list(elsewhere.iterdir()) == []
