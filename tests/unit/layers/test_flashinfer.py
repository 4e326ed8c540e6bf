"""The layer `flashinfer`: which generator makes a module, with which arguments, and the commands that compile it.

Compiled and loaded: the nightly test of the small project, and the layer's check `flashinfer-loads`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from builder.errors import InvalidError, UsageError
from tests.support.errors import fails
from tests.support.one_layer import planned
from tests.support.project import ROOT, write_files

FOLDER = ROOT / "dockerfiles/layers/flashinfer"
DECODE = (
    "batch_decode_with_kv_cache_dtype_q_bf16_dtype_kv_e4m3_dtype_o_bf16_dtype_idx_i32"
    "_head_dim_qk_128_head_dim_vo_64_posenc_0_use_swa_False_use_logits_cap_True"
)
PREFILL = f"{DECODE.replace('decode', 'prefill')}_f16qk_False"
XQA = (
    "xqa_input_bf16_kv_cache_e4m3_output_bf16_page_size_16_head_dim_128_head_group_ratio_8"
    "_use_sliding_window_False_use_spec_dec_True_spec_q_seq_len_4"
)
TYPES = "f16, bf16, f32, e4m3, e5m2, i8, u8, i16, i32, i64"
PACKAGE = {
    # As FlashInfer has it: the package itself must not be imported, since it loads the whole library.
    "flashinfer/__init__.py": "raise ImportError('the whole library')\n",
    "flashinfer/jit/__init__.py": """
import functools, torch, tvm_ffi
from filelock import FileLock
from torch.library import custom_op

class Spec:
    def __init__(self, name, **given):
        self.name, self.given = name, {key: getattr(value, "__name__", value) for key, value in given.items()}

@custom_op("a::b")
def decorated(x: torch.Tensor | None, dtype: torch.dtype = torch.float16):
    return x

assert decorated(1) == 1 and int(torch._C._GLIBCXX_USE_CXX11_ABI) == 1
assert {torch.float16: 1, torch.bfloat16: 2}[torch.bfloat16] == 2
assert str(tvm_ffi.libinfo.find_include_path()).endswith("/tvm_ffi/include")
""",
    "flashinfer/jit/norm.py": "from . import Spec\ndef gen_norm_module():\n    return Spec('norm')\n",
    "flashinfer/jit/page.py": "from . import Spec\ndef gen_page_module():\n    return Spec('pages')\n",
    "flashinfer/jit/fused_moe.py": (
        "from . import Spec\ndef gen_cutlass_fused_moe_sm120_module():\n    return Spec('fused_moe_120')\n"
    ),
    "flashinfer/jit/activation.py": (
        "from . import Spec\ndef gen_act_and_mul_module(act_func_name):\n    return Spec(f'{act_func_name}_and_mul')\n"
    ),
    "flashinfer/jit/attention.py": f"""
from . import Spec
def gen_batch_decode_module(**given):
    return Spec({DECODE!r}, **given)
def gen_batch_prefill_module(**given):
    return Spec({PREFILL!r}, **given)
""",
    "flashinfer/jit/xqa.py": f"from . import Spec\ndef gen_xqa_module(**given):\n    return Spec({XQA!r}, **given)\n",
}
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import generator
generator.prepare(sys.argv[2], sys.argv[2])
for name in sys.argv[3:]:
    try:
        found = generator.described(name)
        print(json.dumps([found.name, found.given]))
    except generator.Unknown as error:
        print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("site"), dict(PACKAGE))


def ask(site: Path, *names: str) -> list[Any]:
    """The answers of the generator, in a process of its own: it replaces torch."""
    words = [sys.executable, "-B", "-c", ASK, str(FOLDER), str(site), *names]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_name_is_read_back_into_the_arguments_of_its_generator(site: Path) -> None:
    attention = {"dtype_q": "bfloat16", "dtype_kv": "float8_e4m3fn", "dtype_o": "bfloat16", "dtype_idx": "int32"}
    attention |= {"head_dim_qk": 128, "head_dim_vo": 64, "pos_encoding_mode": 0}
    attention |= {"use_sliding_window": False, "use_logits_soft_cap": True}
    xqa = {"input_dtype": "bfloat16", "kv_cache_dtype": "float8_e4m3fn", "output_dtype": "bfloat16", "page_size": 16}
    xqa |= {"head_dim": 128, "head_group_ratio": 8, "use_sliding_window": False, "q_seq_len": 4}
    assert ask(site, "norm", "fused_moe_120", "gelu_tanh_and_mul", DECODE, PREFILL, XQA) == [
        ["norm", {}],
        ["fused_moe_120", {}],
        ["gelu_tanh_and_mul", {}],
        [DECODE, attention],
        [PREFILL, {**attention, "use_fp16_qk_reduction": False, "backend": "fa2"}],
        [XQA, xqa],
    ]


def test_a_name_that_no_generator_makes_is_never_compiled_as_something_else(site: Path) -> None:
    unknown = "this FlashInfer has no module {}, or this layer does not know its generator"
    assert ask(site, "nothing", "core", "page", DECODE.replace("q_bf16", "q_x9"), DECODE.replace("128", "256")) == [
        unknown.format("nothing"),
        unknown.format("core"),
        "the generator calls page pages",
        f"{DECODE.replace('q_bf16', 'q_x9')}: x9 is not a type; known: {TYPES}",
        f"the generator calls {DECODE.replace('128', '256')} {DECODE}",
    ]


def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("flashinfer_build", FOLDER / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_commands_have_objects_of_their_own_and_the_libraries_that_the_generator_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build = script(monkeypatch)
    monkeypatch.setattr(build, "stub", lambda name: f"-l{name}")
    sources = [Path("/a/x/kernel.cu"), Path("/a/y/kernel.cu")]
    entries = [{"command": f"nvcc -c {path} -DX='a b' -O3 -o /elsewhere/kernel.cuda.o"} for path in sources]
    spec = SimpleNamespace(
        sources=sources, get_compile_commands=lambda: entries, extra_ldflags=["-lnvrtc", "-lcuda", "-L/x", "-lcudart"]
    )
    commands, objects = build.compile_commands(spec, tmp_path)
    assert objects == [f"{tmp_path}/x_kernel.cu.o", f"{tmp_path}/y_kernel.cu.o"]
    assert commands[0] == ["nvcc", "-c", "/a/x/kernel.cu", "-DX=a b", "-O3", "-o", objects[0]]
    linked = build.link_command(spec, objects, Path("/out/m.so"))
    assert linked[-6:] == [*objects, "-l:libcudart.so.13", "-lcuda", "-lnvrtc", "-o", "/out/m.so"][-6:]
    # Without it the linker leaves the stubs out: a module that calls the driver would not load.
    assert "-Wl,--build-id=none,--no-as-needed" in linked


def test_the_plan_has_flashinfer_its_generators_imports_and_headers() -> None:
    for base, version in (("hermetic-0.20", "0.6.8.post1"), ("hermetic-0.32", "0.7.0.post1")):
        layer = planned("flashinfer", base, modules=["norm", PREFILL])
        names = {item.name.partition(" ")[0] for item in layer.inputs}
        assert f"flashinfer-python {version}" in {item.name for item in layer.inputs}
        assert names >= {"apache-tvm-ffi", "jinja2", "nvidia-cublas", "nvidia-curand", "packaging"}
        assert f" -- norm {PREFILL}\n" in layer.stages
    assert " -- sampling\n" in planned("flashinfer", "hermetic-0.32").stages
    for wrong in (["a b"], ["../x"], ["$(id)"], ["Norm"]):
        with fails(InvalidError, "layer-parameter-invalid"):
            planned("flashinfer", "hermetic-0.20", modules=wrong)
    with fails(UsageError, "layer-family-wrong"):
        planned("flashinfer", "vllm-openai-0.20")
