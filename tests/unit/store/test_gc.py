"""`builder gc` on a disk: removed and kept files, sizes, and claims of other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.errors import EngineError
from builder.model.plan import Plan
from builder.store.gc import collect
from builder.store.retention import GcReport, Policy
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.project import ROOT
from tests.support.runner import Runner
from tests.support.storefiles import deep_folder

MakePlan = Callable[..., Plan]
DAY = 86400.0


@pytest.fixture
def runner(store: Store, engine: FakeEngine, mirror: Mirror) -> Runner:
    return Runner(store, engine)


def files(store: Store) -> dict[str, int]:
    found = {str(path.relative_to(store.root)): path for path in store.root.rglob("*") if path.is_file()}
    return {name: path.stat().st_blocks * 512 for name, path in found.items() if not name.startswith("locks/")}


def gone(store: Store, *, dry_run: bool = False, **rules: Any) -> tuple[set[str], GcReport]:
    before = files(store)
    report = collect(store, Policy(**rules), dry_run=dry_run)
    after = files(store)
    assert after.keys() <= before.keys()
    lost = before.keys() - after.keys()
    if not dry_run:
        assert report.freed == sum(before[name] for name in lost)
    assert list(store.tmp.iterdir()) == []
    return lost, report


def age(store: Store, days: float) -> None:
    """Make all that is there this many days older; the time of status cannot be set."""
    for folder in ("images", "layers"):
        for path in (store.root / folder).iterdir():
            at = path.stat().st_mtime - days * DAY
            os.utime(path, (at, at))


def test_after_one_build_nothing_is_removed(make_plan: MakePlan, runner: Runner) -> None:
    plan = make_plan()
    built = runner.build(plan)
    lost, report = gone(runner.store)
    assert lost == set()
    assert (report.freed, report.busy) == (0, False)
    assert [(item["recipe"], item["digest"]) for item in report.images] == [("tiny", built.image.digest)]
    assert (report.kept["images"].count, report.kept["layers"].count) == (1, 6)
    assert runner.build(plan, offline=True).made == frozenset()


def test_an_older_image_is_removed_with_its_own_layers_and_inputs(make_plan: MakePlan, runner: Runner) -> None:
    old, new = make_plan(sets={"compiled": {"version": "2.0"}}), make_plan()
    first = runner.build(old)
    age(runner.store, 1)
    second = runner.build(new)
    dry, told = gone(runner.store, dry_run=True)
    assert dry == set()
    lost, report = gone(runner.store)
    assert (told.freed, told.removed, told.kept) == (report.freed, report.removed, report.kept)
    source = next(item for layer in old.layers for item in layer.inputs if item.kind == "source")
    record = first.records["compiled"]
    # The fake engine makes the same bytes of both versions.
    assert record.digest == second.records["compiled"].digest
    blobs = {first.image.digest, first.image.config_digest, source.digest, record.receipt}
    compiled = next(layer.key for layer in old.layers if layer.id == "compiled")
    expected = {f"blobs/sha256/{digest.hex}" for digest in blobs}
    assert lost == expected | {f"images/{old.key}.json", f"layers/{compiled}.json"}
    assert (report.removed["images"].count, report.removed["layers"].count) == (1, 1)
    assert runner.build(new, offline=True).made == frozenset()
    assert runner.build(old).image.digest == first.image.digest


def test_keep_inputs_keeps_unneeded_inputs(make_plan: MakePlan, runner: Runner) -> None:
    runner.build(make_plan(sets={"compiled": {"version": "2.0"}}))
    age(runner.store, 1)
    runner.build(make_plan())
    stray = runner.store.put(b"fetched for nothing")
    lost, report = gone(runner.store, keep_inputs=True)
    assert report.removed["inputs"].count == 0
    assert runner.store.has(stray)
    assert any(name.startswith("images/") for name in lost)
    lost, report = gone(runner.store)
    assert report.removed["inputs"].count == 2


def test_with_an_age_only_recently_used_items_are_kept(make_plan: MakePlan, runner: Runner) -> None:
    old, new = make_plan(sets={"compiled": {"version": "2.0"}}), make_plan()
    runner.build(old)
    age(runner.store, 40)
    runner.build(new)
    assert gone(runner.store, older_than=50 * DAY)[0] == set()
    lost, _ = gone(runner.store, older_than=30 * DAY)
    assert f"images/{old.key}.json" in lost
    age(runner.store, 40)
    runner.build(new)  # used again, though nothing was made
    assert gone(runner.store, older_than=30 * DAY)[0] == set()
    lost, report = gone(runner.store, older_than=0)
    assert set(files(runner.store)) == {"CACHEDIR.TAG"}
    assert report.images == []
    assert runner.build(new).image


def test_unpacked_images_are_removed_and_their_links_counted_once(store: Store) -> None:
    folder = store.root / "run" / "sha256-abc" / "usr"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(100_000))
    (folder / "again").hardlink_to(folder / "file")
    (folder / "locked").mkdir(mode=0o000)
    assert collect(store, Policy(older_than=DAY), dry_run=False).removed["unpacked"].count == 0
    report = collect(store, Policy(), dry_run=False)
    assert (report.removed["unpacked"].count, report.freed) == (1, -(-100_000 // 4096) * 4096)
    assert list((store.root / "run").iterdir()) == []
    assert list(store.tmp.iterdir()) == []


def test_an_unpacked_image_may_be_deeper_than_any_recursion(store: Store) -> None:
    unpacked = store.root / "run" / "sha256-abc"
    unpacked.mkdir(parents=True)
    deep_folder(unpacked, 1500)
    assert collect(store, Policy(), dry_run=False).removed["unpacked"].count == 1
    assert list((store.root / "run").iterdir()) == []


def test_files_of_unknown_names_below_tmp_are_removed_when_no_other_builder_runs(store: Store) -> None:
    """As older versions left them."""
    (store.tmp / "builder-smoke-abc/below").mkdir(parents=True)
    (store.tmp / "file").write_text("x")
    process = using(store)
    try:
        collect(store, Policy(), dry_run=False)
        assert len(list(store.tmp.iterdir())) == 2
    finally:
        process.communicate("")
    collect(store, Policy(), dry_run=True)
    assert len(list(store.tmp.iterdir())) == 2
    collect(store, Policy(), dry_run=False)
    assert list(store.tmp.iterdir()) == []


def test_bytes_with_a_link_elsewhere_are_not_freed(store: Store, tmp_path: Path) -> None:
    digest = store.put(bytes(10_000))
    (tmp_path / "link").hardlink_to(store.blob(digest))
    report = collect(store, Policy(), dry_run=False)
    assert (report.freed, report.removed["inputs"].linked) == (0, 12_288)
    assert not store.has(digest)
    assert (tmp_path / "link").stat().st_size == 10_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"layers": 1}',
        '{"layers": [1, {"used": 3, "inputs": 1}]}',
        '{"base_image": 1, "recipe": []}',
    ],
)
def test_damaged_records_are_ignored(make_plan: MakePlan, runner: Runner, text: str) -> None:
    plan = make_plan()
    runner.build(plan)
    for folder in ("images", "layers"):
        (runner.store.root / folder / f"{'e' * 64}.json").write_text(text)
    collect(runner.store, Policy(), dry_run=False)
    assert runner.build(plan, offline=True).made == frozenset()


USER = """
import sys
from pathlib import Path
from builder.digest import Digest
from builder.store.store import Store
store = Store(Path(sys.argv[1]))
for name in sys.argv[2:]:
    if name.startswith("sha256:"):
        assert store.has(Digest(name))
    else:
        assert name == "run" and store.claim("run") is None or store.layer(name) is not None
print("ready", flush=True)
sys.stdin.read()
"""


def using(store: Store, *names: str) -> subprocess.Popen[str]:
    """A process that uses these, until its input ends."""
    command = [sys.executable, "-c", USER, str(store.root), *names]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_claims_of_a_living_process_are_kept_until_it_ends(make_plan: MakePlan, runner: Runner) -> None:
    store, plan = runner.store, make_plan()
    record = runner.build(plan).records["root"]
    stray, other = store.put(b"being used"), store.put(b"used by nobody")
    (store.root / "run/sha256-a").mkdir(parents=True)
    process = using(store, stray, plan.layers[0].key, "run")
    try:
        _, report = gone(store, older_than=0)
        assert report.busy
        assert store.layer(plan.layers[0].key) == record
        assert store.read(stray) == b"being used"
        assert not store.has(other)
        assert (store.root / "run/sha256-a").exists()
        assert store.layer(plan.layers[1].key) is None
    finally:
        process.communicate("")
    _, report = gone(store, older_than=0)
    assert not report.busy
    assert set(files(store)) == {"CACHEDIR.TAG"}


def test_unreadable_claims_of_a_process_are_an_error(store: Store) -> None:
    store.put(b"x")
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('ready', flush=True)"
    code += "; sys.stdin.read()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code, str(store.root / "locks/1.0123abcd")], **pipes)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        before = files(store)
        with fails(EngineError, "store-claims-unreadable"):
            collect(store, Policy(), dry_run=False)
        assert files(store) == before
    finally:
        process.communicate("")
    assert collect(store, Policy(), dry_run=False).removed["inputs"].count == 1


BUILDS = """
import sys
from pathlib import Path
from builder.digest import Digest
from builder.store.store import Store
store = Store(Path(sys.argv[1]))
for n in range(150):
    data = str(n % 5).encode() * 1000
    digest = store.put(data)
    assert store.read(digest) == data
    if n % 10 == 9:
        store = Store(Path(sys.argv[1]))
print("done")
"""


def test_concurrent_builds_and_collections(store: Store) -> None:
    """Blobs that a process looked up or wrote can be read during collections."""
    command = [sys.executable, "-c", BUILDS, str(store.root)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    removed = 0
    deadline = time.monotonic() + 30
    while any(process.poll() is None for process in running) and time.monotonic() < deadline:
        removed += collect(store, Policy(), dry_run=False).removed["inputs"].count
    assert [process.communicate()[0] for process in running] == ["done\n"] * 3
    removed += collect(store, Policy(), dry_run=False).removed["inputs"].count
    assert removed >= 5
