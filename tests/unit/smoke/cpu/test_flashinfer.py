"""The cpu check of FlashInfer's modules, with a stand-in for FlashInfer."""

from __future__ import annotations

from pathlib import Path

from tests.support.local_runner import check, go


def test_flashinfer_loads_its_modules_and_compiles_none(tmp_path: Path) -> None:
    module = tmp_path / "aot/norm/norm.so"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"module")
    package = tmp_path / "site/flashinfer/jit"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "env.py").write_text(f"import pathlib\nFLASHINFER_AOT_DIR = pathlib.Path({str(tmp_path / 'aot')!r})\n")
    code = """
import ctypes, mmap, os
assert os.environ["FLASHINFER_DISABLE_JIT"] and os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.1a"
ctypes.CDLL("libcuda.so.1")

class gen_jit_spec:
    def __init__(self, name, sources):
        self.path = env.FLASHINFER_AOT_DIR / name / f"{name}.so"

    def build_and_load(self):
        with open(self.path) as file:
            kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
"""
    (package / "core.py").write_text(f"from flashinfer.jit import env\nkept = []\n{code}")
    given = {"env": {"PYTHONPATH": str(tmp_path / "site")}}
    assert go(tmp_path / "a", check("c", "flashinfer-loads", **given)).results[0].message == "norm"
    (package / "core.py").write_text(f"from flashinfer.jit import env\n{code.replace('kept.append', '')}")
    report = go(tmp_path / "b", check("c", "flashinfer-loads", **given))
    assert report.results[0].status == "fail"
    assert "norm was loaded from elsewhere" in report.results[0].message
    module.unlink()
    assert "has no module" in go(tmp_path / "c", check("c", "flashinfer-loads", **given)).results[0].message
