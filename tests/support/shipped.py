"""The names of the recipes and layers in the tables of the hardware, which all must be shipped; the generated pages."""

from __future__ import annotations

from functools import cache

from tests.support.project import ROOT

RECIPES = [
    "nemotron-omni",
    "nemotron-omni-vision",
    "nemotron-nano",
    "nemotron-nano-openai",
    "nemotron-super",
    "qwen3.6-35b",
    "qwen3.6-35b-dflash",
    "qwen3.6-27b",
    "qwen3.6-27b-dflash",
    "qwen3-coder-next",
    "qwen3.5-122b",
    "qwen3.5-122b-fp8-dual",
    "qwen3.5-35b",
    "qwen3-omni",
    "gemma4-31b",
    "gemma4-26b",
    "gemma4-12b-coder",
    "gemma4-31b-dflash",
    "gemma4-26b-dflash",
    "qwen3.5-27b-dflash",
    "laguna-xs2-dflash",
    "minimax-m2.7-dual",
    "gpt-oss-120b",
    # From public sources of 2026, not run by their authors here.
    "qwen3.8-27b",
    "qwen3.8-27b-dflash2",
    "nemotron-3.5-lightning",
    "nemotron-super-mtpv2",
    "mistral-small-4",
    "laguna-s2",
    "diffusiongemma",
    "muse-glimmer",
]

LAYERS = [
    "nccl",
    "ptxas",
    "marlin",
    "cutlass-fp8",
    "audio",
    "omni",
    "dflash",
    "gemma4-loader",
    "reasoning-parser",
    "headers",
    "ray",
    "cluster",
    "entrypoint",
]


@cache
def pages() -> dict[str, str]:
    """The committed documents by their path below docs/; test_guide.py compares them with generated ones."""
    docs = ROOT / "docs"
    paths = [*sorted((docs / "recipes").glob("*.md")), docs / "troubleshooting.md", docs / "rules.md"]
    return {str(path.relative_to(docs)): path.read_text("utf-8") for path in paths}
