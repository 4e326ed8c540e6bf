"""Stored results of an image, and the HTML page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from builder.digest import Digest
from builder.errors import InvalidError
from builder.smoke.html import as_html
from builder.smoke.report import Report, Result
from builder.smoke.results import keep_results, read_results, results_folder
from tests.support.errors import fails
from tests.support.images import layout

DIGEST = Digest("sha256:" + "a" * 64)


def result(name: str, tier: str, status: str = "pass", message: str = "fine") -> Result:
    return Result(name, "kind", tier, status, message, 0.1)  # type: ignore[arg-type]


def test_each_tier_replaces_its_own_results(tmp_path: Path) -> None:
    keep_results(Report(DIGEST, [result("a", "cpu"), result("b", "cpu")], ["under qemu"]), tmp_path)
    keep_results(Report(DIGEST, [result("c", "static", "fail")]), tmp_path)
    path = keep_results(Report(DIGEST, [result("a", "cpu", "warn")]), tmp_path)
    assert path.name == f"sha256-{'a' * 64}.json"
    data = json.loads(path.read_text())
    assert (data["digest"], data["ok"], data["warned"]) == (DIGEST, False, 1)
    found = read_results(tmp_path, DIGEST)
    assert found is not None
    assert [(row.id, row.tier, row.status) for row in found.results] == [("c", "static", "fail"), ("a", "cpu", "warn")]
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_details_are_kept(tmp_path: Path) -> None:
    detail = [{"path": "/a", "runs": "PTX", "code": {"compute_90": 1}}]
    keep_results(Report(DIGEST, [Result("gpu", "gpu-code", "static", "pass", "1", 0.0, detail)]), tmp_path)
    found = read_results(tmp_path, DIGEST)
    assert found is not None and found.results[0].details == detail


def test_missing_and_damaged_results(tmp_path: Path) -> None:
    assert read_results(tmp_path, DIGEST) is None
    path = keep_results(Report(DIGEST, [result("a", "cpu")]), tmp_path)
    good = json.loads(path.read_text())
    odd = [{**good, "results": [{**good["results"][0], name: ["x"]}]} for name in ("id", "kind", "tier", "message")]
    for text in ("{", '{"results": 5}', *map(json.dumps, ({**good, "digest": "sha256:b"}, *odd))):
        path.write_text(text)
        with fails(InvalidError, "results-invalid"):
            read_results(tmp_path, DIGEST)


def test_the_place_of_results(tmp_path: Path) -> None:
    assert results_folder(layout(tmp_path / "image", [{"a": b""}])) == tmp_path / "image.results"
    assert results_folder(tmp_path) == tmp_path / "results"


def test_details_that_are_too_many_to_read_are_left_out(tmp_path: Path) -> None:
    """The results of the next test, a push and a site ended with an error about the file."""
    many = Result("a", "kind", "static", "fail", "many", 0.1, [{"path": str(number)} for number in range(15_000)])
    for _ in range(2):
        keep_results(Report(DIGEST, [many, result("b", "static")]), tmp_path)
    found = read_results(tmp_path, DIGEST)
    assert found is not None
    assert [(row.id, row.status, row.message) for row in found.results] == [
        ("a", "fail", "many"),
        ("b", "pass", "fine"),
    ]


@pytest.mark.parametrize(("here", "word"), [("", "."), ("blobs", "..")])
def test_a_layout_in_the_current_folder_has_a_folder_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, word: str
) -> None:
    image = layout(tmp_path / "image", [{"a": b""}])
    monkeypatch.chdir(image / here)
    assert results_folder(Path(word)) == tmp_path / "image.results"


def test_page() -> None:
    report = Report(
        DIGEST,
        [
            result("fine", "static"),
            result("broken", "static", "fail", "<script>alert(1)</script> & \x1b[31m"),
            Result("gpu", "gpu-code", "static", "pass", details=[{"path": "/x<y", "runs": "", "code": {"sm_90a": 2}}]),
            result("later", "cpu", "not-run", "no qemu"),
        ],
        ["a note"],
    )
    page = as_html(report, "nemotron & co")
    assert "<script" not in page
    assert not re.search(r"(src|href)=|url\(|@import", page)
    assert len(page) < 6000
    body = ElementTree.fromstring(page[page.index("<body>") : page.index("</html>")])
    rows = ["".join(cell.itertext()) for cell in body.iter("td")]
    assert "<script>alert(1)</script> & ?[31m" in rows
    # What needs a reader comes first.
    assert rows.index("broken") < rows.index("fine")
    assert "/x<y" in rows and "none of it" in rows and "sm_90a (2)" in rows
    text = "".join(body.itertext())
    assert DIGEST in text and "2 passed, 1 failed, 1 not run" in text and "a note" in text
    assert "nemotron & co" in text


@pytest.mark.parametrize(
    ("name", "value"), [("id", 5), ("tier", {}), ("message", None), ("seconds", "x"), ("kind", [])]
)
def test_results_of_a_stranger_have_the_types_of_results(tmp_path: Path, name: str, value: object) -> None:
    """Those beside a layout, and those in a registry, may be anybody's: they ended in a traceback."""
    row = {"id": "a", "kind": "k", "tier": "cpu", "status": "pass", "message": "m", "seconds": 1.0, name: value}
    path = tmp_path / f"{DIGEST.tag}.json"
    path.write_text(json.dumps({"digest": DIGEST, "results": [row], "notes": []}))
    with fails(InvalidError, "results-invalid"):
        keep_results(Report(DIGEST, [result("a", "static")]), tmp_path)
