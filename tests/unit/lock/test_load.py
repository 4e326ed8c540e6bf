"""model.lockfile: sections and requests are read and written, and errors name file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError
from builder.lock.freshness import requested
from builder.lock.sections import select
from builder.model.lock import WheelLock
from builder.model.lockfile import load_requests, load_section, section_text, write_section
from tests.support.errors import fails

WHEELS: dict[str, Any] = {
    "kind": "wheels",
    "name": "tools",
    "locked": "2026-11-21T00:00:00Z",
    "request": {
        "requirements": ["a"],
        "constraints": [],
        "without": [],
        "python": "3.13",
        "platform": "aarch64-manylinux_2_39",
        "dependencies": True,
    },
    "wheels": [
        {"name": name, "version": "1", "file": f"{name}-1-py3-none-any.whl", "sha256": "a" * 64, "size": 5}
        for name in ("a", "b")
    ],
    "beside": {},
}


def write(folder: Path, data: Any = None, text: str = "") -> Path:
    path = folder / "tools.json"
    path.write_text(text or section_text(WheelLock.model_validate(data)))
    return path


def test_a_section_survives_writing_and_reading(tmp_path: Path) -> None:
    section = load_section(write(tmp_path, WHEELS))
    assert isinstance(section, WheelLock)
    assert section.model_dump(mode="json", exclude_none=True) == WHEELS
    write_section(tmp_path / "tools.json", section)
    assert load_section(tmp_path / "tools.json") == section
    assert [path.name for path in tmp_path.iterdir()] == ["tools.json"]


def test_the_text_has_one_entry_per_line() -> None:
    text = section_text(WheelLock.model_validate(WHEELS))
    assert json.loads(text) == WHEELS
    entries = [line for line in text.splitlines() if line.startswith('  {"name"')]
    assert [json.loads(line.rstrip(","))["name"] for line in entries] == ["a", "b"]


def edited(old: str, new: str) -> str:
    text = section_text(WheelLock.model_validate(WHEELS))
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line", "id", "key"),
    [
        (edited('"locked": "2026', '"locked": "26'), 4, "value-invalid", "locked"),
        (edited('"b", "version"', '"b", "versoin"'), 18, "key-unknown", "'version'"),
        (edited('"python": "3.13"', '"python": "2.7"'), 11, "value-invalid", "request.python"),
        (edited('"size": 5},', '"size": -5},'), 17, "value-invalid", "wheels.0.size"),
        (edited('"dependencies": true', '"dependencies": true,'), 14, "json-invalid", ""),
    ],
)
def test_an_invalid_section_names_line_and_key(tmp_path: Path, text: str, line: int, id: str, key: str) -> None:
    with fails(InvalidError, id) as caught:
        load_section(write(tmp_path, text=text))
    assert key in str(caught.value)
    assert caught.value.where == f"{tmp_path}/tools.json:{line}"


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("[]", "lock-kind-unknown"),
        ('{"kind": "things"}', "lock-kind-unknown"),
        ('{"kind": ["debs"]}', "lock-kind-unknown"),
        (edited('"name": "tools"', '"name": "other"'), "file-name-mismatch"),
        (edited('"name": "tools"', '"name": "tools", "name": "tools"'), "json-invalid"),
        ("[" * 100_000, "json-invalid"),
    ],
)
def test_other_files_are_no_section(tmp_path: Path, text: str, id: str) -> None:
    with fails(InvalidError, id) as caught:
        load_section(write(tmp_path, text=text))
    assert "tools.json" in caught.value.where


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with fails(InvalidError, "file-unreadable"):
        load_section(tmp_path / "none.json")
    (tmp_path / "tools.json").write_bytes(b"\xff")
    with fails(InvalidError, "file-not-text"):
        load_section(tmp_path / "tools.json")


REQUESTS = """\
x-shared: &shared [a<2]
wheels:
  one: {requirements: [a], constraints: *shared, python: "3.13", platform: aarch64-manylinux_2_39}
  two: {requirements: [b], without: [one], python: "3.13", platform: aarch64-manylinux_2_39}
"""


def test_requests_may_share_values_by_anchor(tmp_path: Path) -> None:
    (tmp_path / "requests.yaml").write_text(REQUESTS)
    assert load_requests(tmp_path / "requests.yaml").wheels["one"].constraints == ("a<2",)


@pytest.mark.parametrize(
    ("old", "new", "id"),
    [
        ("without: [one]", "without: [three]", "request-without-unknown"),
        ("without: [one]", "without: [two]", "request-without-unknown"),
        ("constraints: *shared", "without: [two]", "request-without-circular"),
        ("platform:", "platfrom:", "key-unknown"),
        ("wheels:", "debs: {one: {suite: x, architecture: arm64, packages: [a]}}\nwheels:", "request-name-twice"),
    ],
)
def test_invalid_requests(tmp_path: Path, old: str, new: str, id: str) -> None:
    (tmp_path / "requests.yaml").write_text(REQUESTS.replace(old, new, 1))
    with fails(InvalidError, id):
        load_requests(tmp_path / "requests.yaml")


def test_a_section_may_leave_out_one_that_leaves_out_another(tmp_path: Path) -> None:
    third = '  a-third: {requirements: [c], without: [one, two], python: "3.13", platform: aarch64-manylinux_2_39}\n'
    (tmp_path / "requests.yaml").write_text(REQUESTS.replace("wheels:\n", "wheels:\n" + third))
    requests = load_requests(tmp_path / "requests.yaml")
    assert [*requested(requests)] == ["one", "two", "a-third"]
    assert select(requests, ["two"]) == ["two", "a-third"]
