"""The rendered Dockerfile makes the image that the assembler makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.model.plan import Plan
from builder.oci.assemble import environment
from builder.plan.render import render
from builder.plan.resolve import resolve
from tests.support.dockerfile import parse, stages
from tests.support.project import Sample, vendor_base

Render = Callable[[str | None], tuple[Plan, str]]


@pytest.fixture
def rendered(tmp_path: Path, small: Sample) -> Render:
    def made(base: str | None = None) -> tuple[Plan, str]:
        small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/a/b:1", "sha256:" + "a" * 64)
        small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
        project = small.write(tmp_path / "project")
        plan = resolve(project, project.recipe("tiny"), base=base)
        return plan, render(project, plan)

    return made


def test_the_header_names_the_image_and_the_command_for_its_context(rendered: Render) -> None:
    head = rendered(None)[1].partition("\nFROM ")[0]
    assert "tiny on tiny" in head
    assert "builder render --recipe tiny --base tiny --context DIR" in head


def test_the_dockerfile_has_no_syntax_directive(rendered: Render) -> None:
    assert "syntax=" not in rendered(None)[1]


def test_every_layer_with_files_is_copied_in_order(rendered: Render) -> None:
    plan, text = rendered(None)
    found = stages(parse(text))
    copies = [item.rest for item in found["image"] if item.name == "COPY"]
    assert len(copies) == 5
    for layer, copy in zip([layer for layer in plan.layers if layer.producer != "config"], copies, strict=True):
        assert copy.startswith(f"--link --from={layer.id}")
        assert copy.split()[1].removeprefix("--from=") in found


def test_stages_of_compiled_layers_equal_those_of_the_engine(rendered: Render) -> None:
    plan, text = rendered(None)
    compiled = next(layer for layer in plan.layers if layer.id == "compiled")
    whole, alone = stages(parse(text)), stages(parse(compiled.dockerfile or ""))
    assert {name: whole[name] for name in alone} == alone


@pytest.mark.parametrize(
    "base_env", [[], ["LIBS="], ["LIBS=/usr/lib"], ["WIDGET=9", "LIBS=a:b", "OTHER=x"]], ids=" ".join
)
def test_on_a_registry_base_the_environment_is_the_assemblers(rendered: Render, base_env: list[str]) -> None:
    plan, text = rendered("vendor")
    image = stages(parse(text))["image"]
    values = dict(item.partition("=")[::2] for item in base_env)
    for item in image:
        if item.name == "ENV":
            name, value = item.pair(values)
            values[name] = value
    assert [f"{name}={value}" for name, value in values.items()] == environment(base_env, plan.env)


def test_on_a_registry_base_it_starts_from_the_pinned_digest(rendered: Render) -> None:
    text = rendered("vendor")[1]
    assert f"FROM registry.example/a/b:1@sha256:{'a' * 64} AS image" in text
    kinds = [item.name for item in stages(parse(text))["image"]]
    assert "ENTRYPOINT" not in kinds
    assert "WORKDIR" not in kinds
