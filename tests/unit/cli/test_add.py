"""`builder add wheels` in a project of one's own: layer, request and lock beside the sections of the base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.lock.requesting import with_wheels
from builder.model.lock import WheelRequest
from builder.model.yamlfile import parse_yaml
from tests.support.cli import Cli
from tests.support.mirror import Mirror
from tests.support.wheels import wheel, wheel_name

REQUEST = WheelRequest(requirements=("a>=1",), without=("base",), python="3.13", platform="aarch64-manylinux_2_39")
ADD = ("add", "wheels", "extra", "delta>=1", "--base", "tiny")


@pytest.fixture
def own(online: Cli, mirror: Mirror) -> Cli:
    """A folder of one's own above a project whose base has the wheels alpha, beta and gamma; delta needs alpha."""
    online.small.files["recipes/bases/tiny.yaml"]["vllm"] = "0.20.0"
    data = wheel("delta", {"delta/__init__.py": ""}, requires=["alpha"])
    mirror.wheels["delta"] = {wheel_name("delta", "1.0"): data}
    online.keep = True
    return online


def test_a_layer_of_wheels_takes_four_commands(own: Cli) -> None:
    added = own(*ADD)
    assert added.code == 0, added.err
    project = own.folder / "project"
    assert added.out.split() == [
        str(project / "dockerfiles/layers/extra/layer.yaml"),
        str(project / "recipes/locks/requests.yaml"),
        str(project / "recipes/locks/extra-0.20.0-cp313.json"),
    ]
    section = json.loads((project / "recipes/locks/extra-0.20.0-cp313.json").read_text())
    assert [item["name"] for item in section["wheels"]] == ["delta"], "alpha is in the base"
    here = own.folder
    own_recipe = project / "recipes/mine.yaml"
    assert own("new", "recipe", "mine", "--extends", "tiny", "--base", "tiny", "--layer", "extra").code == 0
    (here / "recipes/mine.yaml").rename(own_recipe)
    assert own("lint", "mine").code == 0
    built = own("build", "--recipe", "mine")
    assert built.code == 0, built.err
    assert own("test", "--recipe", "mine", "--only", "extra-delta").code == 0
    assert own("lock", "--check", "extra-0.20.0-cp313").code == 0
    assert own(*ADD).code == 0, "adding again changes nothing"


def test_a_request_that_cannot_be_resolved_leaves_no_file(own: Cli) -> None:
    said = own("add", "wheels", "extra", "nowhere>=1", "--base", "hermetic")
    assert said.code in (4, 6)
    project = own.folder / "project"
    assert not (project / "dockerfiles/layers/extra/layer.yaml").exists()
    assert not (project / "recipes/locks/requests.yaml").exists()
    assert not (project / "dockerfiles/layers/extra").exists()


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("add", "debs", "extra", "x"), "add-kind-unknown"),
    (("add", "wheels", "Extra", "x"), "name-invalid"),
    (("add", "wheels", "extra", "x >> 1"), "requirement-invalid"),
    (("add", "wheels", "extra", "./file.whl"), "requirement-invalid"),
    (("add", "wheels", "extra", "x", "--base", "hermetik"), "name-unknown"),
    (("add", "wheels", "extra", "x", "--base", "hermetic", "--beside", "nothing"), "name-unknown"),
    (("add", "wheels", "extra", "x", "--base", "hermetic", "--beside", "placed"), "add-beside-without-wheels"),
    (("add", "wheels", "placed", "x", "--base", "hermetic"), "add-layer-exists"),
    (("add", "wheels", "nccl", "x", "--base", "hermetic"), "add-layer-bundled"),
    (("add", "wheels", "extra", "x", "--base", "ngc-26.04"), "base-wheels-unknown"),
    (("new", "recipe", "mine", "--layer", "placed"), "new-layer-without-extends"),
]


@pytest.mark.parametrize(("words", "id"), WRONG, ids=[" ".join(words[1:]) for words, _ in WRONG])
def test_wrong_words_are_2(own: Cli, words: tuple[str, ...], id: str) -> None:
    own(*words).failed(2, id)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a note\n",
        "debs: {}\n",
        "wheels:\n  other:\n    requirements: [b]  # why\n    python: '3.13'\n    platform: x\n",
        "wheels:\n    mine:\n        requirements: [old]\n        python: '3.12'\n        platform: x\nsources: {}\n",
    ],
)
def test_a_request_is_added_and_the_rest_of_the_text_stays(text: str) -> None:
    added = with_wheels(text, "mine", REQUEST)
    data = parse_yaml(added, "requests.yaml")
    assert WheelRequest.model_validate(data["wheels"].pop("mine")) == REQUEST
    before = parse_yaml(text, "requests.yaml") or {}
    (before.get("wheels") or {}).pop("mine", None)
    assert {key: value for key, value in data.items() if value} == {
        key: value for key, value in before.items() if value
    }
    assert all(line in added for line in text.splitlines() if "#" in line)
    assert with_wheels(added, "mine", REQUEST) == added


def test_sections_of_the_package_may_be_left_out(cli: Cli) -> None:
    folder: Path = cli.folder / "own"
    (folder / "recipes/locks").mkdir(parents=True)
    request = 'wheels: {mine: {requirements: [x], without: [%s], python: "3.13", platform: aarch64-manylinux_2_39}}\n'
    (folder / "recipes/locks/requests.yaml").write_text(request % "vllm-0.20.0-cp313")
    said = cli("lock", "--check", "mine", BUILDER_PROJECT=str(folder))
    said.failed(4, "lock-problems")
    assert "is not locked yet" in said.err
    (folder / "recipes/locks/requests.yaml").write_text(request % "vllm-0.20.0-cp999")
    cli("lock", "--check", "mine", BUILDER_PROJECT=str(folder)).failed(3, "request-without-unknown")
