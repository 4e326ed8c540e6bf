"""Images that no plan of ours made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.static.run import run_static
from tests.support.images import (
    SITE,
    Files,
    distribution,
    elf,
    folder,
    layout,
    link,
    program,
)

ROOT: Files = {"usr/bin/env": program(elf()), "tmp": folder(0o1777)}


SETTINGS_OF_STRANGERS: dict[str, tuple[list[Files], dict[str, Any], str, str]] = {
    # name: layers, settings, the check that fails, its message
    "a folder of a process": ([ROOT], {"Env": ["PATH=/proc/self/cwd/bin:/usr/bin"]}, "settings", "/proc/self/cwd/bin"),
    "a folder that everyone can make": ([ROOT], {"Env": ["PATH=/tmp/bin:/usr/bin"]}, "settings", "/tmp/bin, which"),
    "folders that are not read": (
        [ROOT],
        {"Env": ["PATH=" + "/none:" * 64 + "/tmp:/usr/bin"]},
        "settings",
        "too many folders in PATH",
    ),
    "libraries of a process": (
        [ROOT],
        {"Env": ["PATH=/usr/bin", "LD_LIBRARY_PATH=/proc/self/cwd"]},
        "preloads",
        "/proc/self/cwd, where everyone may write",
    ),
    "libraries that everyone can make": (
        [ROOT],
        {"Env": ["PATH=/usr/bin", "LD_LIBRARY_PATH=/tmp/x/lib"]},
        "preloads",
        "/tmp/x/lib, where everyone may write",
    ),
    "a program in the working directory": (
        [{**ROOT, "srv/usr/bin/env": b""}],
        {"Env": ["PATH=/usr/bin"], "Entrypoint": ["usr/bin/env"], "WorkingDir": "/srv"},
        "starts",
        "usr/bin/env is not in the image",
    ),
    "a label without its vLLM": (
        [ROOT],
        {"Env": ["PATH=/usr/bin"], "Labels": {VLLM_LABEL: "0.20.0"}},
        "settings",
        "vLLM is not installed",
    ),
    "everything in one layer": (
        [{**ROOT, **distribution("vllm", "0.20.0", {f"{SITE}/vllm/a.py": b"good"}), f"{SITE}/vllm/a.py": b"evil"}],
        {"Env": ["PATH=/usr/bin"]},
        "records",
        "vllm/a.py has another content",
    ),
    # No file of the packages is in a folder of this name then.
    "packages behind a link": (
        [ROOT, {"usr/lib/python3.12/site-packages": link("/opt/data"), "opt/data/vllm/__init__.py": b"import evil\n"}],
        {"Env": ["PATH=/usr/bin"]},
        "imports",
        "site-packages",
    ),
}


@pytest.mark.parametrize("case", SETTINGS_OF_STRANGERS.values(), ids=SETTINGS_OF_STRANGERS)
def test_an_image_of_a_stranger(tmp_path: Path, case: tuple[list[Files], dict[str, Any], str, str]) -> None:
    layers, settings, kind, message = case
    results = run_static(layout(tmp_path / "image", list(layers), **settings), None, []).results
    assert [(row.kind, message in row.message) for row in results if row.status == "fail"] == [(kind, True)], results
