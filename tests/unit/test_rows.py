"""Every row of the three tables of the hardware (layers, rules, recipes) is implemented, with the values it states."""

from __future__ import annotations

from typing import Any

import pytest

from builder.knowledge.rule import all_rules, find_rule
from builder.model.variant import with_profile
from builder.project import Project
from tests.support import shipped
from tests.support.rule_mutations import MUTATIONS, UNMUTATED

PROJECT = Project()

LAYERS = {
    # row of the table, named as its layer → the variables that the row lists
    "nccl": {"VLLM_NCCL_SO_PATH"},
    "ptxas": {"TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"},
    "marlin": {
        "VLLM_MARLIN_USE_ATOMIC_ADD",
        "VLLM_USE_FLASHINFER_MOE_FP4",
        "VLLM_NVFP4_GEMM_BACKEND",
        "VLLM_TEST_FORCE_FP8_MARLIN",
    },
    "cutlass-fp8": set(),
    "audio": set(),
    "omni": set(),
    "dflash": {"VLLM_USE_DEEP_GEMM"},
    "gemma4-loader": set(),
    "reasoning-parser": set(),
    "headers": {"CC"},
    "ray": {"RAY_memory_monitor_refresh_ms", "RAY_memory_usage_threshold"},
    "cluster": {
        "NCCL_IB_DISABLE",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_ROCE_VERSION_NUM",
        "NCCL_IB_TIMEOUT",
        "NCCL_NET_PLUGIN",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_P2P_DISABLE",
    },
    "entrypoint": set(),
}


@pytest.mark.parametrize("row", LAYERS)
def test_layer(row: str) -> None:
    definition = PROJECT.layer(row).definition
    assert LAYERS[row] <= {item.name for item in definition.env}
    assert definition.checks
    assert row in shipped.LAYERS, "test_layers.py tests it"


RULES = {
    "--moe-backend marlin": ["GB10-001", "GB10-030", "GB10-031"],
    "no --enforce-eager": ["GB10-002"],
    "--gpu-memory-utilization up to 0.90, advised 0.85 to 0.87, two nodes 0.80 to 0.82": ["GB10-003", "GB10-004"],
    "--attention-backend TRITON_ATTN": ["GB10-006"],
    "no forced FLASHINFER attention": ["GB10-005"],
    "no --load-format fastsafetensors": ["GB10-007"],
    "--quantization modelopt": ["GB10-008"],
    "--quantization mxfp4": ["GB10-009"],
    "no --kv-cache-dtype fp8": ["GB10-010", "GB10-034"],
    "no FP8-KV checkpoint": ["GB10-011"],
    "--enable-auto-tool-choice with a --tool-call-parser the version has": ["GB10-013", "GB10-021"],
    "--no-enable-chunked-prefill": ["GB10-014"],
    "--max-num-seqs set, at most 4 advised": ["GB10-012"],
    "drafter only with its target, MTP 1 to 3 tokens": ["GB10-015", "GB10-016", "GB10-021"],
    "no --speculative-disable-by-batch-size": ["GB10-017"],
    "suffix speculation only with a layer that builds arctic-inference": ["GB10-018"],
    "DFlash on an NVFP4 or FP8 target warns": ["GB10-019", "GB10-029"],
    "no variable, flag or choice that the base ignores or lacks": ["GB10-020", "GB10-021", "GB10-022"],
    "host network, ipc, VLLM_HOST_IP, GLOO_SOCKET_IFNAME, NCCL_IB_HCA or NCCL_SOCKET_IFNAME": ["GB10-023"],
    "mutable tags only by digest, the bare gemma4 tag refused": ["GB10-024"],
    "no vllm-openai release below 0.20 without -cu130, no -cu129": ["GB10-025"],
    "26.02 rejects MIXED_PRECISION checkpoints": ["GB10-026"],
    "Transformers 5": ["GB10-027"],
    "driver 580, never 590": ["GB10-028"],
    # From the tables of layers and recipes.
    "the command that is already in vllm-openai's entrypoint": ["GB10-032"],
    "Gemma-4-26B on one GPU": ["GB10-033"],
    "cutlass-fp8 where CUTLASS crashes": ["GB10-035"],
    "a layer that does not apply": ["GB10-036"],
    "expert parallel is an optional profile": ["GB10-038"],
    "an image without all of NCCL's functions": ["GB10-037"],
    # What owners hit since, and facts by version (rules/facts.yaml).
    "FlashInfer attention by weights and version": ["GB10-039", "GB10-043", "GB10-047"],
    "DFlash drafters by version": ["GB10-040", "GB10-041"],
    "kernels and models by version": ["GB10-042", "GB10-045", "GB10-046", "GB10-049", "GB10-050"],
    "memory by version and machine": ["GB10-044", "GB10-051", "GB10-052", "GB10-053", "GB10-054", "GB10-055"],
    "NVIDIA's entrypoint": ["GB10-048"],
}


@pytest.mark.parametrize("row", RULES)
def test_rule(row: str) -> None:
    mutated = {rule for rule, _, _ in MUTATIONS} | UNMUTATED
    for id in RULES[row]:
        assert find_rule(id).source
        assert id in mutated, "a recipe that breaks it"


def test_every_rule_belongs_to_a_row() -> None:
    assert {id for ids in RULES.values() for id in ids} == {rule.id for rule in all_rules()}


Row = tuple[str, str | None, dict[str, Any]]

RECIPES: list[Row] = [
    # recipe, profile, the options of the serving command in the table (None: the option is absent)
    (
        "nemotron-omni",
        None,
        {"gpu-memory-utilization": 0.8, "max-model-len": 131072, "max-num-seqs": 8, "max-num-batched-tokens": 32768},
    ),
    ("nemotron-omni", "low-memory", {"gpu-memory-utilization": 0.7, "max-model-len": 32768}),
    ("nemotron-omni-vision", None, {"hf-overrides": {"architectures": ["NemotronH_Nano_VL_V2"]}}),
    (
        "nemotron-nano",
        None,
        {"kv-cache-dtype": "fp8", "max-model-len": 262144, "max-num-seqs": 8, "reasoning-parser": "nano_v3"},
    ),
    ("nemotron-nano", "long-context", {"max-model-len": 1048576}),
    ("nemotron-nano-openai", None, {"moe-backend": "marlin", "reasoning-parser": "nemotron_v3"}),
    (
        "nemotron-super",
        None,
        {
            "max-model-len": 131072,
            "max-num-seqs": 4,
            "reasoning-parser": "nemotron_v3",
            "tool-call-parser": "qwen3_coder",
        },
    ),
    ("nemotron-super", "mtp", {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}),
    (
        "qwen3.6-35b",
        None,
        {
            "speculative-config": {"method": "mtp", "num_speculative_tokens": 3, "moe_backend": "triton"},
            "tool-call-parser": "qwen3_xml",
        },
    ),
    (
        "qwen3.6-35b",
        "card",
        {"gpu-memory-utilization": 0.4, "attention-backend": "flashinfer", "max-model-len": 262144},
    ),
    (
        "qwen3.6-35b",
        "long-context",
        {"max-model-len": 262144, "max-num-seqs": 2, "gpu-memory-utilization": 0.4, "kv-cache-dtype": "fp8"},
    ),
    ("qwen3.6-35b", "yarn", {"max-model-len": 1010000}),
    ("qwen3.6-35b-dflash", None, {"attention-backend": "TRITON_ATTN", "kv-cache-dtype": None}),
    ("qwen3.6-27b", None, {"dtype": "bfloat16", "tool-call-parser": "qwen3_xml", "quantization": None}),
    ("qwen3.6-27b", "qwen3-coder-tools", {"tool-call-parser": "qwen3_coder"}),
    ("qwen3.6-27b", "yarn", {"max-model-len": 1010000}),
    (
        "qwen3.6-27b-dflash",
        None,
        {
            "speculative-config": {
                "method": "dflash",
                "model": "z-lab/Qwen3.6-27B-DFlash",
                "num_speculative_tokens": 12,
                "attention_backend": "TRITON_ATTN",
            }
        },
    ),
    (
        "qwen3-coder-next",
        None,
        {
            "attention-backend": "FLASHINFER",
            "enable-prefix-caching": True,
            "max-model-len": 170000,
            "max-num-batched-tokens": 32768,
            "tool-call-parser": "qwen3_coder",
            "reasoning-parser": None,
        },
    ),
    ("qwen3.5-122b", None, {"moe-backend": "marlin", "max-model-len": 65536}),
    ("qwen3.5-122b", "chat-template", {"chat-template": "/templates/qwen3.5.jinja"}),
    (
        "qwen3.5-122b-fp8-dual",
        None,
        {
            "tensor-parallel-size": 2,
            "gpu-memory-utilization": 0.8,
            "max-model-len": 16384,
            "max-num-batched-tokens": 4096,
            "enforce-eager": None,
        },
    ),
    ("qwen3.5-35b", None, {"gpu-memory-utilization": 0.85, "tool-call-parser": "qwen3_coder"}),
    ("qwen3-omni", None, {"omni": True, "gpu-memory-utilization": 0.85, "max-model-len": 32768}),
    ("gemma4-31b", None, {"quantization": "modelopt", "tensor-parallel-size": 1}),
    ("gemma4-31b", "tools", {"tool-call-parser": "gemma4", "reasoning-parser": "gemma4"}),
    (
        "gemma4-26b",
        None,
        {
            "moe-backend": "marlin",
            "quantization": "modelopt",
            "kv-cache-dtype": "fp8",
            "tensor-parallel-size": 1,
            "tool-call-parser": "pythonic",
            "reasoning-parser": "gemma4",
        },
    ),
    ("gemma4-12b-coder", None, {"gpu-memory-utilization": 0.92, "reasoning-parser": "gemma4"}),
    (
        "gemma4-12b-coder",
        "mtp",
        {
            "speculative-config": {"method": "mtp", "model": "/model/assistant", "num_speculative_tokens": 3},
            "kv-cache-dtype": "fp8",
        },
    ),
    ("gemma4-31b-dflash", None, {"attention-backend": "TRITON_ATTN"}),
    ("gemma4-26b-dflash", None, {"attention-backend": "TRITON_ATTN"}),
    ("qwen3.5-27b-dflash", None, {"max-num-seqs": 16, "max-num-batched-tokens": 32768, "max-model-len": 65536}),
    (
        "laguna-xs2-dflash",
        None,
        {"tool-call-parser": "poolside_v1", "reasoning-parser": "poolside_v1", "attention-backend": "TRITON_ATTN"},
    ),
    (
        "minimax-m2.7-dual",
        None,
        {
            "tensor-parallel-size": 2,
            "distributed-executor-backend": "mp",
            "kv-cache-dtype": "fp8_e4m3",
            "max-model-len": 196608,
            "compilation-config": {"cudagraph_mode": "NONE"},
            "gpu-memory-utilization": 0.82,
        },
    ),
    ("minimax-m2.7-dual", "ray", {"distributed-executor-backend": "ray"}),
    ("minimax-m2.7-dual", "linear-backend", {"linear-backend": "marlin", "moe-backend": "marlin"}),
    (
        "gpt-oss-120b",
        None,
        {
            "quantization": "mxfp4",
            "moe-backend": "marlin",
            "attention-backend": "TRITON_ATTN",
            "tool-call-parser": "openai",
            "reasoning-parser": "openai_gptoss",
        },
    ),
    (
        "gpt-oss-120b",
        "two-node",
        {"tensor-parallel-size": 2, "gpu-memory-utilization": 0.82, "max-model-len": 131072},
    ),
    ("nemotron-omni", "fp8-cache", {"kv-cache-dtype": "fp8"}),
    # Public recipes of 2026 (field).
    ("qwen3.8-27b", None, {"gpu-memory-utilization": 0.7, "max-model-len": 262144, "kv-cache-dtype": "fp8"}),
    ("qwen3.8-27b-dflash2", None, {"max-num-batched-tokens": 16384, "load-format": "instanttensor"}),
    ("nemotron-3.5-lightning", None, {"mamba-backend": "flashinfer", "mamba-cache-mode": "align"}),
    ("nemotron-super-mtpv2", None, {"attention-backend": "FLASHINFER", "mamba-ssm-cache-dtype": "float32"}),
    ("mistral-small-4", None, {"attention-backend": "TRITON_MLA", "speculative-config": None}),
    ("laguna-s2", None, {"max-model-len": 262144, "tool-call-parser": "poolside_v1"}),
    ("diffusiongemma", None, {"diffusion-config": {"canvas_length": 256}, "attention-backend": "TRITON_ATTN"}),
    ("muse-glimmer", None, {"tool-call-parser": "muse_glimmer", "generation-config": "auto"}),
    ("qwen3.6-35b", "playbook", {"attention-backend": "FLASHINFER", "gpu-memory-utilization": 0.5}),
    ("gpt-oss-120b", "stock", {"moe-backend": None, "quantization": None, "kv-cache-dtype": "fp8"}),
    ("qwen3.5-122b-fp8-dual", "low-memory", {"gpu-memory-utilization": 0.75, "max-model-len": 8192}),
    ("qwen3.6-35b", "minimal", {"quantization": "modelopt", "moe-backend": "marlin", "kv-cache-dtype": None}),
]


@pytest.mark.parametrize(
    ("recipe", "profile", "expected"), RECIPES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_recipe(recipe: str, profile: str | None, expected: dict[str, Any]) -> None:
    flags = with_profile(PROJECT.recipe(recipe), profile, PROJECT.shared_profiles).serve.flags
    assert {name: flags.get(name) for name in expected} == expected


def test_every_recipe_belongs_to_a_row() -> None:
    assert {name for name, _, _ in RECIPES} == set(shipped.RECIPES) == set(PROJECT.recipe_names())
