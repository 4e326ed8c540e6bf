"""Derives facts from the name of a model's repository: family, format of the weights, and whether it has experts.

Values in the recipe take precedence. Without them, these functions make the rules about a model hold for its copies and
quantisations too.
"""

from __future__ import annotations

import re

_FAMILIES = (
    # The part of a name, lower-case letters and digits only; the first match counts.
    ("nemotron3nanoomni", "nemotron-omni"),
    ("nemotron35lightning", "nemotron-lightning"),
    ("nemotron3nano", "nemotron-nano"),
    ("nemotron3super", "nemotron-super"),
    ("qwen38flashnext", "qwen3.8-flash-next"),
    ("qwen3827b", "qwen3.8-27b"),
    ("qwen3635b", "qwen3.6-35b"),
    ("qwen3627b", "qwen3.6-27b"),
    ("qwen35122b", "qwen3.5-122b"),
    ("qwen3535b", "qwen3.5-35b"),
    ("qwen3527b", "qwen3.5-27b"),
    ("qwen359b", "qwen3.5-9b"),
    ("qwen354b", "qwen3.5-4b"),
    ("qwen3codernext", "qwen3-coder-next"),
    ("qwen3omni", "qwen3-omni"),
    ("qwen38b", "qwen3-8b"),
    ("gemma412bcoder", "gemma4-12b-coder"),
    ("gemma426b", "gemma4-26b"),
    ("gemma431b", "gemma4-31b"),
    ("lagunaxs2", "laguna"),
    ("lagunas21", "laguna-s"),
    ("diffusiongemma", "diffusiongemma"),
    ("museglimmer", "muse-glimmer"),
    ("mistralsmall4", "mistral-small-4"),
    ("deepseekv41", "deepseek-v4.1"),
    ("deepseekv4", "deepseek-v4"),
    ("minimaxm27", "minimax-m2.7"),
    ("gptoss", "gpt-oss"),
)
_WEIGHTS = (("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp8", "fp8"), ("int4|gptq|awq", "int4"))


def family_of(id: str) -> str | None:
    """The family in a repository's name, as `model.family` in recipes; None when no family matches."""
    name = re.sub(r"[^a-z0-9]", "", id.rpartition("/")[2].lower())
    return next((family for part, family in _FAMILIES if part in name), None)


def weights_of(id: str) -> str | None:
    """The format of the weights in a repository's name, as `model.weights` in recipes; None without one."""
    name = id.rpartition("/")[2].lower()
    return next((weights for part, weights in _WEIGHTS if re.search(rf"(^|[^a-z0-9])({part})", name)), None)


def has_experts(id: str) -> bool:
    """Whether a repository's name has a number of active parameters, such as -A3B: those models have experts."""
    return re.search(r"-A\d+(\.\d+)?B(-|$)", id, re.IGNORECASE) is not None
