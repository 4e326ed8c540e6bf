"""Layers of random weights for the probe `marlin`, prepared by vLLM for Marlin: mixture of experts, linear layer.

The weights have the form of a checkpoint and go through the functions by which vLLM prepares a layer for Marlin, so
that layouts and scales are tested with the kernel. Names and modules are those of vLLM 0.20.0 and 0.23.0; another
version that lacks one is not probed. Linear layers have fewer than 2048 outputs and at least 2048 inputs, where vLLM
sums with atomic additions when VLLM_MARLIN_USE_ATOMIC_ADD is 1.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .formats import Floats, Quantised, quantise
from .reference import moe, route
from .say import NotRun

_UTILS = "vllm.model_executor.layers.quantization.utils"
_FUSED = (
    "vllm.model_executor.layers.fused_moe.fused_marlin_moe",
    "vllm.model_executor.layers.fused_moe.experts.marlin_moe",
)
"""Where `fused_marlin_moe` is in 0.20.0, and in 0.23.0."""

EXPERTS, HIDDEN, INNER, TOP = 8, 1024, 512, 4
OUTPUTS, INPUTS = 1024, 2048


def find(name: str, *modules: str) -> Any:
    """A function of vLLM. Raises NotRun when no module has it."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            # Only the module itself may be missing: what it imports belongs to the image.
            if error.name in (None, "vllm") or not f"{module}.".startswith(f"{error.name}."):
                raise
        except AttributeError:
            continue
    raise NotRun(f"this vLLM has no {name} in {' or '.join(modules)}")


def call(function: Any, **arguments: Any) -> Any:
    """Call a function of vLLM with keyword arguments. Raises NotRun when it takes others."""
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise NotRun(f"{function.__name__} of this vLLM takes other arguments: {error}") from error
    return function(**arguments)


Launch = Callable[..., Any]
Want = Callable[[Floats], tuple[Floats, tuple[Any, ...]]]


def experts(name: str, generator: np.random.Generator) -> tuple[Launch, Want]:
    """A mixture of experts: the launch function, and the expected result."""
    import torch

    fused = find("fused_marlin_moe", *_FUSED)
    up, down = (
        [quantise(name, 0.05 * generator.standard_normal(shape)) for _ in range(EXPERTS)]
        for shape in ((2 * INNER, HIDDEN), (HIDDEN, INNER))
    )
    gate_up, out = (np.stack([each.values for each in made]) for made in (up, down))
    ready = _prepare_experts(name, up, down)
    kind = "float8_e4m3fn" if name.startswith("fp8") else "float4_e2m1f"
    ready["quant_type_id"] = getattr(find("scalar_types", "vllm.scalar_type"), kind).id
    if "gating_output" in inspect.signature(fused).parameters:
        ready["gating_output"] = None

    def launch(x: Any, weights: Any, ids: Any) -> Any:
        return call(fused, hidden_states=x, topk_weights=weights, topk_ids=ids, global_num_experts=EXPERTS, **ready)

    def want(x: Floats) -> tuple[Floats, tuple[Any, ...]]:
        ids, weights = route(generator.standard_normal((len(x), EXPERTS)), TOP)
        weights = weights.astype(np.float32).astype(np.float64)
        on_gpu = (
            _gpu(x).bfloat16(),
            _gpu(weights).float(),
            torch.from_numpy(ids.astype(np.int32)).cuda(),
        )
        return moe(x, gate_up, out, ids, weights), on_gpu

    return launch, want


def _prepare_experts(name: str, up: list[Quantised], down: list[Quantised]) -> dict[str, Any]:
    import torch

    layer: Any = torch.nn.Module()
    layer.num_experts, layer.hidden_size, layer.intermediate_size_per_partition = EXPERTS, HIDDEN, INNER
    layer.params_dtype = layer.orig_dtype = torch.bfloat16
    (w13, s13, g13), (w2, s2, g2) = (_tensors(name, made) for made in (up, down))
    workspace = find("marlin_make_workspace_new", f"{_UTILS}.marlin_utils")(w13.device, 4)
    if name == "nvfp4":
        prepare = find("prepare_nvfp4_moe_layer_for_marlin", f"{_UTILS}.marlin_utils_fp4")
        w13, s13, g13, w2, s2, g2 = call(
            prepare,
            layer=layer,
            w13=w13,
            w13_scale=s13,
            w13_scale_2=g13,
            w2=w2,
            w2_scale=s2,
            w2_scale_2=g2,
            is_act_and_mul=True,
        )
    elif name == "mxfp4":
        prepare = find("prepare_moe_mxfp4_layer_for_marlin", f"{_UTILS}.marlin_utils_fp4")
        w13, w2, s13, s2, _, _ = call(
            prepare, layer=layer, w13=w13, w2=w2, w13_scale=s13, w2_scale=s2, w13_bias=None, w2_bias=None
        )
    else:
        prepare = find("prepare_fp8_moe_layer_for_marlin", f"{_UTILS}.marlin_utils_fp8")
        layer.weight_block_size = [128, 128] if name == "fp8-block" else None
        layer.w13_weight = torch.nn.Parameter(w13, requires_grad=False)
        w13, w2, s13, s2 = call(
            prepare, layer=layer, w13_weight=w13, w2_weight=w2, w13_weight_scale=s13, w2_weight_scale=s2
        )
    made = {"w1": w13, "w2": w2, "bias1": None, "bias2": None, "w1_scale": s13, "w2_scale": s2, "workspace": workspace}
    return made | ({"global_scale1": g13, "global_scale2": g2} if name == "nvfp4" else {})


def linear(name: str, generator: np.random.Generator) -> tuple[Launch, Want]:
    """A linear layer: the launch function, and the expected result."""
    import torch

    made = quantise(name, 0.05 * generator.standard_normal((OUTPUTS, INPUTS)))
    weight, scale, tensor_scale = (each[0] for each in _tensors(name, [made]))
    layer: Any = torch.nn.Module()
    layer.output_size_per_partition, layer.input_size_per_partition = OUTPUTS, INPUTS
    layer.params_dtype = layer.orig_dtype = torch.bfloat16
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.weight_scale = torch.nn.Parameter(scale, requires_grad=False)
    more: dict[str, Any] = {}
    if name.startswith("fp8"):
        layer.weight_block_size = [128, 128] if name == "fp8-block" else None
        call(find("prepare_fp8_layer_for_marlin", f"{_UTILS}.marlin_utils_fp8"), layer=layer, size_k_first=False)
        apply = find("apply_fp8_marlin_linear", f"{_UTILS}.marlin_utils_fp8")
    else:
        if name == "nvfp4":
            layer.weight_global_scale = torch.nn.Parameter(tensor_scale, requires_grad=False)
        call(find("prepare_fp4_layer_for_marlin", f"{_UTILS}.marlin_utils_fp4"), layer=layer)
        apply = find("apply_fp4_marlin_linear", f"{_UTILS}.marlin_utils_fp4")
        more["weight_global_scale"] = getattr(layer, "weight_global_scale", None)

    def launch(x: Any) -> Any:
        return call(
            apply,
            input=x,
            weight=layer.weight,
            weight_scale=layer.weight_scale,
            workspace=layer.workspace,
            size_n=OUTPUTS,
            size_k=INPUTS,
            bias=None,
            **more,
        )

    def want(x: Floats) -> tuple[Floats, tuple[Any, ...]]:
        return x @ made.values.T, (_gpu(x).bfloat16(),)

    return launch, want


def _tensors(name: str, made: list[Quantised]) -> tuple[Any, Any, Any]:
    """Weights, scales and tensor scales of several quantised matrices, as tensors of a checkpoint."""
    import torch

    weights = torch.from_numpy(np.stack([each.codes for each in made])).cuda()
    scales = np.stack([each.scale for each in made])
    tensor_scales = _gpu(np.array([each.tensor_scale for each in made])).float()
    if name.startswith("fp8"):
        return weights.view(torch.float8_e4m3fn), _gpu(scales).float(), tensor_scales
    codes = torch.from_numpy(scales).cuda()
    return weights, codes.view(torch.float8_e4m3fn) if name == "nvfp4" else codes, tensor_scales


def _gpu(values: Floats) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).cuda()
