"""Rules about base images."""

from __future__ import annotations

import re

from packaging.version import Version

from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject, option_problem


@rule(
    "GB10-007",
    "No fastsafetensors on NGC 26.03 and 26.04",
    severity="error",
    scope="NGC 26.03 and 26.04; an option on vllm-openai from 0.20 on",
    why="ImportError: the package is not in these images.",
    fix="leave out --load-format",
    source="sm121-rules",
)
def fastsafetensors(s: Subject) -> Found:
    if s.on("26.03", "26.04") and s.flag("load-format") == "fastsafetensors":
        yield option_problem("load-format", "--load-format fastsafetensors is an ImportError on this base")


_MUTABLE = re.compile(r"(^|-)(nightly|latest|gemma\d*|qwen\d+)(-|$)")


@rule(
    "GB10-024",
    "Moving tags only by digest, the bare gemma4 tag never",
    severity="error",
    scope="bases",
    why="A moving tag is another build tomorrow; gemma4 without -cu130 is 0.18.2-dev and crashes on sm_121.",
    fix="pin the digest in recipes/bases; vllm-openai:gemma4-cu130 for Gemma 4",
    source="spark-vllm-guide sections 6 and 7.2; vllm-on-dgx-spark",
)
def moving_tag(s: Subject) -> Found:
    if s.base.pin is None:
        return
    repository, _, tag = s.base.pin.image.rpartition(":")
    if repository.endswith("vllm/vllm-openai") and tag == "gemma4":
        yield Problem("the image gemma4 without -cu130 crashes on sm_121", ("base",))
    elif _MUTABLE.search(tag) and s.base.pin.manifest and (sure := s.base.pin.confidence) in ("low", "none"):
        yield Problem(f"the tag {tag} moves, and its digest is pinned with confidence {sure}", ("base",))


@rule(
    "GB10-025",
    "vllm-openai on CUDA 13",
    severity="error",
    scope="releases before 0.20 without -cu130; -cu129 of any release",
    why="Built on CUDA 12.9: no ptxas for sm_121, and SM12x kernels for 12.0a only.",
    fix="a release from 0.20 on, or the -cu130 tag",
    source="spark-vllm-guide section 2; facts",
)
def cuda13(s: Subject) -> Found:
    if s.base.family != "vllm-openai" or s.base.pin is None:
        return
    tag = s.base.pin.image.rpartition(":")[2]
    if "cu129" in tag:
        yield Problem(f"the image {tag} is built on CUDA 12.9", ("base",))
    elif s.vllm is not None and s.vllm < Version("0.20") and "cu130" not in tag and "nightly" not in tag:
        yield Problem(f"the image {tag} is a release before 0.20 without -cu130", ("base",))


@rule(
    "GB10-028",
    "Driver 580",
    severity="note",
    scope="bases that are built for a newer driver; `doctor` looks at the host",
    why="Driver 590 deadlocks in CUDA graphs on GB10; 580.142 is known good. Such a base runs on it all the same.",
    fix="stay on 580; where the log says UNAVAILABLE use a vllm-openai base with nemotron_v3 and marlin",
    source="sm121-rules; spark-vllm-guide section 7.3.1",
)
def driver(s: Subject) -> Found:
    if (s.base.driver or "").startswith("59"):
        yield Problem(f"the base is built for driver {s.base.driver}", ("base",))


@rule(
    "GB10-036",
    "Layers apply to the base",
    severity="error",
    scope="every recipe on every base it names",
    why="A layer that does not apply would do nothing, or break the image.",
    fix="leave the layer or the base out",
    source="the layers' own conditions",
)
def layers_apply(s: Subject) -> Found:
    for layer, why in s.unfit:
        yield Problem(f"layer {layer} does not apply to {s.base.name}: {why}", ("layers",))


@rule(
    "GB10-032",
    "The serving command once",
    severity="error",
    scope="every recipe",
    why="vllm-openai's entrypoint already is `vllm serve`: said twice, the server stops with `unrecognized arguments`.",
    fix="give the model and its options only; builder adds the command where the base needs it",
    source="spark-vllm-guide section 6; vllm-on-dgx-spark",
)
def command_once(s: Subject) -> Found:
    model = s.recipe.serve.model or ""
    if model.split()[:1] in (["vllm"], ["serve"]):
        yield Problem("serve.model repeats the serving command", ("serve", "model"))


@rule(
    "GB10-037",
    "All of NCCL's functions",
    severity="warning",
    scope="recipes whose layer nccl compiles fewer than all",
    why="A function that was not compiled does not fail: calling it crashes the process.",
    fix="leave out nccl.functions; a smaller set is for builds of one's own (--set nccl.functions=inference)",
    source="NCCL's generator of device code (ONLY_FUNCS)",
)
def all_functions(s: Subject) -> Found:
    functions = s.layers.get("nccl", {}).get("functions", "all")
    if functions != "all":
        yield Problem(f"NCCL has only the functions {functions!r}: calling another one crashes", ("layers",))
