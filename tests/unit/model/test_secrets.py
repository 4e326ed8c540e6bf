"""A recipe names a secret by its environment variable, never by value; a volume mounts a path of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.errors import InvalidError
from builder.model.common import is_secret
from builder.model.recipe import Recipe
from builder.project import Project
from tests.support.errors import fails

SHIPPED = Project()
SECRET = "hf_SoNotShown"


def variant(folder: Path, **change: Any) -> Recipe:
    """A user's recipe that extends a shipped one."""
    path = folder / "recipes/mine.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"name": "mine", "title": "Mine", "extends": "qwen3.5-35b", **change}), "utf-8")
    return Project((folder, SHIPPED.roots[-1])).recipe("mine")


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"HF_TOKEN": SECRET}},
        {"run": {"env": {"VLLM_API_KEY": SECRET}}},
        {"run": {"env": {"ngc_apikey": SECRET}}},
        {"serve": {"flags": {"api-key": SECRET}}},
        {"profiles": {"x": {"title": "X", "env": {"MY_SECRET": SECRET}}}},
    ],
)
def test_a_secret_with_its_value_is_refused_and_not_shown(change: dict[str, Any], tmp_path: Path) -> None:
    with fails(InvalidError, "value-invalid") as caught:
        variant(tmp_path, **change)
    assert "is a secret: name its variable" in str(caught.value)
    assert "mine.yaml:" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_variant_may_name_and_leave_out_secrets(tmp_path: Path) -> None:
    profiles = {"x": {"title": "X", "env": {"A_TOKEN": None}}}
    made = variant(tmp_path, run={"secrets": ["VLLM_API_KEY"]}, profiles=profiles)
    assert made.run.secrets == ("VLLM_API_KEY",)


@pytest.mark.parametrize("name", ["NUM_SPEC_TOKENS", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "MONKEY", "max-keys"])
def test_a_name_that_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize("host", ["models", "~/a:b", "~other/models", "../models"])
def test_a_volume_is_a_path_of_the_host(host: str, tmp_path: Path) -> None:
    with fails(InvalidError, "value-invalid"):
        variant(tmp_path, run={"volumes": [{"host": host, "container": "/models"}]})
