"""Static checks of what must fit together: a patched distribution and its RECORD, modules of FlashInfer."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.model.check import Check
from builder.smoke.static.run import run_static
from tests.support.images import SITE, SM_121, Files, distribution, elf, fatbin, layout, record

TOOL: Files = {f"{SITE}/tool/__init__.py": b"old", f"{SITE}/tool/kept.py": b"kept"}
RECORD = f"{SITE}/tool-1.0.dist-info/RECORD"


def records(tmp_path: Path, *layers: Files) -> list[str]:
    report = run_static(layout(tmp_path / "image", [distribution("tool", "1.0", TOOL), *layers]), None, [])
    return [row.message for row in report.results if row.kind in ("records", "imports") and row.status == "fail"]


def test_a_patched_file_agrees_with_the_record_that_the_patch_brings(tmp_path: Path) -> None:
    after = {**TOOL, f"{SITE}/tool/__init__.py": b"new", f"{SITE}/tool/added.py": b"added"}
    metadata = {f"{SITE}/tool-1.0.dist-info/METADATA": b"Name: tool\nVersion: 1.0\n"}
    patch: Files = {path: after[path] for path in after if after[path] != TOOL.get(path)}
    patch = {**patch, RECORD: record({**after, **metadata})}
    assert records(tmp_path / "right", patch) == []
    wrong = {**patch, f"{SITE}/tool/__init__.py": b"bad"}
    assert records(tmp_path / "wrong", wrong) == [f"/{SITE}/tool/__init__.py has another content than RECORD says"]
    unlisted = {**patch, f"{SITE}/tool/more.py": b""}
    assert records(tmp_path / "more", unlisted) == [f"in no RECORD: /{SITE}/tool/more.py"]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"norm/norm.so": elf(gpu=fatbin(SM_121)), "page/page.so": elf(gpu=fatbin(SM_121))}, "2 modules"),
        ({}, "/flashinfer/data/aot/*/*.so is not in the image in a folder of packages"),
        ({"norm/page.so": elf(gpu=fatbin(SM_121))}, "file and folder have different names"),
        ({"norm/norm.so": elf(gpu=fatbin((2, 90, 0)))}, "has no code for sm_121: sm_90 (1)"),
        ({"norm/norm.so": elf(gpu=fatbin(SM_121, (2, 120, 0)))}, "has not only code for sm_121: "),
        ({"norm/norm.so": elf()}, "has not only code for sm_121: "),
        ({"norm/norm.so": elf(machine=62)}, "is for x86-64, not aarch64"),
    ],
)
def test_modules_of_flashinfer_lie_where_it_looks(tmp_path: Path, files: dict[str, bytes], found: str) -> None:
    layer: Files = {f"{SITE}/flashinfer/data/aot/{path}": data for path, data in files.items()}
    check = Check(id="modules", tier="static", kind="flashinfer-modules")
    report = run_static(layout(tmp_path / "image", [distribution("tool", "1.0", TOOL), layer]), None, [check])
    (row,) = [row for row in report.results if row.id == "modules"]
    assert found in row.message
    assert row.status == ("pass" if len(files) == 2 else "fail")
