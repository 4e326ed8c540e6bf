"""The second reading of the five documents: one test for each of its 35 items, by its number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.guide.pages import documents
from builder.knowledge.drafters import drafter
from builder.knowledge.lint import lint_recipe
from builder.model.variant import with_profile
from builder.plan.command import serving
from builder.project import Project
from builder.smoke.logscan import scan_server_log

ROOT = Path(__file__).resolve().parents[3]
PROJECT = Project((ROOT,))
PAGES = documents(PROJECT)
TROUBLE = PAGES["troubleshooting.md"]


def flags(recipe: str, profile: str | None = None) -> dict[str, Any]:
    return dict(with_profile(PROJECT.recipe(recipe), profile, PROJECT.shared_profiles).serve.flags)


def page(recipe: str) -> str:
    return PAGES[f"recipes/{recipe}.md"]


def levels(recipe: str, profile: str | None = None, base: str | None = None) -> dict[str, str]:
    found = lint_recipe(PROJECT, PROJECT.recipe(recipe), base=base, profiles=[profile])
    return {item.rule.id: item.level for item in found}


def index_row(recipe: str) -> str:
    return next(line for line in PAGES["recipes/README.md"].splitlines() if f"[{recipe}]" in line)


def test_01_the_hint_at_atomic_adds_is_a_fault() -> None:
    line = "WARNING 06-01 [marlin.py:1] please consider the experimental use_atomic_add feature of Marlin"
    (found,) = scan_server_log(line)
    assert "add the layer marlin" in found.means


def test_02_the_27b_drafter_has_a_base_that_supports_it() -> None:
    recipe = PROJECT.recipe("qwen3.6-27b-dflash")
    for name in (recipe.base, *recipe.compatible):
        assert (PROJECT.base(name).vllm or "") >= "0.26"
    known = drafter("z-lab/Qwen3.6-27B-DFlash")
    assert known is not None
    assert known.vllm == "0.26"


def test_03_the_27b_target_exists_and_has_its_own_size() -> None:
    model = PROJECT.recipe("qwen3.6-27b-dflash").model
    assert not model.id.endswith("-DFlash")
    assert model.memory_gb == 27
    assert "Its author lists none" in page("qwen3.6-27b-dflash")


def test_08_the_contradiction_about_flashinfer_with_fp8_is_said_and_has_a_profile() -> None:
    assert "issue 35138" in page("qwen3-coder-next")
    assert levels("qwen3-coder-next")["GB10-039"] == "overridden"
    assert flags("qwen3-coder-next", "triton-attention")["attention-backend"] == "TRITON_ATTN"
    assert "GB10-039" not in levels("qwen3-coder-next", "triton-attention")


def test_11_a_speed_of_another_checkpoint_is_not_shown() -> None:
    assert PROJECT.recipe("qwen3.6-27b").speed is None
    assert "10.5" not in index_row("qwen3.6-27b")
    assert "AEON-7's" in page("qwen3.6-27b")


def test_12_the_moved_tag_has_its_new_version() -> None:
    assert PROJECT.base("aeon-vllm-ultimate").vllm == "0.24.0"


def test_13_the_version_of_nccl_has_a_reason() -> None:
    (note,) = PROJECT.layer("nccl").definition.notes
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    assert all(word in note and word in text for word in ("2.28.9", "2.30.4", "Debian and GitHub"))


def test_23_a_backend_in_the_speculative_configuration_is_a_warning_by_version() -> None:
    assert "GB10-040" not in levels("qwen3.6-27b-dflash")
    assert flags("qwen3.6-27b-dflash")["speculative-config"]["attention_backend"] == "TRITON_ATTN"


@pytest.mark.parametrize("name", ["qwen3.6-27b-dflash", "qwen3.6-35b-dflash"])
def test_24_the_authors_image_is_started_as_its_author_does(name: str) -> None:
    recipe = with_profile(PROJECT.recipe(name), "prebuilt")
    entrypoint, command = serving(recipe, PROJECT.base(recipe.base))
    assert entrypoint == ("vllm", "serve")
    assert command[0] == "/models/target"
    assert '"attention_backend":"TRITON_ATTN"' in command[command.index("--speculative-config") + 1]


def test_25_gemma_26b_starts_on_a_pinned_vllm_that_can_load_it() -> None:
    base = PROJECT.base(PROJECT.recipe("gemma4-26b").base)
    assert (base.vllm, base.pin is not None and base.pin.manifest is not None) == ("0.20.0", True)


def test_26_the_coder_thinks_with_a_parser() -> None:
    assert flags("gemma4-12b-coder")["reasoning-parser"] == "gemma4"


@pytest.mark.parametrize("name", ["qwen3.6-27b-dflash", "qwen3.6-35b-dflash", "qwen3.5-27b-dflash"])
def test_32_speeds_of_another_image_say_so(name: str) -> None:
    speed = PROJECT.recipe(name).speed
    assert speed is not None
    assert speed.base is not None
    assert f"(with {speed.base})" in index_row(name)
    assert f"with {speed.base}" in page(name)


def test_32_the_slower_drafter_of_35b_says_so() -> None:
    assert "slower than qwen3.6-35b with its MTP heads (102 to 125 tok/s)" in page("qwen3.6-35b-dflash")


def test_33_qwen35_35b_serves_agents_and_says_whose_options_these_are() -> None:
    found = flags("qwen3.5-35b")
    assert (found["enable-auto-tool-choice"], found["tool-call-parser"]) == (True, "qwen3_coder")
    assert "do not come from the reference" in page("qwen3.5-35b")


def test_34_the_cards_command_has_the_cards_length() -> None:
    assert flags("qwen3.6-35b", "card")["max-model-len"] == 262144


def test_every_source_of_a_symptom_is_read_from_yaml() -> None:
    assert yaml.safe_load((ROOT / "builder/guide/symptoms.yaml").read_text("utf-8"))
