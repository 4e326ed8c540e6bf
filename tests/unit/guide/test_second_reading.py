"""The second reading of the five documents: tests by the number of the item.

4 and 31: tests/unit/cli/test_spark.py. 5 and 17: tests/unit/bench. 6 and 31: tests/unit/doctor. 9, 10 and 23:
tests/unit/knowledge/test_versions.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.knowledge.drafters import drafter
from builder.knowledge.lint import lint_recipe
from builder.model.variant import with_profile
from builder.plan.command import serving
from builder.project import Project
from builder.smoke.logscan import scan_server_log
from tests.support.shipped import pages

ROOT = Path(__file__).resolve().parents[3]
PROJECT = Project((ROOT,))
PAGES = pages()
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


def test_07_failures_of_sglang_are_not_vllms() -> None:
    rows = {row["symptom"]: row for row in yaml.safe_load((ROOT / "builder/guide/symptoms.yaml").read_text("utf-8"))}
    graphs = next(row for symptom, row in rows.items() if "96 % utilisation" in symptom)
    deep = next(row for symptom, row in rows.items() if "deep_gemm crashes" in symptom)
    assert graphs["symptom"].startswith("SGLang, not vLLM")
    assert "--disable-cuda-graph" in graphs["fix"]
    assert "PIECEWISE was slower" in graphs["fix"]
    assert deep["symptom"].startswith("SGLang, not vLLM")
    assert "VLLM_USE_DEEP_GEMM" not in deep["fix"]


def test_06_no_row_promises_that_doctor_sees_every_leak() -> None:
    assert "`builder doctor` detects it" not in "".join(line for line in TROUBLE.splitlines() if "leak" in line)
    assert TROUBLE.count("where /proc/meminfo shows it") == 1


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


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_14_every_reasoning_recipe_says_how_many_tokens_a_request_needs(name: str) -> None:
    if PROJECT.recipe(name).model.reasoning:
        assert "max_tokens" in page(name)


def test_15_a_shared_profile_loads_faster() -> None:
    assert flags("nemotron-super", "fast-load")["load-format"] == "fastsafetensors"
    assert levels("nemotron-super", "fast-load").get("GB10-021") is None


@pytest.mark.parametrize("name", ["nemotron-super", "qwen3-coder-next", "gemma4-31b"])
def test_16_pages_list_the_shared_profiles_that_fit(name: str) -> None:
    listed = page(name).partition("## Profiles")[2]
    assert "| ngram |" in listed
    assert "| fast-load |" in listed
    assert ("| expert-parallel |" in listed) == PROJECT.recipe(name).model.moe


def test_16_a_profile_that_breaks_a_rule_is_not_listed() -> None:
    assert "| fast-load |" not in page("gpt-oss-120b"), "NGC 26.04 has no fastsafetensors"


def test_18_the_pool_is_not_a_context_window() -> None:
    assert "not a context window" in TROUBLE
    assert "N divided by" in TROUBLE


def test_19_three_sparks_are_not_covered() -> None:
    assert "Not covered: three and more Sparks" in TROUBLE


def test_20_short_calls_turn_thinking_off() -> None:
    assert "append `/no_think`" in TROUBLE


def test_21_agents_have_a_page() -> None:
    text = (ROOT / "docs/agents.md").read_text("utf-8")
    for part in ("hermes gateway", "API_SERVER_KEY", ":8642/v1", "openssl rand -hex 32", "Open WebUI"):
        assert part in text
    assert "docs/agents.md" in (ROOT / "README.md").read_text("utf-8")
    assert "--no-enable-prefix-caching" in page("qwen3.6-35b")
    assert "openssl rand -hex 32" in page("qwen3.5-27b-dflash")


def test_22_models_without_a_parser() -> None:
    assert "between `<think>` and `</think>`" in TROUBLE


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


@pytest.mark.parametrize("name", ["nemotron-nano", "gemma4-26b-dflash", "gemma4-31b-dflash"])
def test_27_a_page_says_how_to_pin_before_it_builds(name: str) -> None:
    text = page(name)
    assert text.index(f"builder lock --update {PROJECT.recipe(name).base}") < text.index("builder build")


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_28_commands_that_act_have_exec(name: str) -> None:
    lines = [line for line in page(name).splitlines() if line.startswith(("builder prefetch", "builder run"))]
    assert len(lines) >= 2
    assert all(line.endswith("--exec") or "--netplan" in line for line in lines)


def test_29_the_environment_has_what_layers_set() -> None:
    text = page("minimax-m2.7-dual")
    for variable in ("VLLM_MARLIN_USE_ATOMIC_ADD=1", "NCCL_IB_TIMEOUT=22", "VLLM_NCCL_SO_PATH", "HF_HOME=/models"):
        assert variable in text


def test_30_and_31_two_nodes_are_prepared_on_both() -> None:
    text = page("minimax-m2.7-dual")
    for part in ("netplan apply", "drop_caches", "on both Sparks", "two interfaces and two RDMA devices"):
        assert part in text


def test_35_pages_say_where_a_profile_goes() -> None:
    assert "the same `--profile NAME` to `build`, `prefetch` and `run`" in page("gemma4-31b")


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
