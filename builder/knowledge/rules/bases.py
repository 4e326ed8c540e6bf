"""Rules about base images."""

from __future__ import annotations

import re

from packaging.version import Version

from builder.knowledge.rule import rule
from builder.knowledge.subject import Found, Problem, Subject

_MUTABLE = re.compile(r"(^|-)(nightly|latest|gemma\d*|qwen\d+)(-|$)")


@rule(
    "GB10-024",
    "Moving tags are pinned by digest; the tag gemma4 is not used",
    severity="error",
    scope="bases",
    why="The image behind a moving tag changes. The tag gemma4 without -cu130 is 0.18.2-dev and crashes on sm_121.",
    fix="pin the digest in recipes/bases; use vllm-openai:gemma4-cu130 for Gemma 4",
    source="spark-vllm-guide sections 6 and 7.2; vllm-on-dgx-spark",
)
def moving_tag(s: Subject) -> Found:
    if s.base.pin is None:
        return
    repository, _, tag = s.base.pin.image.rpartition(":")
    if repository.endswith("vllm/vllm-openai") and tag == "gemma4":
        yield Problem("the image gemma4 (without -cu130) crashes on sm_121", ("base",))
    elif _MUTABLE.search(tag) and s.base.pin.manifest and (sure := s.base.pin.confidence) in ("low", "none"):
        yield Problem(f"the tag {tag} moves, and the confidence of its pinned digest is {sure!r}", ("base",))


@rule(
    "GB10-025",
    "vllm-openai images are built on CUDA 13",
    severity="error",
    scope="tags of releases before 0.20 without -cu130; tags with -cu129 of any release",
    why="These images are built on CUDA 12.9: they have no ptxas for sm_121, and SM12x kernels for 12.0a only.",
    fix="use a release from 0.20 on, or a tag with -cu130",
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
    "NVIDIA driver 580",
    severity="note",
    scope="bases that are built for driver 590; `builder doctor` checks the driver of the host",
    why="Driver 590 deadlocks in CUDA graphs on GB10; 580.142 works, also with a base that is built for 590.",
    fix="keep driver 580; if the log contains UNAVAILABLE, use a vllm-openai base with nemotron_v3 and marlin",
    source="sm121-rules; spark-vllm-guide section 7.3.1",
)
def driver(s: Subject) -> Found:
    if (s.base.driver or "").startswith("59"):
        yield Problem(f"the base is built for driver {s.base.driver}", ("base",))


@rule(
    "GB10-036",
    "Every layer applies to the base",
    severity="error",
    scope="every recipe, on every base that it names",
    why="A layer that does not apply to the base has no effect or breaks the image.",
    fix="remove the layer or the base from the recipe",
    source="the conditions in each layer.yaml",
)
def layers_apply(s: Subject) -> Found:
    for layer, why in s.unfit:
        yield Problem(f"layer {layer} does not apply to {s.base.name}: {why}", ("layers",))


@rule(
    "GB10-032",
    "The recipe does not repeat `vllm serve`",
    severity="error",
    scope="every recipe",
    why="The entrypoint of vllm-openai is `vllm serve`: a second one stops the server with `unrecognized arguments`.",
    fix="write only the model and its options; builder adds `vllm serve` where the base needs it",
    source="spark-vllm-guide section 6; vllm-on-dgx-spark",
)
def command_once(s: Subject) -> Found:
    model = s.recipe.serve.model or ""
    if model.split()[:1] in (["vllm"], ["serve"]):
        yield Problem("serve.model repeats `vllm serve`", ("serve", "model"))


@rule(
    "GB10-037",
    "NCCL is compiled with all functions",
    severity="warning",
    scope="recipes whose layer nccl compiles only some functions",
    why="A call of a function that is not compiled returns no error: it crashes the process.",
    fix="remove nccl.functions; use --set nccl.functions=inference only for your own builds",
    source="NCCL's generator of device code (ONLY_FUNCS)",
)
def all_functions(s: Subject) -> Found:
    functions = s.layers.get("nccl", {}).get("functions", "all")
    if functions != "all":
        yield Problem(
            f"NCCL has only the functions {functions!r}: a call of another one crashes the process", ("layers",)
        )
