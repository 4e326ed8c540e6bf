"""Rules about speculative decoding."""

from __future__ import annotations

from packaging.version import Version

from builder.knowledge.drafters import drafter
from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject, option_problem

_CONFIG = "speculative-config"


@rule(
    "GB10-015",
    "A drafter only with its target",
    severity="error",
    scope="speculation with a drafter of the list in builder/knowledge/drafters.yaml",
    why="A DFlash drafter is trained for one model; with another its tokens are rejected.",
    fix="the drafter of this model, or the profile ngram",
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
    scope="speculation by MTP heads",
    why="Each further token costs a pass of verification.",
    fix="num_speculative_tokens 1 to 3",
    source="spark-vllm-guide sections 14.3 and 14.7",
)
def mtp_tokens(s: Subject) -> Found:
    if str(s.speculation.get("method", "")).endswith("mtp"):
        count = s.speculation.get("num_speculative_tokens")
        if not isinstance(count, int) or not 1 <= count <= 3:
            yield option_problem(_CONFIG, f"MTP with {count} tokens")


@rule(
    "GB10-017",
    "No --speculative-disable-by-batch-size",
    severity="error",
    scope="every recipe",
    why="No vLLM version from 0.18.1 on has it, although a document recommends it.",
    fix="a profile without speculation for many requests at once",
    source="spark-vllm-guide section 14.3; option tables",
)
def no_batch_switch(s: Subject) -> Found:
    if "speculative-disable-by-batch-size" in s.flags:
        yield option_problem(
            "speculative-disable-by-batch-size", "no vLLM version has --speculative-disable-by-batch-size"
        )


@rule(
    "GB10-018",
    "No suffix speculation without arctic-inference",
    severity="error",
    scope="every recipe",
    why="It needs arctic-inference, which has no arm64 wheel.",
    fix="the profile ngram",
    source="gb10 [W]",
)
def no_suffix(s: Subject) -> Found:
    if s.speculation.get("method") == "suffix" and "arctic-inference" not in s.layers:
        yield option_problem(_CONFIG, "method suffix needs a layer that builds arctic-inference")


@rule(
    "GB10-019",
    "DFlash wants a BF16 target",
    severity="warning",
    scope="DFlash on NVFP4 or FP8 weights with stock vLLM",
    why="Acceptance collapses: only the first few of a block's tokens are taken.",
    fix="a BF16 target, or a base with a DFlash-capable build",
    source="spark-vllm-guide section 7.1.1",
)
def dflash_target(s: Subject) -> Found:
    if s.dflash and s.weights in ("nvfp4", "fp8") and s.base.family != "community":
        yield option_problem(_CONFIG, f"DFlash on {s.weights} weights: few tokens are accepted by stock vLLM")


@rule(
    "GB10-029",
    "What DFlash needs",
    severity="error",
    scope="speculation by DFlash",
    why="DeepGEMM fails silently with the draft path, and a backend forced on the drafter breaks it.",
    fix="vLLM 0.21 or newer, the layer dflash, no attention_backend in the speculative configuration, up to 16 tokens",
    source="spark-vllm-guide sections 14.4, 14.5 and 14.7",
)
def dflash_needs(s: Subject) -> Found:
    if not s.dflash:
        return
    if s.env.get("VLLM_USE_DEEP_GEMM") != "0":
        yield Problem("VLLM_USE_DEEP_GEMM is not 0: the layer dflash sets it", ("layers",))
    if s.vllm is not None and s.vllm < Version("0.21"):
        yield Problem(f"vLLM {s.vllm} is too old for DFlash", ("base",))
    if "attention_backend" in s.speculation:
        yield option_problem(_CONFIG, "attention_backend inside the speculative configuration")
    count = s.speculation.get("num_speculative_tokens")
    if not isinstance(count, int) or not 1 <= count <= 16:
        yield option_problem(_CONFIG, "DFlash takes 1 to 16 tokens, the drafter's block size")


@rule(
    "GB10-034",
    "FP8 KV cache with the MTP draft of Gemma-4-12B coder",
    severity="error",
    scope="gemma4-12b-coder with its bundled draft",
    why="The draft does not work with another KV cache.",
    fix="--kv-cache-dtype fp8",
    source="spark-vllm-guide section 7.2.3",
)
def coder_draft(s: Subject) -> Found:
    if s.family("gemma4-12b-coder") and s.speculation.get("method") == "mtp" and s.flag("kv-cache-dtype") != "fp8":
        yield option_problem("kv-cache-dtype", "the bundled MTP draft needs --kv-cache-dtype fp8")
