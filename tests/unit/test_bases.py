"""The shipped bases: every image is there, pinned only where a linux/arm64 digest is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import PinError
from builder.knowledge.table import load_table
from builder.lock.seal import is_own_pin
from builder.model.base import Base
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.project import write_files

PROJECT = Project()

NAMED = [
    *(f"ngc-25.{tag}" for tag in ("09", "12.post1")),
    *(f"ngc-26.0{tag}" for tag in ("2", "3", "4", "5.post1", "6", "7", "8", "9")),
    *(f"vllm-openai-0.{minor}.0" for minor in range(20, 32)),
    "vllm-openai-nightly",
    "vllm-openai-cu130-nightly",
    "vllm-openai-gemma4-cu130",
    "vllm-openai-gemma",
    "aeon-vllm-dflash",
    "aeon-vllm-ultimate",
    "zlab-gemma4-dflash",
    "vllm-node",
    "spark-vllm-mxfp4",
]


@pytest.mark.parametrize("name", NAMED)
def test_every_image_that_the_documents_name_is_a_base(name: str) -> None:
    assert PROJECT.base(name).name == name


@pytest.mark.parametrize("base", [base for base in PROJECT.bases.values() if base.pin], ids=lambda base: base.name)
def test_a_pin_with_digests_has_evidence_and_confidence(base: Base) -> None:
    assert base.pin is not None
    if base.pin.manifest or base.pin.index:
        assert base.pin.evidence
        assert base.pin.confidence != "none"
    assert base.pin.manifest is None or base.pin.manifest != base.pin.index


UBUNTU = {"22.04": "2.35", "24.04": "2.39"}


@pytest.mark.parametrize("base", [base for base in PROJECT.bases.values() if base.pin], ids=lambda base: base.name)
def test_the_facts_of_a_base_match_the_option_table_of_its_vllm(base: Base) -> None:
    assert base.pin is not None
    assert is_own_pin(base.pin)
    assert (base.pin.seal is None) == (base.pin.manifest is None)
    table = load_table(base.vllm or "")
    if table is None or base.family != "vllm-openai" or "nightly" in base.name:
        return
    assert f"=={base.torch}" == table.libraries["torch"]
    # What the wheel of that torch requires.
    assert base.triton == {"2.10.0": "3.6.0", "2.11.0": "3.6.0", "2.13.0": "3.7.1", "2.14.0": "3.8.0"}[base.torch or ""]
    ubuntu = "24.04" if "ubuntu2404" in base.pin.image else table.docker.get("UBUNTU_VERSION", "22.04")
    assert base.glibc == UBUNTU[ubuntu]
    if "-cu1" not in base.pin.image:
        assert base.cuda == table.docker["CUDA_VERSION"]


def test_digests_and_facts_that_contradict_each_other_are_refused() -> None:
    base = PROJECT.base("ngc-26.07").model_dump()
    with pytest.raises(ValueError, match="index and manifest have the same digest"):
        Base.model_validate({**base, "pin": {**base["pin"], "index": base["pin"]["manifest"]}})
    with pytest.raises(ValueError, match=r"python is 3\.13, but site belongs to 3\.12"):
        Base.model_validate({**base, "python": "3.13"})


def test_building_on_an_unpinned_base_names_the_command_that_pins_it() -> None:
    recipe = PROJECT.recipe("nemotron-omni").model_copy(update={"base": "vllm-openai-0.23.0"})
    with pytest.raises(PinError) as caught:
        resolve(PROJECT, recipe)
    assert caught.value.next.startswith("builder lock --update vllm-openai-0.23.0")


def test_aliases_and_names_are_unique() -> None:
    names = [name for base in PROJECT.bases.values() for name in (base.name, *base.aliases)]
    assert len(names) == len(set(names))


def test_every_known_vllm_that_a_recipe_can_be_built_on_has_an_option_table() -> None:
    recipes = [PROJECT.recipe(name) for name in PROJECT.recipe_names()]
    used = {PROJECT.base(base).vllm for recipe in recipes for base in (recipe.base, *recipe.compatible)}
    known = {version for version in used if version}
    assert {"0.24.0", "0.31.0"} <= known
    assert {version for version in known if load_table(version) is None} == set()


def test_a_hermetic_base_adds_its_checks_to_those_of_its_family(tmp_path: Path) -> None:
    check = {"id": "own", "tier": "static", "kind": "file", "args": {"path": "/usr/bin/env"}}
    base = {"name": "own", "stack": {"wheels": "vllm-0.32.0-cp313"}, "checks": [check]}
    project = Project((write_files(tmp_path, {"recipes/bases/own.yaml": base}), *PROJECT.roots))
    shared = [check.id for check in PROJECT.base("hermetic-0.32").checks]
    assert "image-no-secrets" in shared
    assert [check.id for check in project.base("own").checks] == [*shared, "own"]
