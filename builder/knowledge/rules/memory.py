"""Rules about unified memory, bandwidth and CUDA graphs."""

from __future__ import annotations

from packaging.version import Version

from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject, option_problem


@rule(
    "GB10-002",
    "CUDA graphs are enabled",
    severity="error",
    scope="every recipe",
    why="Without CUDA graphs decoding is about 55 % slower: 26 instead of 59 tok/s.",
    fix="remove --enforce-eager, cudagraph_mode NONE and -O0, or override the rule and state the measurement",
    source="sm121-rules",
)
def cuda_graphs(s: Subject) -> Found:
    if s.flag("enforce-eager") == "true":
        yield option_problem("enforce-eager", "--enforce-eager disables CUDA graphs")
    if s.flag("optimization-level") in ("0", "o0"):
        yield option_problem("optimization-level", "--optimization-level 0 disables CUDA graphs")
    compilation = s.flags.get("compilation-config")
    if isinstance(compilation, dict) and str(compilation.get("cudagraph_mode", "")).upper() == "NONE":
        yield option_problem("compilation-config", "cudagraph_mode NONE disables CUDA graphs")


@rule(
    "GB10-004",
    "vLLM uses 0.85 to 0.87 of the memory on one Spark, 0.80 to 0.82 on two",
    severity="warning",
    scope="every recipe that sets at most 0.90 or no value",
    why="The page cache, the operating system and other programs need the rest; two nodes had Xid 43 above 0.82.",
    fix="set --gpu-memory-utilization to 0.85, on two nodes to 0.80",
    source="sm121-rules; dual-spark-minimax-m2.7; gb10-native-installer fix 7",
)
def memory_advice(s: Subject) -> Found:
    share = s.number("gpu-memory-utilization")
    limit = 0.82 if s.recipe.nodes == 2 else 0.87
    if share is None and "gpu-memory-utilization" in s.flags:
        yield option_problem("gpu-memory-utilization", "--gpu-memory-utilization is not a number")
    elif share is None:
        yield Problem("--gpu-memory-utilization is not set; vLLM's default is 0.90 or more", ("serve", "flags"))
    elif limit < share <= 0.90:
        yield option_problem(
            "gpu-memory-utilization", f"--gpu-memory-utilization {share:g} is above the recommended {limit:g}"
        )


_FIELD = ("qwen3.8-27b", "mistral-small-4", "diffusiongemma")
"""Families whose public commands for GB10 have eight requests."""


def _sequences(s: Subject) -> int:
    """The recommended number of concurrent requests: 4, or more where the model's vendor measured or validated more."""
    if s.family("qwen3.5-27b") and s.dflash:
        return 16
    return 8 if s.family("nemotron-nano", "nemotron-omni", *_FIELD) else 4


@rule(
    "GB10-012",
    "Few concurrent requests",
    severity="warning",
    scope="on one Spark at most 4; 8 where a vendor or a public command for GB10 has 8, Qwen3.5-27B with DFlash 16; "
    "without a value always",
    why="Memory bandwidth limits decoding: more concurrent requests slow down each of them.",
    fix="set --max-num-seqs to 4; a profile for throughput overrides this rule",
    source="spark-vllm-guide section 8; vllm-on-dgx-spark",
)
def few_sequences(s: Subject) -> Found:
    count, limit = s.number("max-num-seqs"), _sequences(s)
    if count is None and "max-num-seqs" in s.flags:
        yield option_problem("max-num-seqs", "--max-num-seqs is not a number")
    elif count is None:
        yield Problem("--max-num-seqs is not set; vLLM's default is several hundred", ("serve", "flags"))
    elif s.recipe.nodes == 1 and count > limit:
        yield option_problem("max-num-seqs", f"--max-num-seqs {count:g} is above {limit}")


@rule(
    "GB10-023",
    "Two nodes: host network, and what differs between them is set at run time",
    severity="error",
    scope="recipes for two nodes; names of network interfaces, addresses and ranks in every recipe",
    why="With other settings NCCL hangs silently or is 10 to 20 times slower. Interface names differ between machines.",
    fix="set run.network: host, add the layer cluster (and ray for the backend ray), remove *_IFNAME, NCCL_IB_HCA, "
    "--node-rank and the like (`builder run` sets them)",
    source="sm121-rules; gb10-native-installer fixes 3 and 4; spark-vllm-guide section 13; field",
)
def two_nodes(s: Subject) -> Found:
    per_node = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES", "VLLM_HOST_IP")
    for name in per_node:
        for part, values in (("env", s.recipe.env), ("run", s.recipe.run.env)):
            if name in values:
                yield Problem(f"{name} differs between machines and must not be in a recipe", (part, name))
    for name in ("nnodes", "node-rank", "master-addr", "headless"):
        if name in s.flags:
            yield option_problem(name, f"--{name} belongs to one of two nodes and must not be in a recipe")
    if s.recipe.nodes != 2:
        return
    if s.flag("distributed-executor-backend") != "ray" and s.vllm is not None and s.vllm < Version("0.20"):
        yield option_problem("distributed-executor-backend", f"vLLM {s.vllm} needs Ray for two nodes")
    if s.recipe.run.network != "host":
        yield Problem("two nodes need the host's network", ("run", "network"))
    if "cluster" not in s.layers:
        yield Problem("two nodes need the layer cluster", ("layers",))
    if s.flag("distributed-executor-backend") == "ray" and "ray" not in s.layers and s.base.family != "community":
        yield Problem("--distributed-executor-backend ray needs the layer ray", ("layers",))
    if s.number("tensor-parallel-size") != 2 and s.number("pipeline-parallel-size") != 2:
        yield option_problem("tensor-parallel-size", "two nodes with one GPU each need --tensor-parallel-size 2")
