"""The small model that the gpu tier serves by default, to test the image instead of a checkpoint."""

from __future__ import annotations

from typing import Any

from builder.model.recipe import Model, Recipe, Serve, Volume

MODEL = "Qwen/Qwen3-1.7B"
"""Has reasoning and tool calls, 4 GB of BF16 weights, no licence to accept; every supported vLLM has its parsers."""


def small(recipe: Recipe) -> Recipe:
    """The recipe with the small model, reasoning, tools, and n-gram speculation, which needs no drafter.

    What the base needs for every model stays: environment, attention backend, the folder of weights.
    """
    flags: dict[str, Any] = {
        "served-model-name": "small",
        "host": "0.0.0.0",
        "port": recipe.run.port,
        "gpu-memory-utilization": 0.3,
        "max-model-len": 16384,
        "max-num-seqs": 4,
        "reasoning-parser": "qwen3",
        "enable-auto-tool-choice": True,
        "tool-call-parser": "hermes",
        "speculative-config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
    }
    if backend := recipe.serve.flags.get("attention-backend"):
        flags["attention-backend"] = backend
    home = recipe.run.env.get("HF_HOME", "/models")
    volumes = tuple(item for item in recipe.run.volumes if item.container == home)
    run = recipe.run.model_copy(
        update={
            "env": {**recipe.run.env, "HF_HOME": home},
            "volumes": volumes or (Volume(host="~/vllm", container=home),),
            "network": "bridge",
            "downloads": (),
        }
    )
    model = Model(id=MODEL, weights="bf16", reasoning=True, tools=True, memory_gb=4)
    return recipe.model_copy(
        update={"model": model, "serve": Serve(model=MODEL, flags=flags), "run": run, "nodes": 1, "speed": None}
    )
