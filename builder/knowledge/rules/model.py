"""Rules about kernels, number formats and parsers for certain models."""

from __future__ import annotations

from packaging.version import Version

from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject, option_problem


@rule(
    "GB10-001",
    "MoE models with FP4 weights use Marlin kernels",
    severity="error",
    scope="MoE with NVFP4 or MXFP4 weights; not gpt-oss from vLLM 0.28 on, which was measured without the option",
    why="CUTLASS FP4 kernels give wrong output on sm_121, without an error.",
    fix="set --moe-backend to marlin",
    source="sm121-rules; spark-vllm-guide section 6; field: sumner-harris/gb10-llm-docker-recipes gpt-oss-120b-mxfp4",
)
def moe_marlin(s: Subject) -> Found:
    if s.family("gpt-oss") and s.vllm is not None and s.vllm >= Version("0.28"):
        return
    if s.fp4_moe and s.flag("moe-backend") != "marlin":
        yield option_problem("moe-backend", f"--moe-backend is {s.flag('moe-backend') or 'not set'}, not marlin")


@rule(
    "GB10-006",
    "TRITON_ATTN on NGC 26.04 and with DFlash",
    severity="error",
    scope="every recipe on NGC 26.04; every recipe with DFlash",
    why="On NGC 26.04 FlashInfer is inaccurate with FP8. With DFlash FLASH_ATTN and FlashInfer crash on sm_121.",
    fix="set --attention-backend to TRITON_ATTN",
    source="sm121-rules; spark-vllm-guide sections 14.5 and 14.7",
)
def triton_attention(s: Subject) -> Found:
    if (s.on("26.04") or s.dflash) and s.flag("attention-backend") != "triton_attn":
        why, given = "NGC 26.04" if s.on("26.04") else "DFlash", s.flag("attention-backend") or "not set"
        yield option_problem("attention-backend", f"--attention-backend is {given}: {why} needs TRITON_ATTN")


_MODELOPT = ("qwen3.6-35b", "gemma4-31b", "gemma4-26b")


@rule(
    "GB10-008",
    "--quantization modelopt only for checkpoints that need it",
    severity="error",
    scope="set for ModelOpt NVFP4 of Qwen3.6-35B, Gemma-4-31B and -26B; not set for Nemotron and other formats",
    why="A wrong value is a common failure of the first start. Newer vLLM versions detect the format.",
    fix="set --quantization to modelopt; remove it for compressed-tensors and Nemotron",
    source="spark-vllm-guide section 6; vllm-on-dgx-spark",
)
def modelopt(s: Subject) -> Found:
    given = s.flag("quantization")
    if s.family(*_MODELOPT) and s.model.checkpoint == "modelopt" and s.weights == "nvfp4":
        if given != "modelopt":
            yield option_problem("quantization", f"--quantization is {given or 'not set'}, not modelopt")
    elif given and (s.model.checkpoint == "compressed-tensors" or (given.startswith("modelopt") and _no_modelopt(s))):
        yield option_problem("quantization", f"--quantization {given} is set for a checkpoint that vLLM detects itself")


def _no_modelopt(s: Subject) -> bool:
    """Whether --quantization modelopt is wrong: for Nemotron, and for checkpoints that ModelOpt did not write."""
    return (s.model_family or "").startswith("nemotron") or s.model.checkpoint != "modelopt"


@rule(
    "GB10-009",
    "--quantization mxfp4 for gpt-oss only",
    severity="error",
    scope="gpt-oss checkpoints; on NGC also gptq_marlin for GPTQ-Int4 and fp8 for FP8 checkpoints of the model vendors",
    why="The loader reads only the format of gpt-oss; others give an IndexError. vLLM does not convert BF16 to MXFP4.",
    fix="remove --quantization; on NGC set it to gptq_marlin or fp8",
    source="sm121-rules",
)
def mxfp4(s: Subject) -> Found:
    given = s.flag("quantization")
    if given == "mxfp4" and not s.family("gpt-oss"):
        yield option_problem("quantization", "--quantization mxfp4 is for gpt-oss checkpoints")
    if s.family("gpt-oss") and s.base.family == "ngc" and given != "mxfp4":
        yield option_problem("quantization", "gpt-oss on NGC needs --quantization mxfp4")
    if s.base.family != "ngc" or s.model.checkpoint in ("compressed-tensors", "modelopt"):
        return
    if s.weights == "int4" and given != "gptq_marlin":
        yield option_problem("quantization", "GPTQ-Int4 on NGC needs --quantization gptq_marlin")
    if s.weights == "fp8" and given != "fp8":
        yield option_problem("quantization", "an FP8 checkpoint on NGC needs --quantization fp8")


@rule(
    "GB10-010",
    "No FP8 KV cache for models that then repeat output",
    severity="error",
    scope="DFlash and Qwen3.5: never; Nemotron Omni and Super: only when memory requires",
    why="Output repeats; DFlash needs a BF16 cache. Other models are made for an FP8 cache.",
    fix="remove --kv-cache-dtype",
    source="spark-vllm-guide sections 8 and 14.7; vllm-on-dgx-spark",
)
def no_fp8_cache(s: Subject) -> Found:
    if not (s.flag("kv-cache-dtype") or "").startswith("fp8"):
        return
    if s.dflash:
        yield option_problem("kv-cache-dtype", "DFlash needs a BF16 KV cache")
    elif (s.model_family or "").startswith("qwen3.5"):
        yield option_problem("kv-cache-dtype", "Qwen3.5 repeats output with an FP8 KV cache")
    elif s.family("nemotron-omni", "nemotron-super"):
        yield option_problem(
            "kv-cache-dtype", "use an FP8 KV cache only when memory requires it, after a check of quality"
        )


@rule(
    "GB10-013",
    "Tool calls need --enable-auto-tool-choice and a parser",
    severity="error",
    scope="recipes whose model has tools, or that set one of the two options",
    why='Otherwise a request with tool_choice "auto" gets HTTP 400, while all other requests work.',
    fix="set --enable-auto-tool-choice and --tool-call-parser NAME (qwen3_coder for Nemotron)",
    source="spark-vllm-guide section 7.1.1",
)
def tools(s: Subject) -> Found:
    switch, parser = s.flag("enable-auto-tool-choice") == "true", s.flag("tool-call-parser")
    if switch and not parser:
        yield option_problem("enable-auto-tool-choice", "--enable-auto-tool-choice needs --tool-call-parser")
    elif parser and not switch:
        yield option_problem("tool-call-parser", "--tool-call-parser has no effect without --enable-auto-tool-choice")
    elif s.model.tools and not switch:
        yield Problem("the model has tools, but --enable-auto-tool-choice is not set", ("serve", "flags"))


@rule(
    "GB10-014",
    "No explicit chunked prefill for Mamba-2 MoE models",
    severity="warning",
    scope="MoE with Mamba layers (Nemotron)",
    why="Users reported a 9 times lower speed. It is enabled by default, and hybrid prefix caching needs it.",
    fix="remove --enable-chunked-prefill, or use the profile no-chunked-prefill, which also disables prefix caching",
    source="spark-vllm-guide section 12; gb10 [W]",
)
def chunked_prefill(s: Subject) -> Found:
    if not (s.moe and s.model.hybrid == "mamba"):
        return
    given = s.flag("enable-chunked-prefill")
    if given == "true":
        yield option_problem("enable-chunked-prefill", "--enable-chunked-prefill is set for a Mamba-2 MoE model")
    if given == "false" and s.flag("enable-prefix-caching") != "false":
        yield option_problem("enable-chunked-prefill", "hybrid prefix caching needs chunked prefill: disable both")


@rule(
    "GB10-027",
    "Transformers 5 for Qwen3.5-122B NVFP4",
    severity="error",
    scope="Qwen3.5-122B with NVFP4 weights",
    why="Transformers 4 lacks the configuration class of this model; vLLM 0.18.1 does not allow Transformers 5.",
    fix="use a base with vLLM 0.20 or newer",
    source="spark-vllm-guide section 7.1.4",
)
def transformers5(s: Subject) -> Found:
    if not (s.family("qwen3.5-122b") and s.weights == "nvfp4" and s.vllm is not None):
        return
    # There are no tables before 0.18.1, and no version before it allows Transformers 5.
    older = "<5" if s.vllm < Version("0.18.1") else ""
    wanted = s.table.libraries.get("transformers", "") if s.table else older
    if "<5" in wanted.split(","):
        yield Problem(f"vLLM {s.vllm} requires transformers {wanted}", ("base",))


@rule(
    "GB10-030",
    "Marlin with atomic adds",
    severity="error",
    scope="recipes with quantized weights",
    why="Without VLLM_MARLIN_USE_ATOMIC_ADD=1 a race condition in the kernel gives wrong results on sm_121.",
    fix="add the layer marlin",
    source="sm121-rules",
)
def atomic_add(s: Subject) -> Found:
    quantized = s.weights in ("nvfp4", "mxfp4", "fp8", "int4")
    if quantized and s.env.get("VLLM_MARLIN_USE_ATOMIC_ADD") != "1":
        yield Problem("VLLM_MARLIN_USE_ATOMIC_ADD is not 1; the layer marlin sets it", ("layers",))


@rule(
    "GB10-031",
    "FlashInfer's FP4 MoE kernels are disabled up to vLLM 0.23",
    severity="error",
    scope="MoE with FP4 weights on bases that have the variable or no option table; Nemotron Nano overrides the rule",
    why="Otherwise MoE layers can use CUTLASS FP4 kernels, which give wrong output.",
    fix="use the layer marlin without its parameter flashinfer_moe_fp4",
    source="sm121-rules",
)
def flashinfer_fp4(s: Subject) -> Found:
    name = "VLLM_USE_FLASHINFER_MOE_FP4"
    # Without the layer marlin both variables are missing: GB10-030 reports that.
    if not s.fp4_moe or s.env.get("VLLM_MARLIN_USE_ATOMIC_ADD") != "1" or (s.table and name not in s.table.env):
        return
    if s.env.get(name) != "0":
        yield Problem(f"{name} is not 0", ("env", name) if name in s.recipe.env else ("layers",))
