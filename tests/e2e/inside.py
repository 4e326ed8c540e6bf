"""The program that runs inside the image, as a user without a name or home: prints one JSON object."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

found: dict[str, object] = {"uid": os.getuid()}

if "metadata" in sys.argv:
    import ssl

    names = {
        (item.metadata["Name"] or "").lower().replace("_", "-").replace(".", "-")
        for item in importlib.metadata.distributions()
    }
    found["distributions"] = sorted(names)
    found["authorities"] = len(ssl.create_default_context().get_ca_certs())

if "triton" in sys.argv:
    # The driver is what NVIDIA's runtime injects, libcuda.so.1 and the link to it that linkers look for; here a stub
    # with the same symbols replaces it.
    import ctypes

    from triton.backends.nvidia import driver

    source = Path(driver.__file__).with_name("driver.c").read_text()
    symbols = sorted(set(re.findall(r"\bcu[A-Z]\w+(?=\()", source)))
    folder = Path(tempfile.mkdtemp())
    (folder / "stub.c").write_text("".join(f"int {name}() {{ return 0; }}\n" for name in symbols))
    library = folder / "libcuda.so.1"
    argv = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, folder / "stub.c"]
    subprocess.run(argv, check=True)
    (folder / "libcuda.so").symlink_to(library)
    os.environ["TRITON_LIBCUDA_PATH"] = os.environ["LIBRARY_PATH"] = str(folder)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    found["triton"] = callable(driver.CudaUtils().load_binary)

if "flashinfer" in sys.argv:
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "12.1a"
    from flashinfer.jit.page import gen_page_module

    spec = gen_page_module()
    spec.build(verbose=False)
    library = Path(spec.jit_library_path)
    data = library.read_bytes()
    found["flashinfer"] = [str(library), data[:4] == b"\x7fELF" and b".nv_fatbin" in data]
    found["gencode"] = sorted(set(re.findall(r",code=(\w+)", Path(spec.ninja_path).read_text())))


def nccl_version(path: str) -> int:
    """What a mapped NCCL answers; from 2.9 on major * 10000 + minor * 100 + patch."""
    import ctypes

    version = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
    return version.value


def nccl_in_memory() -> list[str]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in maps if "libnccl" in line})


if "nccl" in sys.argv:
    # The file that torch's DT_RPATH leads to, without the minutes that importing torch takes.
    import ctypes

    (place,) = [item for item in map(Path, sys.path) if (item / "nvidia/nccl/lib").is_dir()]
    # Our NCCL takes the CUDA runtime that its process has loaded: torch does this, too.
    (runtime,) = place.glob("nvidia/cu13/lib/libcudart.so.1[0-9]")
    ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(place / "nvidia/nccl/lib/libnccl.so.2"))
    found["nccl_of_the_wheel"] = nccl_in_memory()
    found["nccl_of_the_wheel_version"] = nccl_version(nccl_in_memory()[0])

if "audio" in sys.argv:
    import av
    import scipy
    import soundfile
    import soxr
    import torch

    found["torch"] = torch.__version__
    found["audio"] = [av.__version__, scipy.__version__, soundfile.__version__, soxr.__version__]
    found["nccl"] = nccl_in_memory()
    found["nccl_version"] = nccl_version(nccl_in_memory()[0])

if "vllm" in sys.argv:
    import vllm

    found["vllm"] = vllm.__version__

print("RESULT " + json.dumps(found))
