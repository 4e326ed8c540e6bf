"""Rules about speculative decoding."""

from __future__ import annotations

from packaging.version import Version

from builder.knowledge.drafters import drafter
from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject, option_problem

_CONFIG = "speculative-config"


@rule(
    "GB10-015",
    "A drafter is used with its own target model",
    severity="error",
    scope="speculative decoding with a drafter that builder/knowledge/drafters.yaml lists",
    why="A DFlash drafter is trained for one model; another model rejects its tokens.",
    fix="use the drafter of this model, or the profile ngram",
    source="spark-vllm-guide sections 14.5 and 14.7",
)
def own_drafter(s: Subject) -> Found:
    name = s.speculation.get("model")
    known = drafter(str(name)) if name else None
    if known is not None and s.model_family not in known.targets:
        yield option_problem(
            _CONFIG, f"{name} is a drafter for {', '.join(known.targets)}, not for {s.model_family or s.model.id}"
        )


@rule(
    "GB10-041",
    "The vLLM version supports the drafter",
    severity="error",
    scope="drafters with a first vLLM version in builder/knowledge/drafters.yaml",
    why="An older vLLM does not know the drafter's architecture, or accepts none of its tokens in long contexts.",
    fix="use a newer base, or an image that the drafter's makers name",
    source="field: vLLM pull requests 47914, 48113 (0.26) and 52816 (0.28)",
)
def drafter_version(s: Subject) -> Found:
    known = drafter(str(s.speculation.get("model")))
    if known is None or known.vllm is None or s.vllm is None or s.base.family == "community":
        return
    if s.vllm < Version(known.vllm):
        yield Problem(f"{known.id} needs vLLM {known.vllm} or newer; {s.base.name} has {s.vllm}", ("base",))


@rule(
    "GB10-016",
    "One to three MTP tokens",
    severity="error",
    scope="speculative decoding with MTP heads",
    why="Each additional token costs a verification pass.",
    fix="set num_speculative_tokens to 1, 2 or 3",
    source="spark-vllm-guide sections 14.3 and 14.7",
)
def mtp_tokens(s: Subject) -> Found:
    if str(s.speculation.get("method", "")).endswith("mtp"):
        count = s.speculation.get("num_speculative_tokens")
        if not isinstance(count, int) or not 1 <= count <= 3:
            yield option_problem(_CONFIG, f"MTP with {count} tokens; 1 to 3 are useful")


@rule(
    "GB10-019",
    "DFlash is used with a BF16 target model",
    severity="warning",
    scope="DFlash on NVFP4 or FP8 weights with stock vLLM",
    why="The acceptance rate drops: the target model accepts only the first few tokens of a block.",
    fix="use a BF16 target model, or a base with a DFlash-capable build",
    source="spark-vllm-guide section 7.1.1",
)
def dflash_target(s: Subject) -> Found:
    if s.dflash and s.weights in ("nvfp4", "fp8") and s.base.family != "community":
        yield option_problem(
            _CONFIG, f"DFlash on {s.weights} weights: with stock vLLM the target model accepts few tokens"
        )


@rule(
    "GB10-029",
    "Requirements of DFlash",
    severity="error",
    scope="speculative decoding with DFlash",
    why="DeepGEMM fails silently in the draft path, and older versions lack parts of it.",
    fix="use vLLM 0.21 or newer, the layer dflash, and up to 16 tokens",
    source="spark-vllm-guide sections 14.4, 14.5 and 14.7",
)
def dflash_needs(s: Subject) -> Found:
    if not s.dflash:
        return
    if s.env.get("VLLM_USE_DEEP_GEMM") != "0":
        yield Problem("VLLM_USE_DEEP_GEMM is not 0; the layer dflash sets it", ("layers",))
    if s.vllm is not None and s.vllm < Version("0.21"):
        yield Problem(f"vLLM {s.vllm} is too old for DFlash", ("base",))
    count = s.speculation.get("num_speculative_tokens")
    if not isinstance(count, int) or not 1 <= count <= 16:
        yield option_problem(_CONFIG, "DFlash accepts 1 to 16 tokens, the block size of the drafter")
