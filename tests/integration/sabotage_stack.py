"""Broken images: parts that are each in order and do not fit together."""

from __future__ import annotations

from tests.integration.sabotage import Broken, Cases
from tests.integration.sabotage_project import SITE
from tests.support.images import Member, elf, fatbin
from tests.support.wheels import record_hash

STACK = Cases()


def made(name: str, version: str) -> dict[str, Member | bytes]:
    """A distribution without files of its own."""
    info = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Name: {name}\nVersion: {version}\n".encode()
    row = f"{info.rpartition('/')[2]}/METADATA,{record_hash(metadata)},{len(metadata)}\n"
    return {f"{info}/METADATA": metadata, f"{info}/RECORD": row.encode()}


@STACK("image-cuda-release", "several releases of CUDA: 12.9 (nvidia-cuda-nvrtc-cu12 12.9.86), 13.0")
def two_releases_of_cuda(b: Broken) -> None:
    b.add({**made("nvidia-cuda-nvrtc-cu12", "12.9.86"), **made("nvidia-cuda-runtime", "13.0.96")})


@STACK("image-cuda-release", "13.0 (nvidia-cuda-runtime 13.0.96), 13.2 (/usr/local/cuda/include/cuda_runtime_api.h)")
def compiler_of_another_release(b: Broken) -> None:
    header = b"#define CUDART_VERSION  13020\n"
    b.add({"usr/local/cuda/include/cuda_runtime_api.h": header, **made("nvidia-cuda-runtime", "13.0.96")})


@STACK("image-cuda-release", "libcudart.so.12 is of CUDA 12")
def runtime_of_another_major_release(b: Broken) -> None:
    b.add({"opt/x/libcudart.so.12": elf(), **made("nvidia-cuda-runtime", "13.0.96")})


@STACK("image-ptx", "driver 580 compiles PTX up to 9.0, newer is /opt/x/kernels.so (PTX 9.2)")
def ptx_newer_than_the_driver(b: Broken) -> None:
    b.add({"opt/x/kernels.so": elf(gpu=fatbin((1, 120, 0), ptx=(9, 2)))})


@STACK("image-flashinfer", "flashinfer-cubin 0.6.8, flashinfer-python 0.7.0")
def kernels_of_another_flashinfer(b: Broken) -> None:
    b.add({**made("flashinfer-python", "0.7.0"), **made("flashinfer-cubin", "0.6.8")})


def compiling(b: Broken) -> None:
    b.add({"usr/local/cuda/bin/nvcc": Member(elf(), 0o755), **made("flashinfer-python", "0.7.0")})


@STACK("image-compile-jobs env-max-jobs image-planned", "MAX_JOBS is not set: FlashInfer starts an nvcc for each core")
def compilers_without_limit(b: Broken) -> None:
    compiling(b)
    b.env("MAX_JOBS", None)


@STACK("image-compile-jobs env-max-jobs image-planned", "MAX_JOBS is 200")
def compilers_without_end(b: Broken) -> None:
    compiling(b)
    b.env("MAX_JOBS", "200")


@STACK("image-compile-jobs image-planned", "FLASHINFER_NVCC_THREADS=4 multiplies")
def compilers_with_threads(b: Broken) -> None:
    compiling(b)
    b.env("FLASHINFER_NVCC_THREADS", "4")


@STACK("image-nccl-conf", "NCCL reads settings that no recipe shows: /etc/nccl.conf")
def settings_of_nccl(b: Broken) -> None:
    b.add({"etc/nccl.conf": b"NCCL_P2P_DISABLE=1\n"})


@STACK("image-nccl-conf image-planned", "NCCL_CONF_FILE=/opt/x/nccl.conf")
def settings_of_nccl_elsewhere(b: Broken) -> None:
    b.env("NCCL_CONF_FILE", "/opt/x/nccl.conf")


@STACK("image-driver image-planned", "in place of the host's driver the loader finds /opt/cuda/lib/stubs/libcuda.so")
def stub_of_the_driver_in_the_search_path(b: Broken) -> None:
    b.add({"opt/cuda/lib/stubs/libcuda.so": elf(soname="libcuda.so.1")})
    b.env("LD_LIBRARY_PATH", "/opt/cuda/lib/stubs")


@STACK("image-driver image-libraries", "in place of the host's driver the loader finds /usr/local/lib/libcuda.so.1")
def driver_in_the_image(b: Broken) -> None:
    b.add({"usr/local/lib/libcuda.so.1": elf(soname="libcuda.so.1")})
