"""The checks of every image fail on their faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.smoke.static.run import run_static
from tests.support.images import (
    Files,
    Member,
    folder,
    hard,
    layout,
    tar,
)

OPAQUE = (("SCHILY.xattr.trusted.overlay.opaque", "y"),)


CAPABLE = (("SCHILY.xattr.security.capability", "x"),)


ALWAYS: list[tuple[str, list[Files | bytes], dict[str, Any], str]] = [
    ("layer-limit", [{f"opt/a{number}": b""} for number in range(128)], {}, "128 layers"),
    ("platform", [{"a": b""}], {"architecture": "amd64"}, "linux/amd64"),
    ("no-setuid", [{"a": b""}, {"opt/b": Member(b"", 0o4755)}], {}, "/opt/b (4755, layer 1)"),
    (
        "no-world-writable",
        [{"a": b""}, {"srv": folder(0o777), "opt/b": Member(b"", 0o666)}],
        {},
        "/srv (0777), /opt/b (0666)",
    ),
    ("parents-0755", [{"a": b""}, tar({"opt/b": b""}, parents=False)], {}, "layer 1 lacks /opt"),
    ("parents-0755", [{"a": b""}, {"opt": folder(0o775), "opt/b": b""}], {}, "layer 1 has /opt as 0775"),
    ("parents-0755", [{"a": b""}, {"opt": folder(0o755, 7), "opt/b": b""}], {}, "layer 1 has /opt as 0755 7:0"),
    ("parents-0755", [{".": folder(0o777), "opt/b": b""}], {}, "layer 0 has / as 0777 0:0"),
    ("parents-0755", [{"a": b""}, {".": folder(0o755, 5), "opt/b": b""}], {}, "layer 1 has / as 0755 5:0"),
    # overlayfs hides all lower layers then; the capability is the file's, whatever link names it.
    ("kinds", [{"a": b""}, {".": replace(folder(), pax=OPAQUE)}], {}, "/ has the attribute trusted.overlay.opaque"),
    (
        "kinds",
        [{"a": b""}, {"opt/b": b"", "opt/c": replace(hard("opt/b"), pax=CAPABLE)}],
        {},
        "/opt/c has the attribute",
    ),
]


@pytest.mark.parametrize(("kind", "layers", "settings", "expected"), ALWAYS)
def test_each_check_of_every_image_fails_on_its_fault(
    tmp_path: Path, kind: str, layers: list[Files | bytes], settings: dict[str, Any], expected: str
) -> None:
    found = {
        result.kind: result
        for result in run_static(layout(tmp_path / "image", list(layers), **settings), None, []).results
    }
    assert found[kind].status == "fail"
    assert expected in found[kind].message
    # A folder on the way to files that is not root's is also a file that is not root's.
    also = ["owners"] if "7:0" in expected else []
    assert [name for name, result in found.items() if result.status == "fail"] == [kind, *also]
