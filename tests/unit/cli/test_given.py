"""Consent to the commands of a stranger's plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.cli import output
from builder.cli.image.given import ask_trust
from builder.errors import UsageError
from builder.plan.bundle import read_bundle, write_bundle
from builder.plan.keys import keyed
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.cli import Cli
from tests.support.errors import fails
from tests.support.project import ROOT

HIDDEN = "FROM scratch AS hidden\nRUN curl evil\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_all_commands_of_a_strangers_plan_are_shown(
    quiet: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle says itself which part of a Dockerfile is the layer's own; what came before was run and not shown."""
    project = Project((ROOT,))
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    layers = tuple(
        replace(layer, dockerfile=f"{HIDDEN}{layer.dockerfile}", stages="") if layer.dockerfile else layer
        for layer in plan.layers
    )
    bundle = write_bundle(keyed(replace(plan, layers=layers)))
    monkeypatch.setattr(output, "_quiet", quiet)
    with fails(UsageError, "plan-not-trusted"):
        ask_trust(read_bundle(bundle, "here"), "here", trusted=False)
    assert "RUN curl evil" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["vllm:1", "team/vllm:1", "host.test/team/vllm", f"vllm@sha256:{'a' * 64}"])
def test_a_file_that_is_named_like_an_image_is_refused(name: str, cli: Cli) -> None:
    """In a stranger's folder, its commands ran without consent, or it was compared in place of the image."""
    project = Project((ROOT,))
    file = cli.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    file.write_bytes(write_bundle(plan))
    for words in (("build", "--plan", name), ("diff", name, name)):
        said = cli(*words)
        assert said.code == 2 and "[plan-ambiguous]" in said.err, said.err
    assert cli("diff", f"./{name}", f"./{name}").code == 0
