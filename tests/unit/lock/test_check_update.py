"""`builder lock` checks sections against requests.yaml and updates them; the committed lock matches its requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.cli.lock import lock
from builder.errors import PinError, UsageError
from builder.lock.findings import Change, LockReport
from builder.lock.freshness import check, requested
from builder.lock.seal import sealed
from builder.lock.sections import Request, select, update_sections
from builder.lock.selection import LockContext
from builder.model.lock import DebRequest, LockSection, Wheel, WheelLock
from builder.model.lockfile import load_requests, load_section, section_text, write_section
from builder.project import Project
from tests.support.errors import fails

COMMITTED = Path(__file__).resolve().parents[3] / "recipes/locks"

REQUESTS = """\
wheels:
  extra: {requirements: ["a[x]"], without: [plain], python: "3.13", platform: aarch64-manylinux_2_39}
  plain: {requirements: [a], python: "3.13", platform: aarch64-manylinux_2_39}
"""


def wheel(name: str, version: str) -> Wheel:
    return Wheel(name=name, version=version, file=f"{name}-{version}-py3-none-any.whl", sha256="a" * 64, size=1)


class Index:
    """A resolver without network: the answer for each section."""

    def __init__(self) -> None:
        self.answers = {"plain": {"a": "1"}, "extra": {"x": "1"}}
        self.asked: list[str] = []
        self.time = "2026-01-01T00:00:00Z"

    def __call__(self, name: str, request: Request, locks: Path) -> LockSection:
        assert not isinstance(request, DebRequest)
        self.asked.append(name)
        wheels = tuple(wheel(*item) for item in self.answers[name].items())
        return WheelLock(name=name, locked=self.time, request=request, wheels=wheels)


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes/locks"
    folder.mkdir(parents=True)
    (folder / "requests.yaml").write_text(REQUESTS)
    return folder


def update(locks: Path, names: Sequence[str] = (), *, fresh_too: bool = True, resolver: Index) -> list[Change]:
    """Update the sections `names` of a project; fresh_too: also those that are not stale."""
    report = LockReport()
    update_sections(LockContext(Project((locks.parents[1],)), names, update=fresh_too), report, resolver)
    return report.changes


def test_missing_sections_are_resolved_in_order_of_dependency(locks: Path) -> None:
    index = Index()
    changes = update(locks, fresh_too=False, resolver=index)
    assert index.asked == ["plain", "extra"]
    assert changes == [Change("wheels", "plain", "a", None, "1"), Change("wheels", "extra", "x", None, "1")]
    assert check(locks) == []


def test_a_fresh_section_stays_without_update(locks: Path) -> None:
    index = Index()
    update(locks, resolver=index)
    index.asked.clear()
    assert update(locks, fresh_too=False, resolver=index) == []
    assert index.asked == []


def test_an_update_with_the_same_result_changes_no_byte(locks: Path) -> None:
    index = Index()
    update(locks, resolver=index)
    before = (locks / "plain.json").read_bytes()
    index.time = "2027-01-01T00:00:00Z"
    assert update(locks, resolver=index) == []
    assert (locks / "plain.json").read_bytes() == before


def test_an_update_reports_old_and_new_versions(locks: Path) -> None:
    index = Index()
    index.answers["plain"] = {"a": "1", "b": "1"}
    update(locks, resolver=index)
    index.answers["plain"] = {"a": "2", "c": "1"}
    index.time = "2027-01-01T00:00:00Z"
    assert update(locks, ["plain"], resolver=index) == [
        Change("wheels", "plain", "a", "1", "2"),
        Change("wheels", "plain", "b", "1", None),
        Change("wheels", "plain", "c", None, "1"),
    ]
    assert load_section(locks / "plain.json").locked == index.time


def test_dependants_of_an_updated_section_are_updated(locks: Path) -> None:
    index = Index()
    update(locks, resolver=index)
    index.asked.clear()
    update(locks, ["plain"], resolver=index)
    assert index.asked == ["plain", "extra"]


def test_unknown_names_are_refused_with_a_hint(locks: Path) -> None:
    with fails(UsageError, "lock-name-unknown") as caught:
        update(locks, ["plian"], resolver=Index())
    assert "plain" in caught.value.cause
    with fails(UsageError, "lock-section-unknown"):
        select(load_requests(locks / "requests.yaml"), ["plian"])


def test_check_reports_missing_changed_unrequested_and_damaged_sections(locks: Path) -> None:
    assert [problem.what for problem in check(locks)] == ["is not locked yet"] * 2
    update(locks, resolver=Index())
    (locks / "requests.yaml").write_text(REQUESTS.replace("[a]", '["a<2"]'))
    shutil.copy(locks / "plain.json", locks / "old.json")
    (locks / "old.json").write_text((locks / "old.json").read_text().replace('"plain"', '"old"'))
    (locks / "extra.json").write_text("{")
    found = {problem.name: problem.what for problem in check(locks)}
    assert found["plain"] == "was resolved from another request: requirements changed"
    assert "does not request it" in found["old"]
    assert "extra.json:1" in found["extra"]


def entries(data: dict[str, Any]) -> list[dict[str, Any]]:
    return next(data[key] for key in ("packages", "wheels", "sources") if key in data)


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "dropped": lambda data: entries(data).pop(),
    "doubled": lambda data: entries(data).append(entries(data)[0]),
    "reversed": lambda data: entries(data).reverse(),
    "emptied": lambda data: entries(data).clear(),
    "version": lambda data: entries(data)[-1].update(version="9"),
    "sha256": lambda data: entries(data)[-1].update(sha256="0" * 64),
    "size": lambda data: entries(data)[-1].update(size=1),
    "locked": lambda data: data.update(locked="2027-01-01T00:00:00Z"),
    "without its seal": lambda data: data.pop("seal"),
    "with another seal": lambda data: data.update(seal="0" * 64),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("name", ["toolchain-arm64", "vllm-0.20.0-cp313", "audio-0.20.0-cp313", "sources"])
def test_every_edit_of_a_committed_section_is_detected(
    tmp_path: Path, name: str, edit: Callable[[dict[str, Any]], object]
) -> None:
    shutil.copytree(COMMITTED, tmp_path, dirs_exist_ok=True)
    data = json.loads((tmp_path / f"{name}.json").read_text())
    edit(data)
    (tmp_path / f"{name}.json").write_text(json.dumps(data))
    found = check(tmp_path)
    assert found
    assert {problem.name.replace("nccl", "sources").partition("/")[0] for problem in found} >= {name}
    assert all(problem.next.startswith("builder lock ") and problem.code == 4 for problem in found)


def test_a_section_resolved_with_another_version_of_its_dependency_is_stale(locks: Path) -> None:
    index = Index()
    update(locks, resolver=index)
    index.answers["plain"] = {"a": "2"}
    other = sealed(index("plain", load_requests(locks / "requests.yaml").wheels["plain"], locks))
    write_section(locks / "plain.json", other)
    assert [(problem.name, problem.what) for problem in check(locks)] == [
        ("extra", "was resolved beside another version of plain")
    ]
    index.asked.clear()
    assert update(locks, fresh_too=False, resolver=index) == []
    assert index.asked == ["extra"]
    assert check(locks) == []


def test_an_edited_section_is_resolved_again_and_reported(locks: Path) -> None:
    index = Index()
    update(locks, resolver=index)
    path = locks / "plain.json"
    before = load_section(path)
    path.write_text(path.read_text().replace('"size": 1', '"size": 2'))
    index.time = "2027-01-01T00:00:00Z"
    assert update(locks, fresh_too=False, resolver=index) == [Change("wheels", "plain", "a", "1", "1")]
    assert load_section(path) == sealed(before.model_copy(update={"locked": index.time}))


def test_check_reports_a_wheel_in_two_sections(locks: Path) -> None:
    index = Index()
    index.answers["plain"] = {"a": "1", "x": "1"}
    update(locks, resolver=index)
    assert [problem.what for problem in check(locks)] == ["holds x, which plain has too"]


def test_the_command_checks_without_network(
    locks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUILDER_PROJECT", str(locks.parents[1]))
    with fails(PinError, "lock-problems") as caught:
        lock(["plain", "extra"], check=True, json_=True)
    assert caught.value.next == "builder lock extra && builder lock plain"
    assert [problem["name"] for problem in json.loads(capsys.readouterr().out)] == ["extra", "plain"]
    update(locks, resolver=Index())
    lock([], check=True)
    with fails(UsageError, "lock-name-unknown"):
        lock(["none"], check=True)
    with fails(UsageError, "lock-options-conflict"):
        lock([], check=True, update=True)


# --- what is committed ---


def test_the_committed_lock_matches_its_requests() -> None:
    assert check(COMMITTED) == []


@pytest.mark.parametrize("path", sorted(COMMITTED.glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_section_is_canonical_and_names_no_host(path: Path) -> None:
    section = load_section(path)
    assert path.read_text() == section_text(section)
    assert "://" not in path.read_text()
    if isinstance(section, WheelLock):
        assert [wheel.name for wheel in section.wheels] == sorted(wheel.name for wheel in section.wheels)


def test_every_committed_request_can_be_selected() -> None:
    requests = load_requests(COMMITTED / "requests.yaml")
    assert select(requests, []) == list(requested(requests))
    above = [name for name, request in requests.wheels.items() if "vllm-0.20.0-cp313" in request.without]
    assert "audio-0.20.0-cp313" in above
    assert select(requests, ["vllm-0.20.0-cp313"]) == ["vllm-0.20.0-cp313", *above]
