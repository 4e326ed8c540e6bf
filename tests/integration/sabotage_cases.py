"""Faults that the static tier finds; see test_smoke_sabotage."""

from __future__ import annotations

import random
from dataclasses import replace

from builder.digest import Digest
from builder.smoke.image.opened import LayerBlob
from tests.integration.sabotage import Broken, Cases
from tests.integration.sabotage_project import SITE
from tests.support.images import Member, elf, fatbin, folder, link, program

NCCL = "opt/nccl/lib/libnccl.so.2.29.7"
WHEELS = "wheels-libraries"
case = CASES = Cases()


# --- libraries and GPU code


@case("nccl-chosen image-mapped nothing-covered", "not the one below /opt/nccl/")
def wrong_libnccl_mapped(b: Broken) -> None:
    """Another libnccl at the path that torch loads, which one other layer may replace."""
    b.add({f"{SITE}/nvidia/nccl/lib/libnccl.so.2": elf(gpu=fatbin((2, 120, 0)))})


@case("nccl-chosen links nccl-library nccl-sm121 nccl-elf image-mapped", "where the loader looks")
def nccl_link_dangling(b: Broken) -> None:
    """The target of the link is missing: every check that follows it fails."""
    b.edit("nccl").pop(NCCL)


@case("links", "/opt/other -> nowhere")
def symlink_dangling(b: Broken) -> None:
    b.add({"opt/other": link("nowhere")})


@case("image-elf-ours image-records", "msgspec")
def x86_library(b: Broken) -> None:
    tree = b.edit(WHEELS)
    path = next(path for path in tree if "msgspec" in path and path.endswith(".so"))
    # The same size, so that the wheel's record still fits.
    data = bytearray(tree[path].data)
    data[18:20] = (62).to_bytes(2, "little")
    tree[path] = replace(tree[path], data=bytes(data))


@case("image-preloads nccl-elf image-elf-ours nccl-chosen image-mapped", "x86-64")
def nccl_for_x86(b: Broken) -> None:
    """Checks read this file: of its layer, of every library, of the loader, which skips it, and of what names it."""
    b.edit("nccl")[NCCL] = program(elf(machine=62, gpu=fatbin((2, 121, 0))))


@case("nccl-sm121", "no sm_121 code")
def nccl_without_sm_121(b: Broken) -> None:
    b.edit("nccl")[NCCL] = program(elf(soname="libnccl.so.2", gpu=fatbin((2, 90, 0), (2, 120, 0), (1, 120, 0))))


@case("image-elf-ours image-records", "it ends before its last section")
def truncated_library(b: Broken) -> None:
    """The wheel's RECORD has the file's size."""
    tree = b.edit(WHEELS)
    path = next(path for path in tree if "torchaudio" in path and path.endswith(".so"))
    tree[path] = replace(tree[path], data=tree[path].data[: len(tree[path].data) // 2])


@case("image-symbol-versions", "GLIBC_2.99")
def glibc_too_new(b: Broken) -> None:
    versions = {"libc.so.6": ["GLIBC_2.17", "GLIBC_2.99"]}
    b.edit("nccl")[NCCL] = program(elf(gpu=fatbin((2, 121, 0)), versions=versions))


@case("image-symbol-versions", "GLIBCXX_3.4.99")
def libstdcxx_too_new(b: Broken) -> None:
    b.add({"opt/x/libx.so": elf(versions={"libstdc++.so.6": ["GLIBCXX_3.4.29", "GLIBCXX_3.4.99"]})})


@case("image-symbol-versions", "libstdc++.so.6 is not in the image")
def libstdcxx_gone(b: Broken) -> None:
    tree = b.edit("root")
    for path in [path for path in tree if "libstdc++.so.6" in path]:
        del tree[path]


@case("ptxas-chosen", "does not know sm_121a")
def ptxas_too_old(b: Broken) -> None:
    b.edit("cuda")["usr/local/cuda/bin/ptxas"] = program(elf(more=b"release 12.8, V12.8.93\0sm_120a\0"))


@case("ptxas-chosen", "(12.9.1), which does not know sm_121a")
def ptxas_without_the_variant(b: Broken) -> None:
    """It knows sm_121, but not sm_121a, which Triton requests."""
    b.edit("cuda")["usr/local/cuda/bin/ptxas"] = program(elf(more=b"release 12.9, V12.9.1\0sm_121\0sm_120a\0"))


@case("ptxas-chosen ptxas-file", "cannot be executed")
def ptxas_without_its_mode(b: Broken) -> None:
    """Triton would then fall back to its own, which cannot be executed either."""
    tree = b.edit("cuda")
    tree["usr/local/cuda/bin/ptxas"] = replace(tree["usr/local/cuda/bin/ptxas"], mode=0o644)
    wheels = b.edit("wheels-torch")
    own = f"{SITE}/triton/backends/nvidia/bin/ptxas-blackwell"
    wheels[own] = replace(wheels[own], mode=0o644)


# --- Python


@case("audio-soundfile", "soundfile-*.dist-info is not in the image")
def missing_audio_wheel(b: Broken) -> None:
    tree = b.edit("audio")
    for path in [path for path in tree if "soundfile" in path]:
        del tree[path]


@case("nothing-covered", f"covers the file /{SITE}/vllm/__init__.py of wheels-torch")
def changed_base_package(b: Broken) -> None:
    b.add({f"{SITE}/vllm/__init__.py": b"patched = True\n"})


@case("image-records", "vllm/__init__.py has 15 bytes, not 16")
def changed_file_of_a_wheel(b: Broken) -> None:
    b.edit("wheels-torch")[f"{SITE}/vllm/__init__.py"] = Member(b"patched = True\n")


@case("image-records", "does not exist")
def file_of_a_wheel_gone(b: Broken) -> None:
    b.edit("audio").pop(f"{SITE}/soundfile.py")


@case("image-distributions vllm-version image-records image-imports", "vllm: 0.20.0")
def two_versions_of_a_distribution(b: Broken) -> None:
    """The check of vLLM's version finds both, too."""
    b.add({f"{SITE}/vllm-0.21.0.dist-info/METADATA": b"Name: vllm\nVersion: 0.21.0\n"})


@case("image-vllm-env", "vLLM 0.20.0 does not read VLLM_MOE_BACKEND")
def variable_that_the_version_ignores(b: Broken) -> None:
    b.env("VLLM_MOE_BACKEND", "marlin")


@case("image-no-bytecode", "soundfile.cpython-313.pyc")
def bytecode(b: Broken) -> None:
    b.add({f"{SITE}/__pycache__/soundfile.cpython-313.pyc": b"\xf3\x0d\r\n"})


# --- files, modes, owners


@case("image-no-setuid", "/usr/local/bin/helper (4755")
def setuid_file(b: Broken) -> None:
    b.add({"usr/local/bin/helper": Member(elf(), 0o4755)})


@case("image-no-setuid", "/usr/local/bin/helper (2755")
def setgid_file(b: Broken) -> None:
    b.add({"usr/local/bin/helper": Member(elf(), 0o2755)})


@case("image-no-world-writable", "/opt/shared (0777)")
def world_writable_folder(b: Broken) -> None:
    b.add({"opt/shared": folder(0o777)})


@case("image-owners", "/opt/data (1000:0, extra)")
def wrong_owner(b: Broken) -> None:
    b.add({"opt/data": Member(b"x", uid=1000)})


@case("image-parents-0755", "lacks /opt/deep")
def parent_missing(b: Broken) -> None:
    b.add({"opt": folder(), "opt/deep/file": b"x"}, parents=False)


@case("image-kinds image-parents-0755", "/opt as 0700")
def parent_locked(b: Broken) -> None:
    b.add({"opt": folder(0o700), "opt/file": b"x"})


@case("image-places nothing-covered image-mapped", "has /lib")
def file_under_a_base_symlink(b: Broken) -> None:
    """/lib is a link of the base: the folder replaces it, and hides the loader."""
    b.add({"lib/aarch64-linux-gnu/libx.so": elf()})


@case("image-places", "removes /etc/debian_version")
def whiteout(b: Broken) -> None:
    b.add({"etc/.wh.debian_version": b""})


@case("image-starts image-programs image-records", "/usr/bin/python9 is not in the image")
def wrong_interpreter(b: Broken) -> None:
    tree = b.edit("wheels-torch")
    data = tree["usr/local/bin/vllm"].data.replace(b"python3", b"python9", 1)
    tree["usr/local/bin/vllm"] = replace(tree["usr/local/bin/vllm"], data=data)


# --- images that somebody derived from ours


@case("image-places image-starts image-programs interpreter", "removes /usr/bin/python3")
def python_removed_by_a_run(b: Broken) -> None:
    b.add({"usr/bin/.wh.python3": b""}, created_by="RUN /bin/sh -c rm /usr/bin/python3")


@case("image-no-setuid", "/usr/bin/helper (4755")
def setuid_by_a_run(b: Broken) -> None:
    b.add({"usr/bin/helper": Member(elf(), 0o4755)}, created_by="RUN /bin/sh -c make install")


# --- configuration


@case("image-platform", "linux/amd64, not linux/arm64")
def wrong_platform(b: Broken) -> None:
    b.config["architecture"] = "amd64"


@case("entrypoint", "expected ['someone/small', '--port', '8000']")
def wrong_entrypoint_family(b: Broken) -> None:
    """As for bases whose entrypoint passes everything through: `vllm serve` would be in the command twice."""
    b.settings["Cmd"] = ["vllm", "serve", *b.settings["Cmd"]]


@case("image-starts env-path", "vllm is not in the image in /usr/local/cuda/bin:/usr/bin")
def missing_path_entry(b: Broken) -> None:
    """PATH differs from the recipe's, and the entrypoint is not found."""
    b.env("PATH", "/usr/local/cuda/bin:/usr/bin")


@case("marlin-atomic-add env-vllm-marlin-use-atomic-add", "is not set")
def variable_missing(b: Broken) -> None:
    """Checked by the layer and by the plan."""
    b.env("VLLM_MARLIN_USE_ATOMIC_ADD", None)


@case("label-org.builder.recipe", "is not set")
def label_missing(b: Broken) -> None:
    del b.settings["Labels"]["org.builder.recipe"]


@case("image-config", "7 layers, but 6 diff_ids")
def diff_id_missing(b: Broken) -> None:
    b.config["rootfs"]["diff_ids"].pop()


@case("image-config", "set twice: PATH")
def variable_twice(b: Broken) -> None:
    b.settings["Env"] = [*b.settings["Env"], b.settings["Env"][0]]


# --- blobs


@case("nccl-is-small", "its budget is 1")
def layer_over_its_budget(b: Broken) -> None:
    b.edit("nccl")["opt/nccl/share"] = Member(random.Random(1).randbytes(2_000_000))


@case("image-layer-size", "10 is the limit")
def layer_above_10_gb(b: Broken) -> None:
    """Only its size in the manifest is used: the blob itself is absent, like a base's."""
    b.config["history"].append({"created_by": "RUN download"})
    b.config["rootfs"]["diff_ids"].append("sha256:" + "0" * 64)
    b.layers.append(LayerBlob(Digest.from_hex("0" * 64), 10_500_000_000, b.where / "none"))


@case("image-blobs", "hashes to sha256:")
def blob_of_another_digest(b: Broken) -> None:
    b.layers[-1] = replace(b.layers[-1], digest=Digest.from_hex("1" * 64))


@case("image-blobs", "not to the diff_id")
def diff_id_of_another_layer(b: Broken) -> None:
    b.config["rootfs"]["diff_ids"][0] = "sha256:" + "0" * 64


@case("image-blobs", "its media type is")
def media_type_of_another_compression(b: Broken) -> None:
    b.layers[-1] = replace(b.layers[-1], media_type="application/vnd.oci.image.layer.v1.tar+gzip")
