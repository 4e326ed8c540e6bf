"""Images without a plan: what comes before files and folders of a base, or is gone; odd files of the first layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.smoke.image.opened import open_image
from builder.smoke.static.run import check_image
from tests.support.images import SITE, Files, folder, layout, program
from tests.unit.smoke.static.like_ours import LIB, NCCL, PATH, ROOT, found, wheel

BASE: Files = {
    **ROOT,
    "opt/nvidia/entrypoint.sh": program(b"#!/usr/bin/python3\n"),
    "usr/include/stdio.h": b"",
    f"{SITE}/m/envs.py": b"",
}
BELOW: dict[str, Any] = {
    "Env": [PATH, "OF_BASE=1", "LD_LIBRARY_PATH=/odd:/usr/lib"],
    "Entrypoint": ["/opt/nvidia/entrypoint.sh"],
    "OnBuild": ["RUN true"],
    "Volumes": {},
}
CASES: dict[str, tuple[Files, dict[str, Any], str]] = {
    # files of a layer on the base, changed settings, what is found
    "nothing": (NCCL, {"Env": [PATH, "OF_BASE=1", "LD_LIBRARY_PATH=/opt/nccl/lib:/odd:/usr/lib"]}, ""),
    "a folder of programs": ({}, {"Env": ["PATH=/models:/usr/bin", *BELOW["Env"][1:]]}, "/models, out of which"),
    "a folder of libraries": ({}, {"Env": [*BELOW["Env"][:2], "LD_LIBRARY_PATH=/models"]}, "/models, out of which"),
    "a folder of the loader": ({"etc/ld.so.conf.d/x.conf": b"/models\n"}, {}, "/models, out of which"),
    "a variable that is gone": ({}, {"Env": [PATH, BELOW["Env"][2]]}, "the variable OF_BASE, which the base has"),
    "an entrypoint that is gone": ({}, {"Entrypoint": None}, "Entrypoint, which the base has"),
    "another module": (wheel({f"{SITE}/m/envs/__init__.py": b""}), {}, "one module of two distributions"),
    "a header before another": (wheel({"usr/local/include/stdio.h": b""}), {}, "/usr/local/include/stdio.h"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_found_on_a_base(tmp_path: Path, case: tuple[Files, dict[str, Any], str]) -> None:
    files, changes, message = case
    settings = {name: value for name, value in BELOW.items() if name != "OnBuild"} | changes
    image = open_image(layout(tmp_path, [BASE, {"srv": folder(), **files}], **settings))
    rows = [row.message for row in check_image(image, [], base=1, settings=BELOW).results if row.status != "pass"]
    assert [message in row for row in rows] == [True] * bool(message)


def test_one_module_in_two_folders(tmp_path: Path) -> None:
    """The folder of /usr/local comes first in sys.path."""
    files = {path.replace(SITE, "usr/local/lib/python3.13/dist-packages"): what for path, what in OTHER.items()}
    assert "one module of two distributions" in found(tmp_path, [ROOT, files])["records"]


@pytest.mark.parametrize("name", ["x.egg-info", "x-1.DIST-INFO"])
def test_plugins_in_other_metadata(tmp_path: Path, name: str) -> None:
    """Python reads entry points there, too."""
    path = f"{SITE}/{name}/entry_points.txt"
    assert path in found(tmp_path, [ROOT, wheel({path: b"[vllm.general_plugins]\nx = x:f\n"})])["unplanned"]


def test_a_zip_in_the_path(tmp_path: Path) -> None:
    files = wheel({f"{SITE}/x.pth": b"x/x.zip\n", f"{SITE}/x/x.zip": b"PK"})
    assert "x.zip to sys.path" in found(tmp_path, [ROOT, files])["imports"]


OTHER = wheel({f"{SITE}/vllm/__init__.py": LIB})


def test_where_the_server_listens_is_no_address_that_it_asks(tmp_path: Path) -> None:
    words = ["vllm", "serve", "a/b", "--host", "0.0.0.0", "--hf_overrides", '{"a": "b/c"}', "--seed", "-1"]
    assert found(tmp_path, [ROOT], Entrypoint=words) == {}


@pytest.mark.parametrize("path", ["root/.local/lib/python3.13/site-packages/x.pth", "tmp/torchinductor_root/fxgraph/x"])
def test_files_of_the_first_layer_that_no_package_has(tmp_path: Path, path: str) -> None:
    """Python reads the first, and torch loads the second."""
    assert found(tmp_path / "1", [{**ROOT, "root/.bashrc": b"", "root/.profile": b""}]) == {}
    assert f"/{path}" in found(tmp_path / "2", [{**ROOT, path: b""}])["unplanned"]
