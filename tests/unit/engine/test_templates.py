"""Every Dockerfile that ships keeps to what both engines understand: lint of what the layers render to."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from builder.errors import PinError, UsageError
from builder.model.recipe import LayerUse
from builder.plan.render import render
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.dockerfile import Instruction, parse, stages
from tests.support.project import ROOT, Sample, write_files

GIVEN = {"extension": {"name": "twice", "version": "1.0", "module": "twice._C"}}
"""The parameters of layers that have parameters without a default."""
DIGEST = r"[a-z0-9.:-]+/[a-z0-9._/-]+(:[\w.-]+)?@sha256:[0-9a-f]{64}"


def compiled() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / "dockerfiles/layers").glob("*/Dockerfile.j2"))


@cache
def rendered() -> dict[tuple[str, str], str]:
    """The Dockerfile of every compiled layer on every pinned base that it fits, by layer and base."""
    with tempfile.TemporaryDirectory() as folder:
        own = Sample()
        own.add_sources({"twice/1.0": b"source"})
        return _rendered(Project((write_files(Path(folder), own.files), ROOT)))


def _rendered(project: Project) -> dict[tuple[str, str], str]:
    some = project.recipe("nemotron-omni")
    found = {}
    for name in project.base_names():
        for layer in compiled():
            use = {"base": name, "compatible": (), "layers": (LayerUse(layer=layer, set=GIVEN.get(layer, {})),)}
            try:
                plan = resolve(project, some.model_copy(update=use))
            except (UsageError, PinError):
                continue
            found |= {(item.layer, name): item.dockerfile for item in plan.layers if item.dockerfile is not None}
    return found


def instructions(layer: str) -> Iterator[Instruction]:
    for (name, _), text in rendered().items():
        if name == layer:
            yield from parse(text)


def test_at_least_one_template_is_tested() -> None:
    assert "nccl" in compiled()


@pytest.mark.parametrize("layer", compiled())
def test_it_fits_a_base(layer: str) -> None:
    assert list(instructions(layer)), "no pinned base renders this layer: nothing below was looked at"


@pytest.mark.parametrize("layer", compiled())
def test_it_has_no_heredoc(layer: str) -> None:
    for item in instructions(layer):
        if item.name in ("RUN", "COPY", "ADD"):
            assert not re.search(r"(^|\s)\d*<<-?[\"']?\w", item.rest), item


@pytest.mark.parametrize("layer", compiled())
def test_its_runs_have_no_flag_but_mounts_that_both_engines_know(layer: str) -> None:
    for item in instructions(layer):
        if item.name == "RUN":
            for word in item.rest.split():
                if not word.startswith("--"):
                    break
                assert re.match(r"--mount=type=(bind|cache|tmpfs)(,|$)", word), item


@pytest.mark.parametrize("layer", compiled())
def test_it_copies_without_link_and_adds_only_the_toolchain(layer: str) -> None:
    for item in instructions(layer):
        if item.name == "COPY":
            assert not item.rest.startswith(("--link", "--chown", "--chmod", "--exclude", "--parents")), item
        if item.name == "ADD":
            assert item.rest == "toolchain-${BUILDARCH}.tar /"


@pytest.mark.parametrize("layer", compiled())
def test_its_last_stage_is_from_scratch_and_has_its_name(layer: str) -> None:
    for (name, _), text in rendered().items():
        if name == layer:
            source = GIVEN.get(layer, {}).get("name")
            id = f"{layer}-{source}" if source else layer
            assert [item.rest for item in parse(text) if item.name == "FROM"][-1] == f"scratch AS {id}"
            assert {item.name for item in stages(parse(text))[id]} == {"COPY"}


@pytest.mark.parametrize("layer", compiled())
def test_it_starts_from_scratch_its_own_stages_or_a_digest(layer: str) -> None:
    for (name, _), text in rendered().items():
        if name != layer:
            continue
        known = {"scratch"}
        for item in parse(text):
            if item.name == "FROM":
                source, _, stage = re.sub(r"^--platform=\S+ ", "", item.rest).partition(" AS ")
                assert source in known or re.fullmatch(DIGEST, source), item
                known.add(stage)
            for used in re.findall(r"--from=(\S+)", item.rest) + re.findall(r"\bfrom=([^, ]+)", item.rest):
                assert used in known, item


@pytest.mark.parametrize("layer", compiled())
def test_stages_with_run_use_the_build_platform(layer: str) -> None:
    """No emulation: a stage with a RUN descends from the toolchain, which is the build platform's."""
    for (name, _), text in rendered().items():
        if name != layer:
            continue
        native: set[str] = set()
        for item in parse(text):
            if item.name == "FROM":
                source, _, stage = item.rest.partition(" AS ")
                if "--platform=$BUILDPLATFORM" in source or source in native:
                    native.add(stage)
            elif item.name == "RUN":
                assert stage in native, f"{item} runs code of the image's platform"


def test_the_whole_dockerfile_of_a_recipe_copies_with_link() -> None:
    """Plain COPY fails on a path through a link of the base; with --link a copy is a layer of its own."""
    project = Project((ROOT,))
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    image = stages(parse(render(project, plan)))["image"]
    copies = [item for item in image if item.name == "COPY"]
    assert len(copies) > 5
    assert all(item.rest.startswith("--link --from=") for item in copies)
    assert not [item for item in image if item.name in ("RUN", "ADD")]
