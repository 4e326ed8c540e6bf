"""FlashInfer's own generator, without torch, a GPU or a network: what a module is compiled from, by the module's name.

FlashInfer names a module after the arguments that its generator was given; here the name is read back into arguments.
The generator's answer must have the name that was asked for, so a name is never compiled as something else.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import types

CXX = "aarch64-linux-gnu-g++"
TARGET = "/usr/local/cuda/targets/sbsa-linux"
"""Headers and libraries for the Spark."""
STAND_IN = ("filelock", "requests", "torch", "tqdm", "tvm_ffi")
DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
DTYPES |= {"i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64"}

PLAIN = {
    "fp4_gemm_cutlass_sm120": ("gemm.core", "gen_gemm_sm120_module_cutlass_fp4"),
    "fp4_quantization_121": ("fp4_quantization", "gen_fp4_quantization_sm121_module"),
    "fused_moe_120": ("fused_moe", "gen_cutlass_fused_moe_sm120_module"),
    "mamba_seq_chunk_cumsum": ("mamba", "gen_seq_chunk_cumsum_module"),
    "mxfp8_gemm_cutlass_sm120": ("gemm.core", "gen_gemm_sm120_module_cutlass_mxfp8"),
    "mxfp8_quantization_sm100": ("fp8_quantization", "gen_mxfp8_quantization_sm100_module"),
}
"""Modules without arguments whose generator is not named after them. The others: gen_NAME_module in jit/NAME.py."""

ATTENTION = (
    r"dtype_q_(?P<dtype_q>\w+)_dtype_kv_(?P<dtype_kv>\w+)_dtype_o_(?P<dtype_o>\w+)_dtype_idx_(?P<dtype_idx>\w+)"
    r"_head_dim_qk_(?P<head_dim_qk>\d+)_head_dim_vo_(?P<head_dim_vo>\d+)_posenc_(?P<pos_encoding_mode>\d)"
    r"_use_swa_(?P<use_sliding_window>True|False)_use_logits_cap_(?P<use_logits_soft_cap>True|False)"
)
XQA = (
    r"input_(?P<input_dtype>\w+)_kv_cache_(?P<kv_cache_dtype>\w+)_output_(?P<output_dtype>\w+)"
    r"_page_size_(?P<page_size>\d+)_head_dim_(?P<head_dim>\d+)_head_group_ratio_(?P<head_group_ratio>\d+)"
    r"_use_sliding_window_(?P<use_sliding_window>True|False)_use_spec_dec_(?:True|False)"
    r"_spec_q_seq_len_(?P<q_seq_len>\d+)"
)
PREFILL = rf"{ATTENTION}_f16qk_(?P<use_fp16_qk_reduction>True|False)"
FAMILIES = (
    (r"(?P<act_func_name>silu|gelu|gelu_tanh)_and_mul", "activation", "gen_act_and_mul_module", {}),
    (f"batch_decode_with_kv_cache_{ATTENTION}", "attention", "gen_batch_decode_module", {}),
    (f"batch_prefill_with_kv_cache_{PREFILL}", "attention", "gen_batch_prefill_module", {"backend": "fa2"}),
    (f"xqa_{XQA}", "xqa", "gen_xqa_module", {}),
)
"""Names with arguments: pattern, the generator's module, its function, arguments that are not in the name."""


class Unknown(Exception):
    """A name that no generator makes."""


class _Thing(type):
    """Any class, function or value of a stand-in: it has every attribute, and as a decorator it changes nothing."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(cls, name, _Thing(name, (), {}))
        return getattr(cls, name)

    def __call__(cls, *words, **options):
        return words[0] if len(words) == 1 and callable(words[0]) else (lambda function: function)


class _StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _Thing(name, (), {}))
        return getattr(self, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        known = name.partition(".")[0] in STAND_IN
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def prepare(site, work):
    """Make `flashinfer.jit` importable: FlashInfer of SITE, without the rest of it, for sm_121a."""
    os.environ |= {"CC": CXX, "CXX": CXX, "FLASHINFER_NVCC": "/usr/local/bin/nvcc"}
    os.environ |= {"FLASHINFER_CUDA_ARCH_LIST": "12.1a", "FLASHINFER_WORKSPACE_BASE": work}
    os.environ["CUDA_HOME"] = TARGET
    sys.path.insert(0, site)
    sys.meta_path.insert(0, _Finder())
    torch, tvm_ffi = importlib.import_module("torch"), importlib.import_module("tvm_ffi")
    torch._C._GLIBCXX_USE_CXX11_ABI = True
    tvm_ffi.libinfo.find_include_path = tvm_ffi.libinfo.find_dlpack_include_path = lambda: f"{site}/tvm_ffi/include"
    package = types.ModuleType("flashinfer")
    package.__path__ = [f"{site}/flashinfer"]
    sys.modules["flashinfer"] = package


def arguments(pattern, name):
    """The arguments in a name, or None."""
    found = re.fullmatch(pattern, name)
    if found is None:
        return None
    torch = importlib.import_module("torch")
    values = {}
    for key, text in found.groupdict().items():
        if "dtype" in key:
            if text not in DTYPES:
                raise Unknown(f"{name}: {text} is not a type; known: {', '.join(DTYPES)}")
            values[key] = getattr(torch, DTYPES[text])
        else:
            values[key] = {"True": True, "False": False}.get(text, int(text) if text.isdigit() else text)
    return values


def described(name):
    """What the generator says of a module, which has the attributes of FlashInfer's JitSpec. Raises Unknown."""
    folder, function = PLAIN.get(name, (name, f"gen_{name}_module"))
    given = {}
    for pattern, family, generator, fixed in FAMILIES:
        found = arguments(pattern, name)
        if found is not None:
            folder, function, given = family, generator, {**found, **fixed}
    place = f"flashinfer.jit.{folder}"
    try:
        generate = getattr(importlib.import_module(place), function, None)
    except ModuleNotFoundError as error:
        if error.name != place:
            raise
        generate = None
    if generate is None:
        raise Unknown(f"this FlashInfer has no module {name}, or this layer does not know its generator")
    spec = generate(**given)
    if spec.name != name:
        raise Unknown(f"the generator calls {name} {spec.name}")
    return spec


def load(site, names, work="/src"):
    """The modules of these names, each once."""
    prepare(site, work)
    return [described(name) for name in dict.fromkeys(names)]
