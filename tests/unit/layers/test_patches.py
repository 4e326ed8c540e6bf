"""The layer `patches`: files of a source over an installed distribution, which agree with its RECORD and the lock."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from builder.errors import BuilderError, InvalidError, PinError, UsageError
from builder.plan.bundle import read_bundle, write_bundle
from builder.plan.resolve import resolve
from builder.project import Project
from builder.unpack.entry import Entry, UnpackError, content
from builder.unpack.spool import Spool
from builder.unpack.tree import entries
from tests.support.errors import fails
from tests.support.one_layer import planned
from tests.support.project import Sample, hashed, write_files
from tests.support.tars import Link, tar
from tests.support.wheels import record_hash, wheel, wheel_name

SITE = "usr/local/lib/python3.13/dist-packages"
WHEEL = wheel("tool", {"tool/__init__.py": "old\n", "tool/kept.py": "kept\n", "tool/x.so": b"\x7fELF"}, version="1.0")
NEW = {"src/tool/__init__.py": "new\n", "src/tool/models/added.py": "added\n", "src/tool/link.py": Link("kept.py")}
FILES = ["tool/__init__.py", "tool/models/added.py"]


def patched(tmp_path: Path, files: list[str] = FILES, folder: str = "src", source: bytes | None = None) -> list[Entry]:
    data = gzip.compress(tar({f"tool-abc/{name}": text for name, text in NEW.items()}), mtime=0)
    inputs = {wheel_name("tool", "1.0"): WHEEL, "tool.tar.gz": data if source is None else source}
    for name, each in inputs.items():
        (tmp_path / name).write_bytes(each)
    patch = {"wheel": {"file": wheel_name("tool", "1.0")}, "source": {"file": "tool.tar.gz"}}
    spec: dict[str, Any] = {
        "root": False,
        "debs": [],
        "wheels": [],
        "files": [],
        "shared": [],
        "scheme": {"site": SITE},
    }
    spec["patches"] = [{**patch, "folder": folder, "files": files}]
    with Spool(str(tmp_path)) as spool:
        return entries(spec, lambda item: tmp_path / item["file"], spool)


def test_the_layer_has_the_files_and_a_record_of_the_whole_distribution(tmp_path: Path) -> None:
    found = {entry.path.removeprefix(f"{SITE}/"): entry for entry in patched(tmp_path) if entry.kind == "file"}
    assert set(found) == {*FILES, "tool-1.0.dist-info/RECORD"}
    assert content(found["tool/__init__.py"]) == b"new\n"
    rows = {row[0]: row[1:] for row in csv.reader(content(found["tool-1.0.dist-info/RECORD"]).decode().splitlines())}
    assert rows["tool/__init__.py"] == [record_hash(b"new\n"), "4"]
    assert rows["tool/models/added.py"] == [record_hash(b"added\n"), "6"]
    assert rows["tool/kept.py"] == [record_hash(b"kept\n"), "5"]
    assert rows["tool-1.0.dist-info/RECORD"] == ["", ""]
    assert list(rows) == sorted(rows)


@pytest.mark.parametrize(
    ("files", "folder", "source", "id"),
    [
        (["tool/absent.py"], "src", None, "patch-file-missing"),
        (FILES, "", None, "patch-file-missing"),
        (["tool/link.py"], "src", None, "patch-file-unusable"),
        (
            ["other/__init__.py"],
            "src",
            gzip.compress(tar({"t/src/other/__init__.py": ""}), mtime=0),
            "patch-outside-package",
        ),
        (["tool/x.so"], "src", gzip.compress(tar({"t/src/tool/x.so": ""}), mtime=0), "patch-outside-package"),
        (FILES, "src", b"no archive", "archive-damaged"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, files: list[str], folder: str, source: bytes | None, id: str
) -> None:
    with pytest.raises(UnpackError) as caught:
        patched(tmp_path, files, folder, source)
    assert caught.value.id == id


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The shipped files, and a source of the user's own."""
    made = Sample()
    made.add_sources({"vllm/0.21.0": b"source"})
    return Project((write_files(tmp_path / "own", made.files), *Project().roots))


GIVEN = {"name": "vllm", "against": "0.20.0", "source": "vllm/0.21.0", "files": ["vllm/envs.py"]}


def test_the_plan_names_what_is_replaced_and_where_it_comes_from(project: Project) -> None:
    layer = planned("patches", "hermetic-0.20", project=project, **GIVEN)
    assert layer.id == "patches-vllm"
    assert layer.replaces == (f"/{SITE}/vllm/envs.py", f"/{SITE}/vllm-0.20.0.dist-info/RECORD")
    assert {item.name for item in layer.inputs} == {"vllm 0.20.0", "vllm 0.21.0"}
    assert layer.spec
    assert layer.spec["patches"][0]["source"] == {"file": "vllm-0.21.0.tar.gz", "sha256": hashed(b"source")["sha256"]}


@pytest.mark.parametrize(
    ("more", "error", "id"),
    [
        ({"against": "0.20.1"}, PinError, "patch-version-differs"),
        ({"name": "absent"}, PinError, "wheel-not-locked"),
        ({"source": "vllm/0.22.0"}, PinError, "source-not-locked"),
        ({"files": []}, UsageError, "patch-without-files"),
        ({"files": ["../vllm/envs.py"]}, InvalidError, "layer-parameter-invalid"),
        ({"files": ["vllm/_C.so"]}, InvalidError, "layer-parameter-invalid"),
    ],
)
def test_a_patch_for_something_else_is_refused(
    project: Project, more: dict[str, Any], error: type[BuilderError], id: str
) -> None:
    with fails(error, id):
        planned("patches", "hermetic-0.20", project=project, **{**GIVEN, **more})


def test_a_source_of_ones_own_hides_none_of_the_package(project: Project) -> None:
    recipe = project.recipe("nemotron-omni")
    own, shipped = (resolve(each, recipe, base="hermetic") for each in (project, Project()))
    assert own == shipped
    with_patch = recipe.model_copy(update={"layers": (*recipe.layers, *_uses())})
    plan = resolve(project, with_patch, base="hermetic")
    assert read_bundle(write_bundle(plan), "here") == plan


def _uses() -> Any:
    from builder.model.recipe import LayerUse

    return (LayerUse(layer="patches", set=GIVEN),)
