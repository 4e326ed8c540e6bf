"""Mirrors with hostile contents: pipes, links, malformed JSON, read-only media. None blocks builder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from builder.errors import EngineError, PinError, UsageError
from builder.mirror.artifact import locked_contents
from builder.mirror.folder import FolderBackend
from builder.mirror.source import MirrorSource, mirror_source
from builder.model.plan import Plan
from tests.support.errors import fails
from tests.support.hostile import killed_at
from tests.support.http_registry import Answer, Server, digest_of, image_manifest
from tests.support.mirror_bench import Bench, assert_intact
from tests.support.project import Sample, vendor_base

MakePlan = Callable[..., Plan]


def wheel(plan: Plan, bench: Bench) -> Path:
    """The file of a wheel in the mirror."""
    return bench.backend().blob(next(item.digest for item in locked_contents(plan) if item.name == "beta 1.0"))


def full_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


@pytest.mark.parametrize("make", [os.mkfifo, full_folder, lambda path: path.symlink_to(path.name)])
def test_a_blob_that_is_no_regular_file_counts_as_absent(
    make_plan: MakePlan, bench: Bench, make: Callable[[Path], None]
) -> None:
    plan = make_plan()
    bench.fill(plan)
    before = bench.contents()
    path = wheel(plan, bench)
    path.unlink()
    make(path)
    with fails(PinError, "mirror-input-missing"):
        bench.build(plan, bench.source())
    assert len(bench.fill(plan).sent) == 1
    assert bench.contents() == before


@pytest.mark.parametrize("relative", [False, True])
def test_the_store_receives_the_file_that_a_link_points_to(make_plan: MakePlan, bench: Bench, relative: bool) -> None:
    plan = make_plan()
    bench.fill(plan)
    path = wheel(plan, bench)
    real = path.rename(path.with_name("real"))
    path.symlink_to(real.name if relative else real)
    store = bench.store()
    assert bench.build(plan, bench.source(), store).image
    assert not any(blob.is_symlink() for blob in (store.root / "blobs/sha256").iterdir())
    assert_intact(store)


def test_a_mirror_whose_first_run_was_killed_at_any_point_can_be_continued(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        with FolderBackend(folder).writing():
            pass

    number = 0
    while killed_at(number, partial(write, tmp_path / str(number))):
        write(tmp_path / str(number))
        assert mirror_source(str(tmp_path / str(number)))
        assert {path.name for path in (tmp_path / str(number)).iterdir()} == {"oci-layout", "blobs"}
        number += 1
    assert number > 5


def test_a_mirror_whose_marker_is_empty_can_be_continued(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    (bench.folder / "mirror").mkdir(exist_ok=True)
    (bench.folder / "mirror/oci-layout").touch()
    with FolderBackend(bench.folder / "mirror").writing():
        assert mirror_source(str(bench.folder / "mirror"))
    bench.fill(plan)
    assert bench.build(plan, bench.source()).image


NONSENSE = {
    "deep": lambda path: path.write_text("[" * 200_000),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe"),
    "large": lambda path: path.write_text(f'{{"manifests": [], "x": "{"x" * (5 << 20)}"}}'),
    "pipe": os.mkfifo,
    "list": lambda path: path.write_text("[1]"),
}


@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
@pytest.mark.parametrize("what", NONSENSE)
def test_malformed_layout_files(make_plan: MakePlan, bench: Bench, name: str, what: str) -> None:
    plan = make_plan()
    bench.fill(plan)
    path = bench.folder / "mirror" / name
    path.unlink()
    NONSENSE[what](path)
    if name == "index.json":
        # Blobs are found by their hash alone.
        assert bench.build(plan, bench.source()).image
        with fails(UsageError, "layout-index-damaged"):
            bench.fill(plan)
    else:
        with fails(UsageError, "mirror-not-layout") as caught:
            mirror_source(str(path.parent))
        assert caught.value.code == 2


def test_the_command_in_the_advice_is_quoted_for_a_shell(make_plan: MakePlan, bench: Bench) -> None:
    plan = make_plan()
    (bench.folder / "my mirror").mkdir()
    with fails(PinError, "mirror-input-missing") as caught:
        bench.build(plan, MirrorSource(FolderBackend(bench.folder / "my mirror")))
    assert f"builder mirror '{bench.folder}/my mirror' --recipe NAME" in caught.value.next


@pytest.fixture
def read_only(make_plan: MakePlan, bench: Bench) -> Iterator[Path]:
    """A mirror of the small recipe, mounted so that it can only be read."""
    bench.fill(make_plan())
    path = bench.folder / "read_only"
    path.mkdir()
    commands = (["--bind", str(bench.folder / "mirror")], ["-o", "remount,bind,ro"])
    if os.geteuid() != 0:
        pytest.skip("nothing may be mounted here")
    for words in commands:
        if subprocess.run(["mount", *words, str(path)], check=False, capture_output=True).returncode:
            pytest.skip("nothing may be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_a_mirror_on_a_read_only_medium_can_be_read_and_verified(
    make_plan: MakePlan, bench: Bench, read_only: Path, spoil: Callable[[Path], None]
) -> None:
    plan = make_plan()
    bench.cut()
    assert bench.build(plan, mirror_source(str(read_only))).image
    assert bench.fill(plan, backend=FolderBackend(read_only), verify=True, offline=True).failed == {}
    spoil(wheel(plan, bench))
    report = bench.fill(plan, backend=FolderBackend(read_only), verify=True, offline=True)
    assert [error.id for error in report.failed["tiny.tiny"]] == ["input-missing-offline"]


def test_a_missing_input_cannot_be_written_to_a_read_only_medium(
    make_plan: MakePlan, small: Sample, bench: Bench, read_only: Path
) -> None:
    plan = make_plan()
    wheel(plan, bench).unlink()
    with fails(EngineError, "disk-write-failed") as caught:
        bench.fill(plan, backend=FolderBackend(read_only))
    assert "point DIR at" in caught.value.next


@pytest.mark.parametrize("offline", [False, True])
def test_a_base_in_the_mirror_needs_no_registry(
    make_plan: MakePlan, small: Sample, bench: Bench, offline: bool
) -> None:
    """The other machine has an empty store; it verifies the mirror or adds to it."""
    server = Server()
    config = json.dumps({"os": "linux", "architecture": "arm64", "rootfs": {"diff_ids": ["sha256:" + "d" * 64]}})
    server.on("GET", f"/v2/team/app/blobs/{digest_of(config.encode())}", Answer(200, config.encode()))
    pin = server.serve_manifest(image_manifest(config.encode(), b"a layer"))
    small.files["recipes/bases/vendor.yaml"] = vendor_base(f"{server.host}/team/app:1", pin)
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    plan = make_plan(base="vendor")
    bench.fill(plan)
    server.close()
    bench.cut()
    shutil.copytree(bench.folder / "mirror", bench.folder / "carried")
    report = bench.fill(plan, backend=FolderBackend(bench.folder / "carried"), verify=True, offline=offline)
    assert (report.failed, report.sent) == ({}, {})
