"""MUTATIONS: for each way to break a rule of the hardware, the change of a shipped recipe that does it."""

from __future__ import annotations

import json
from typing import Any

from builder.knowledge.lint import Finding, lint_recipe
from builder.model.recipe import Recipe
from builder.model.variant import merge
from builder.project import Project

PROJECT = Project()
REASON = "measured on the machine at hand"


def mutated(recipe: str, change: dict[str, Any], rules: dict[str, str] | None = None) -> Recipe:
    data = merge(PROJECT.recipe(recipe).model_dump(exclude_unset=True), change)
    data["rules"] = {**data.get("rules", {}), **(rules or {})}
    if change.get("rules", {}) is None:
        data["rules"] = rules or {}
    return Recipe.model_validate(data)


def findings(recipe: Recipe, project: Project = PROJECT) -> list[Finding]:
    return lint_recipe(project, recipe, base=recipe.base, profiles=[None])


def broken(recipe: Recipe, project: Project = PROJECT) -> set[str]:
    return {item.rule.id for item in findings(recipe, project) if item.level != "overridden"}


def flags(**values: Any) -> dict[str, Any]:
    """A change of serving options; underscores stand for dashes."""
    return {"serve": {"flags": {name.replace("_", "-"): value for name, value in values.items()}}}


def spec(**values: Any) -> dict[str, Any]:
    return flags(speculative_config=values)


def without(layer: str, recipe: str, **more: Any) -> dict[str, Any]:
    """The recipe's layers but for one."""
    uses = [use.model_dump() for use in PROJECT.recipe(recipe).layers if use.layer != layer]
    return {"layers": uses, **more}


def with_layers(recipe: str, **changed: Any) -> dict[str, Any]:
    """The recipe's layers, some with other parameters."""
    uses = PROJECT.recipe(recipe).layers
    return {"layers": [{"layer": use.layer, "set": {**use.set, **changed.get(use.layer, {})}} for use in uses]}


MTP3 = {"method": "mtp", "num_speculative_tokens": 3}
LAGUNA = {"method": "dflash", "model": "poolside/Laguna-XS.2-speculator.dflash", "num_speculative_tokens": 7}
QWEN27 = {"method": "dflash", "model": "z-lab/Qwen3.6-27B-DFlash", "num_speculative_tokens": 12}
DEEPSEEK = {
    "model": {"family": "deepseek-v4"},
    "base": "vllm-openai-0.28.0",
    "layers": ["nccl", "marlin", "headers", "cluster"],
    **flags(distributed_executor_backend="mp"),
}

MUTATIONS: list[tuple[str, str, dict[str, Any]]] = [
    # MoE with FP4 weights
    ("GB10-001", "qwen3.6-35b", flags(moe_backend=None)),
    ("GB10-001", "qwen3.6-35b", flags(moe_backend="flashinfer_cutlass")),
    ("GB10-001", "qwen3.5-122b", flags(moe_backend="cutlass")),
    ("GB10-001", "gpt-oss-120b", flags(moe_backend="triton")),
    ("GB10-001", "nemotron-nano-openai", flags(moe_backend="auto")),
    ("GB10-001", "minimax-m2.7-dual", flags(moe_backend=None)),
    ("GB10-001", "nemotron-omni", {"rules": None}),
    # CUDA graphs
    ("GB10-002", "qwen3.5-35b", flags(enforce_eager=True)),
    ("GB10-002", "qwen3-omni", flags(enforce_eager=True)),
    ("GB10-002", "qwen3.5-122b-fp8-dual", flags(enforce_eager=True)),
    ("GB10-002", "qwen3.6-27b", flags(compilation_config={"cudagraph_mode": "none"})),
    ("GB10-002", "minimax-m2.7-dual", {"rules": {"GB10-002": None}}),
    # memory
    ("GB10-003", "qwen3.6-35b", flags(gpu_memory_utilization=0.95)),
    ("GB10-003", "gpt-oss-120b", flags(gpu_memory_utilization=0.91)),
    ("GB10-003", "gemma4-12b-coder", {"rules": None}),
    ("GB10-004", "qwen3.5-35b", flags(gpu_memory_utilization=0.89)),
    ("GB10-004", "qwen3.5-35b", flags(gpu_memory_utilization=None)),
    ("GB10-004", "qwen3.5-122b-fp8-dual", flags(gpu_memory_utilization=0.85)),
    ("GB10-004", "minimax-m2.7-dual", flags(gpu_memory_utilization=0.88)),
    ("GB10-002", "qwen3.5-35b", flags(optimization_level="O0")),
    ("GB10-002", "qwen3.5-35b", flags(compilation_config='{"cudagraph_mode": "none"}')),
    # attention backends
    ("GB10-005", "qwen3.6-35b", flags(attention_backend="FLASHINFER")),
    ("GB10-005", "qwen3.6-35b", flags(attention_backend="flashinfer")),
    ("GB10-006", "gpt-oss-120b", flags(attention_backend=None)),
    ("GB10-006", "nemotron-omni-vision", flags(attention_backend="FLASHINFER")),
    ("GB10-006", "laguna-xs2-dflash", flags(attention_backend="FLASH_ATTN")),
    ("GB10-006", "laguna-xs2-dflash", flags(attention_backend=None)),
    # load formats
    ("GB10-007", "gpt-oss-120b", flags(load_format="fastsafetensors")),
    ("GB10-007", "nemotron-omni-vision", flags(load_format="fastsafetensors")),
    # quantisation
    ("GB10-008", "qwen3.6-35b", flags(quantization=None)),
    ("GB10-008", "gemma4-31b", flags(quantization=None)),
    ("GB10-008", "gemma4-26b", flags(quantization="modelopt_fp4")),
    ("GB10-008", "qwen3.6-27b", flags(quantization="modelopt")),
    ("GB10-008", "qwen3.5-122b", flags(quantization="compressed-tensors")),
    ("GB10-008", "nemotron-super", flags(quantization="modelopt")),
    ("GB10-008", "nemotron-omni", flags(quantization="modelopt_fp4")),
    ("GB10-009", "qwen3.5-35b", flags(quantization="mxfp4")),
    ("GB10-009", "gpt-oss-120b", flags(quantization=None)),
    ("GB10-009", "gpt-oss-120b", flags(quantization="fp8")),
    # KV cache
    ("GB10-010", "laguna-xs2-dflash", flags(kv_cache_dtype="fp8")),
    ("GB10-010", "qwen3.5-122b", flags(kv_cache_dtype="fp8")),
    ("GB10-010", "qwen3.5-35b", flags(kv_cache_dtype="fp8_e4m3")),
    ("GB10-010", "nemotron-omni", flags(kv_cache_dtype="fp8")),
    ("GB10-010", "nemotron-super", flags(kv_cache_dtype="fp8")),
    ("GB10-011", "laguna-xs2-dflash", {"model": {"weights": "int4"}}),
    # requests at once
    ("GB10-012", "qwen3.6-35b", flags(max_num_seqs=16)),
    ("GB10-012", "qwen3.6-35b", flags(max_num_seqs=None)),
    ("GB10-012", "nemotron-omni", flags(max_num_seqs=9)),
    ("GB10-012", "qwen3.5-27b-dflash", flags(speculative_config=None)),
    ("GB10-012", "qwen3.5-35b", flags(max_num_seqs="four")),
    ("GB10-004", "qwen3.5-35b", flags(gpu_memory_utilization="85%")),
    # tools
    ("GB10-013", "qwen3.6-27b", flags(enable_auto_tool_choice=None)),
    ("GB10-013", "qwen3.5-122b", flags(tool_call_parser=None)),
    ("GB10-013", "qwen3-coder-next", flags(tool_call_parser=None, enable_auto_tool_choice=None)),
    # Mamba-2 MoE
    ("GB10-014", "nemotron-super", flags(enable_chunked_prefill=True)),
    ("GB10-014", "nemotron-omni", flags(enable_chunked_prefill=False)),
    # speculation
    ("GB10-015", "laguna-xs2-dflash", spec(**{**LAGUNA, "model": "z-lab/Qwen3.5-9B-DFlash"})),
    ("GB10-016", "qwen3.6-35b", spec(method="mtp", num_speculative_tokens=5)),
    (
        "GB10-015",
        "laguna-xs2-dflash",
        flags(speculative_config=json.dumps({**LAGUNA, "model": "z-lab/Qwen3.5-4B-DFlash"})),
    ),
    ("GB10-016", "qwen3.6-27b", spec(method="mtp")),
    ("GB10-017", "qwen3.6-35b", flags(speculative_disable_by_batch_size=32)),
    ("GB10-018", "qwen3.6-27b", spec(method="suffix", num_speculative_tokens=8)),
    ("GB10-019", "laguna-xs2-dflash", {"model": {"weights": "nvfp4"}, "rules": {"GB10-011": REASON}}),
    ("GB10-029", "laguna-xs2-dflash", spec(**{**LAGUNA, "num_speculative_tokens": 32})),
    ("GB10-029", "laguna-xs2-dflash", spec(**{**LAGUNA, "num_speculative_tokens": "seven"})),
    ("GB10-029", "laguna-xs2-dflash", without("dflash", "laguna-xs2-dflash")),
    ("GB10-034", "gemma4-12b-coder", spec(**MTP3, model="/model/assistant")),
    # what the base's vLLM has
    ("GB10-020", "qwen3.6-35b", {"env": {"VLLM_FP8_MOE_BACKEND": "triton"}}),
    ("GB10-020", "gpt-oss-120b", {"env": {"VLLM_MXFP4_BACKEND": "marlin"}}),
    ("GB10-020", "qwen3.5-35b", {"run": {"env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}}}),
    ("GB10-020", "qwen3.5-35b", {"env": {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}}),
    ("GB10-021", "qwen3.5-35b", flags(speculative_config="ngram")),
    ("GB10-021", "qwen3.5-35b", flags(media_io_kwargs="{video: 1}")),
    ("GB10-021", "qwen3.6-35b", flags(tool_call_parser="qwen3_xlm")),
    ("GB10-021", "nemotron-omni", flags(linear_backend="marlin")),
    ("GB10-021", "nemotron-omni", flags(reasoning_parser="nano_v3")),
    ("GB10-021", "qwen3.5-35b", flags(max_model_length=1)),
    ("GB10-021", "qwen3.5-35b", flags(kv_cache_dtype="nvfp4_4over6")),
    ("GB10-021", "qwen3.6-27b", spec(method="dspark", num_speculative_tokens=3)),
    ("GB10-021", "qwen3.6-35b", spec(**MTP3, moe_backend="tritone")),
    ("GB10-021", "qwen3.6-35b", spec(**MTP3, tokens=3)),
    ("GB10-021", "qwen3-coder-next", flags(load_format="gguff")),
    ("GB10-022", "qwen3.5-35b", {"base": "vllm-openai-nightly"}),
    # two nodes
    ("GB10-023", "qwen3.5-122b-fp8-dual", {"run": {"network": "bridge"}}),
    ("GB10-023", "minimax-m2.7-dual", without("cluster", "minimax-m2.7-dual")),
    ("GB10-023", "minimax-m2.7-dual", flags(distributed_executor_backend="ray")),
    ("GB10-023", "minimax-m2.7-dual", flags(tensor_parallel_size=1)),
    ("GB10-023", "minimax-m2.7-dual", {"run": {"env": {"NCCL_IB_HCA": "rocep1s0f1"}}}),
    ("GB10-023", "qwen3.5-35b", {"env": {"GLOO_SOCKET_IFNAME": "enp1s0f1np1"}}),
    ("GB10-023", "minimax-m2.7-dual", flags(nnodes=2)),
    ("GB10-023", "qwen3.5-35b", flags(master_addr="192.168.100.10")),
    # bases
    ("GB10-025", "qwen3.5-35b", {"base": "vllm-openai-0.19.0"}),
    ("GB10-025", "qwen3.5-35b", {"base": "vllm-openai-0.31.0-aarch64-cu129"}),
    ("GB10-036", "qwen3.5-35b", {"layers": ["marlin", "ray"], "base": "vllm-openai-0.31.0"}),
    ("GB10-037", "qwen3.5-35b", with_layers("qwen3.5-35b", nccl={"functions": "inference"})),
    ("GB10-037", "minimax-m2.7-dual", with_layers("minimax-m2.7-dual", nccl={"functions": "AllReduce Sum f32 * *"})),
    ("GB10-032", "gemma4-12b-coder", {"serve": {"model": "vllm serve /model"}}),
    # kernels
    ("GB10-030", "qwen3-coder-next", without("marlin", "qwen3-coder-next")),
    ("GB10-031", "qwen3.6-35b", with_layers("qwen3.6-35b", marlin={"flashinfer_moe_fp4": True})),
    ("GB10-031", "gpt-oss-120b", {"env": {"VLLM_USE_FLASHINFER_MOE_FP4": "1"}}),
    ("GB10-031", "gemma4-26b", with_layers("gemma4-26b", marlin={"flashinfer_moe_fp4": True})),
    ("GB10-033", "gemma4-26b", flags(tensor_parallel_size=2)),
    ("GB10-038", "gemma4-31b", flags(enable_expert_parallel=True)),
    ("GB10-038", "qwen3.6-27b", flags(enable_expert_parallel=True)),
    ("GB10-035", "qwen3.5-122b-fp8-dual", without("cutlass-fp8", "qwen3.5-122b-fp8-dual")),
]

MUTATIONS += [
    # Facts by version, and what owners hit since (rules/facts.yaml)
    ("GB10-011", "nemotron-super", {"model": {"kv_cache": "fp8"}}),
    ("GB10-011", "qwen3.6-27b", {"model": {"kv_cache": "fp8"}}),
    ("GB10-011", "nemotron-nano", {"rules": {"GB10-011": None}}),
    ("GB10-034", "gemma4-12b-coder", spec(**MTP3 | {"method": "gemma4_mtp"})),
    ("GB10-039", "qwen3-coder-next", {"rules": None}),
    ("GB10-039", "qwen3.5-122b-fp8-dual", flags(attention_backend="FLASHINFER")),
    ("GB10-039", "qwen3.5-122b-fp8-dual", flags(attention_backend="flashinfer")),
    ("GB10-040", "qwen3.6-27b-dflash", spec(**QWEN27)),
    ("GB10-040", "laguna-xs2-dflash", spec(**LAGUNA, attention_backend="TRITON_ATTN")),
    ("GB10-040", "laguna-xs2-dflash", {"base": "vllm-openai-0.30.0"}),
    ("GB10-040", "laguna-xs2-dflash", {"base": "vllm-openai-0.26.0"}),
    ("GB10-041", "qwen3.6-27b-dflash", {"base": "vllm-openai-0.24.0", **spec(**QWEN27)}),
    ("GB10-041", "qwen3.6-27b-dflash", {"base": "vllm-openai-0.23.0", **spec(**QWEN27)}),
    ("GB10-041", "qwen3.6-27b-dflash", {"base": "vllm-openai-0.25.1", **spec(**QWEN27)}),
    ("GB10-042", "qwen3.6-27b", {"base": "vllm-openai-0.28.0"}),
    ("GB10-042", "qwen3.6-27b", {"base": "vllm-openai-0.29.0"}),
    ("GB10-042", "gemma4-31b", {"base": "vllm-openai-0.29.0"}),
    ("GB10-043", "qwen3.6-27b", {"base": "vllm-openai-0.30.0", **flags(kv_cache_dtype="fp8")}),
    ("GB10-043", "qwen3.6-27b", {"base": "vllm-openai-0.31.0", **flags(kv_cache_dtype="fp8_e4m3")}),
    ("GB10-043", "qwen3.6-35b", {"base": "vllm-openai-0.28.0", **flags(speculative_config=None)}),
    ("GB10-044", "nemotron-super", {"model": {"memory_gb": 75}}),
    ("GB10-044", "qwen3.6-35b", {"model": {"memory_gb": 70}}),
    ("GB10-044", "qwen3.5-122b", {"rules": None, "base": "vllm-openai-0.23.0"}),
    ("GB10-044", "minimax-m2.7-dual", {"rules": {"GB10-044": None}}),
    ("GB10-045", "gemma4-26b", {"base": "vllm-openai-0.27.1"}),
    ("GB10-045", "gemma4-31b", {"base": "vllm-openai-0.27.1"}),
    ("GB10-045", "gemma4-12b-coder", {"base": "vllm-openai-0.27.1"}),
    ("GB10-046", "qwen3.5-35b", {"model": {"family": "muse-glimmer"}}),
    ("GB10-046", "qwen3.5-35b", {"model": {"family": "deepseek-v4.1"}}),
    ("GB10-046", "qwen3.5-35b", {"model": {"family": "qwen3.8-flash-next"}}),
    ("GB10-046", "qwen3.5-35b", {"model": {"family": "qwen3.8-27b"}}),
    ("GB10-046", "qwen3.5-35b", {"model": {"family": "nemotron-lightning"}}),
    ("GB10-046", "qwen3.5-35b", {"model": {"family": "diffusiongemma"}}),
    ("GB10-047", "qwen3.6-35b", flags(gdn_prefill_backend="flashinfer")),
    ("GB10-047", "qwen3.5-35b", flags(gdn_prefill_backend="flashinfer")),
    ("GB10-048", "gpt-oss-120b", {"serve": {"wrapper": "/opt/dflash/serve"}}),
    ("GB10-048", "nemotron-nano", {"serve": {"wrapper": "/opt/dflash/serve"}}),
    ("GB10-049", "qwen3.5-122b-fp8-dual", DEEPSEEK),
    ("GB10-050", "gpt-oss-120b", {"rules": None}),
    ("GB10-051", "qwen3.6-35b", flags(kv_cache_memory_bytes=20_000_000_000)),
    ("GB10-051", "nemotron-omni", flags(kv_cache_memory_bytes="20G")),
    ("GB10-052", "qwen3.6-35b", flags(max_num_batched_tokens=65536)),
    ("GB10-052", "qwen3.5-122b", flags(max_num_batched_tokens=131072)),
    ("GB10-053", "qwen3.6-35b", {"memory_gb": 64}),
    ("GB10-053", "qwen3.5-35b", {"memory_gb": 64, **flags(gpu_memory_utilization=0.81)}),
    ("GB10-054", "gemma4-26b-dflash", flags(gpu_memory_utilization=0.7)),
    ("GB10-054", "gemma4-26b-dflash", flags(gpu_memory_utilization=0.85)),
]

# Rules that no change of a shipped recipe alone can break; they have tests of their own in test_rules.py.
UNMUTATED = {"GB10-024", "GB10-026", "GB10-027", "GB10-028", "GB10-055"}
