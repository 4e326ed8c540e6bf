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
    "GB10-017",
    "No --speculative-disable-by-batch-size",
    severity="error",
    scope="every recipe",
    why="No vLLM version from 0.18.1 on has this option, although a document recommends it.",
    fix="use a profile without speculative decoding for many concurrent requests",
    source="spark-vllm-guide section 14.3; option tables",
)
def no_batch_switch(s: Subject) -> Found:
    if "speculative-disable-by-batch-size" in s.flags:
        yield option_problem(
            "speculative-disable-by-batch-size", "no vLLM version has --speculative-disable-by-batch-size"
        )


@rule(
    "GB10-018",
    "No suffix decoding without arctic-inference",
    severity="error",
    scope="every recipe",
    why="Suffix decoding needs arctic-inference, which has no arm64 wheel.",
    fix="use the profile ngram",
    source="gb10 [W]",
)
def no_suffix(s: Subject) -> Found:
    if s.speculation.get("method") == "suffix" and "arctic-inference" not in s.layers:
        yield option_problem(_CONFIG, "method suffix needs a layer that builds arctic-inference")


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
    why="DeepGEMM fails silently in the draft path, and a forced attention backend breaks the drafter.",
    fix="use vLLM 0.21 or newer, the layer dflash, no attention_backend in --speculative-config, and up to 16 tokens",
    source="spark-vllm-guide sections 14.4, 14.5 and 14.7",
)
def dflash_needs(s: Subject) -> Found:
    if not s.dflash:
        return
    if s.env.get("VLLM_USE_DEEP_GEMM") != "0":
        yield Problem("VLLM_USE_DEEP_GEMM is not 0; the layer dflash sets it", ("layers",))
    if s.vllm is not None and s.vllm < Version("0.21"):
        yield Problem(f"vLLM {s.vllm} is too old for DFlash", ("base",))
    if "attention_backend" in s.speculation:
        yield option_problem(_CONFIG, "--speculative-config sets attention_backend")
    count = s.speculation.get("num_speculative_tokens")
    if not isinstance(count, int) or not 1 <= count <= 16:
        yield option_problem(_CONFIG, "DFlash accepts 1 to 16 tokens, the block size of the drafter")


@rule(
    "GB10-034",
    "FP8 KV cache with the MTP drafter of Gemma-4-12B coder",
    severity="error",
    scope="gemma4-12b-coder with its bundled drafter",
    why="The drafter does not work with another type of KV cache.",
    fix="set --kv-cache-dtype to fp8",
    source="spark-vllm-guide section 7.2.3",
)
def coder_draft(s: Subject) -> Found:
    if s.family("gemma4-12b-coder") and s.speculation.get("method") == "mtp" and s.flag("kv-cache-dtype") != "fp8":
        yield option_problem("kv-cache-dtype", "the bundled MTP drafter needs --kv-cache-dtype fp8")
