"""Faults that no plan is needed to see: what decides what runs, in images with a layer or a setting more."""

from __future__ import annotations

import io
import lzma
import zipfile
from dataclasses import replace

from tests.integration.sabotage import Broken, Cases
from tests.integration.sabotage_project import SITE
from tests.support.images import Member, elf, fatbin, ld_cache, program

case = HIDDEN = Cases()
LIB = "usr/lib/aarch64-linux-gnu"


def member(b: Broken, layer: str, path: str) -> Member:
    return b.whole.members(layer)[path]


# --- the loader


@case("image-libraries nothing-covered", "/srv/lib/libz.so.1 is loaded in place of")
def folder_included_from_elsewhere(b: Broken) -> None:
    conf = b"include /srv/conf/*.conf\n"
    zlib = member(b, "root", f"{LIB}/libz.so.1.3.1")
    b.add({"etc/ld.so.conf": conf, "srv/conf/x.conf": b"/usr/lib\n/srv/lib\n", "srv/lib/libz.so.1": zlib})


@case("image-libraries", "/srv/lib/libstdc++.so.6 is loaded in place of")
def cache_of_the_loader(b: Broken) -> None:
    path = "srv/lib/libstdc++.so.6"
    copy = member(b, "root", f"{LIB}/libstdc++.so.6.0.33")
    b.add({"etc/ld.so.cache": ld_cache({"libstdc++.so.6": f"/{path}"}), path: copy})


@case("image-preloads", "the working directory, by LD_LIBRARY_PATH")
def empty_folder_of_the_loader(b: Broken) -> None:
    b.env("LD_LIBRARY_PATH", ":/opt/nccl/lib")


@case("image-preloads", "GCONV_PATH, the variable PYTHONUSERBASE, the variable CUDA_INJECTION64_PATH")
def other_variables_that_load_code(b: Broken) -> None:
    b.env("GCONV_PATH", "/srv/gconv")
    b.env("PYTHONUSERBASE", "/srv/user")
    b.env("CUDA_INJECTION64_PATH", "/srv/inject.so")


@case("image-libraries", "belongs to the driver or is loaded by its name")
def libraries_of_the_driver(b: Broken) -> None:
    b.add({f"{LIB}/libnvidia-ml.so.1": elf(), "usr/local/cuda/compat/libcuda.so.1": elf()})


@case("image-libraries", f"/{LIB}/libnccl-net.so")
def plugin_of_nccl(b: Broken) -> None:
    b.add({f"{LIB}/libnccl-net.so": elf()})


@case("image-mapped", "/usr/local/lib/libtorch_cuda.so is a second copy of")
def second_torch(b: Broken) -> None:
    b.add({"usr/local/lib/libtorch_cuda.so": elf()})


@case("image-elf-ours", "loads from '/tmp/lib', where everyone may write")
def library_path_that_everyone_may_write(b: Broken) -> None:
    b.add({"opt/x/libx.so": elf(runpath="/tmp/lib")})


@case("image-settings image-kinds", "cannot be loaded by every user")
def library_that_only_root_loads(b: Broken) -> None:
    path = f"{LIB}/libstdc++.so.6.0.33"
    b.settings["User"] = "nobody"
    b.edit("root")[path] = replace(member(b, "root", path), mode=0o600)


# --- Python and scripts


@case("image-imports", "/srv/torch/__init__.py")
def modules_before_the_packages(b: Broken) -> None:
    b.settings["WorkingDir"] = "/srv"
    zipped = {"usr/lib/python313.zip": b"PK", "usr/lib/python3.13/json/x.py": b""}
    b.add(
        {"usr/local/bin/json.py": b"", "srv/torch/__init__.py": b"", "usr/bin/pyvenv.cfg": b"home = /srv\n", **zipped}
    )


@case("nothing-covered", "extra covers the file /usr/local/bin/vllm of wheels-torch")
def another_script_in_place_of_the_entrypoint(b: Broken) -> None:
    b.add({"usr/local/bin/vllm": program(b"#!/usr/bin/python3\nimport other\n")})


@case("image-programs", "is run by /usr/local/bin/b, which everybody can execute nowhere")
def scripts_that_run_each_other(b: Broken) -> None:
    b.add({"usr/local/bin/a": program(b"#!/usr/local/bin/b\n"), "usr/local/bin/b": program(b"#!/usr/local/bin/a\n")})


# --- the configuration


@case("image-settings", "the volume /opt covers /opt")
def volume(b: Broken) -> None:
    b.settings["Volumes"] = {"/opt": {}}


@case("image-settings", "OnBuild runs commands in images on this one")
def fields_that_run_something(b: Broken) -> None:
    b.settings.update({"OnBuild": ["RUN /opt/x"], "Healthcheck": {"Test": ["CMD", "/opt/x"]}, "StopSignal": "SIGKILL"})


@case("image-settings", "the group render is not in /etc/group")
def group_that_does_not_exist(b: Broken) -> None:
    b.settings["User"] = "root:render"


@case("image-settings", "the working directory /usr/bin/python3.13 is no folder")
def working_directory_that_is_a_file(b: Broken) -> None:
    b.settings["WorkingDir"] = "/usr/bin/python3.13"


@case("image-settings", "the variable NVIDIA_REQUIRE_CUDA is 'cuda>=99.0'")
def variables_that_hide_the_gpu(b: Broken) -> None:
    b.env("NVIDIA_VISIBLE_DEVICES", "none")
    b.env("NVIDIA_REQUIRE_CUDA", "cuda>=99.0")


@case("image-settings env-path", "'bin', which is relative to the working directory, in PATH")
def relative_folder_in_path(b: Broken) -> None:
    b.env("PATH", "bin:/tmp:/usr/local/cuda/bin:/usr/local/bin:/usr/bin")


@case("image-settings label-org.builder.vllm.version", "is 0.19.1, vLLM is 0.20.0")
def label_of_another_vllm(b: Broken) -> None:
    b.settings["Labels"]["org.builder.vllm.version"] = "0.19.1"


@case("image-platform", "the image is for linux/arm64/v7")
def variant(b: Broken) -> None:
    b.config["variant"] = "v7"


# --- secrets and GPU code


@case("image-no-secrets", "a private key in /opt/a.bin")
def key_in_a_zip_in_xz(b: Broken) -> None:
    words = "".join(f"{number:x}+Q/z" for number in range(100, 160))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("empty", "")
        archive.writestr("key", f"-----BEGIN {'PRIVATE'} KEY-----\n{words}\n-----END {'PRIVATE'} KEY-----\n")
    b.add({"opt/a.bin": lzma.compress(file.getvalue())})


@case("image-gpu-code nccl-sm121 nothing-covered", "no code for a GB10: /opt/nccl/lib/libnccl.so.2.29.7 (sm_90a (1))")
def nccl_for_another_gpu(b: Broken) -> None:
    b.add({"opt/nccl/lib/libnccl.so.2.29.7": program(elf(needed=["libc.so.6"], gpu=fatbin((2, 90, 0x100000))))})


@case("image-gpu-code image-imports", "_C.abi3.so (compute_130 (1), sm_80 (1))")
def vllm_for_a_later_gpu(b: Broken) -> None:
    b.add({f"{SITE}/vllm/_C.abi3.so": elf(needed=["libc.so.6"], gpu=fatbin((2, 80, 0), (1, 130, 0)))})
