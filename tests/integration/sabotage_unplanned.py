"""Faults in what runs, is loaded, or is hidden in an image besides what is planned; see test_smoke_sabotage."""

from __future__ import annotations

import gzip
import tarfile
from base64 import urlsafe_b64encode
from dataclasses import replace
from hashlib import sha256

from tests.integration.sabotage import Broken, Cases
from tests.integration.sabotage_project import SITE
from tests.integration.sabotage_secrets import token
from tests.support.images import Member, elf, link, program

case = UNPLANNED = Cases()


# --- what runs, or is loaded, besides what is planned


@case("image-preloads", "/etc/ld.so.preload")
def preload_file(b: Broken) -> None:
    b.add({"etc/ld.so.preload": b"/opt/x.so\n"})


@case("image-preloads", "the variable LD_PRELOAD")
def preload_variable(b: Broken) -> None:
    b.env("LD_PRELOAD", "/opt/x.so")


@case("image-preloads", "the variable PYTHONPATH")
def path_of_python(b: Broken) -> None:
    b.env("PYTHONPATH", "/opt/other")


@case("image-settings", "the variable CUDA_VISIBLE_DEVICES is '-1'")
def devices_of_cuda(b: Broken) -> None:
    b.env("CUDA_VISIBLE_DEVICES", "-1")


@case("image-settings", "the volume /opt/nccl covers /opt/nccl")
def volume_over_our_folders(b: Broken) -> None:
    b.settings["Volumes"] = {"/opt/nccl": {}}


@case("image-settings", "the user nobody-here is not in /etc/passwd")
def unknown_user(b: Broken) -> None:
    b.settings["User"] = "nobody-here"


@case("image-settings", "Healthcheck is set")
def check_of_health(b: Broken) -> None:
    b.settings["Healthcheck"] = {"Test": ["CMD", "/opt/x"]}


@case("image-mapped image-records", "libmissing.so.1 is not in the image")
def library_that_nothing_provides(b: Broken) -> None:
    path = f"{SITE}/torch/lib/libtorch_cuda.so"
    needed = ["libnccl.so.2", "libc.so.6", "libmissing.so.1"]
    b.edit("wheels-torch")[path] = Member(elf(needed=needed, rpath="$ORIGIN/../../nvidia/nccl/lib"))


@case("image-mapped image-libraries", "is mapped in place of")
def second_copy_of_a_library(b: Broken) -> None:
    libc = b.whole.members("root")["usr/lib/aarch64-linux-gnu/libc.so.6"]
    b.add({"opt/lib/libc.so.6": libc, "etc/ld.so.conf.d/000-a.conf": b"/opt/lib\n"})


@case("image-imports", f"in no RECORD: /{SITE}/start.pth")
def pth_file(b: Broken) -> None:
    b.add({f"{SITE}/start.pth": b"import os\n"})


@case("image-imports", f"/{SITE}/sitecustomize.py")
def sitecustomize(b: Broken) -> None:
    b.add({f"{SITE}/sitecustomize.py": b"import os\n"})


@case("image-imports", "torch.egg-link")
def egg_link(b: Broken) -> None:
    b.add({f"{SITE}/torch.egg-link": b"/opt/torch\n.\n", "opt/torch/torch/__init__.py": b""})


@case("image-imports", f"/{SITE}/a.pth is no small file")
def path_file_that_is_a_link(b: Broken) -> None:
    b.add({f"{SITE}/a.pth": link("/nowhere"), f"{SITE}/long.pth": b"#" * 70_000})


@case("image-imports", f"/{SITE}/__editable__.tool-1.pth adds /opt/src to sys.path")
def editable_install(b: Broken) -> None:
    files = {
        "__editable__.tool-1.pth": b"# by setuptools\n/opt/src\n",
        "tool-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tool\nVersion: 1\n",
    }
    hashes = {name: urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=") for name, data in files.items()}
    record = "".join(f"{name},sha256={hashes[name]},{len(data)}\n" for name, data in files.items())
    files["tool-1.dist-info/RECORD"] = f"{record}tool-1.dist-info/RECORD,,\n".encode()
    b.add({f"{SITE}/{name}": data for name, data in files.items()})


@case("image-imports", "usercustomize.py")
def usercustomize(b: Broken) -> None:
    b.add({"usr/local/lib/python3.13/usercustomize.py": b"import os\n"})


@case("image-imports", f"/{SITE}/json.py")
def module_that_no_distribution_has(b: Broken) -> None:
    b.add({f"{SITE}/json.py": b"import os\n"})


@case("image-programs", "/usr/local/bin/python3 is in PATH before /usr/bin/python3")
def another_interpreter_first(b: Broken) -> None:
    b.add({"usr/local/bin/python3": program(elf())})


@case("image-programs", "ends with a carriage return")
def script_with_other_line_ends(b: Broken) -> None:
    b.add({"usr/local/bin/tool": program(b"#!/bin/sh\r\necho\r\n")})


@case("image-programs", "is run by /usr/bin/perl9")
def script_without_its_interpreter(b: Broken) -> None:
    b.add({"usr/local/bin/tool": program(b"#!/usr/bin/perl9 -w\n")})


@case("image-records image-imports", "soundfile-0.13.1.dist-info/RECORD does not exist")
def record_missing(b: Broken) -> None:
    """Without it, nothing says that the files belong to the distribution."""
    b.edit("audio").pop(f"{SITE}/soundfile-0.13.1.dist-info/RECORD")


@case("image-records", "vllm/__init__.py has another content than RECORD says")
def changed_file_of_the_same_size(b: Broken) -> None:
    tree = b.edit("wheels-torch")
    path = f"{SITE}/vllm/__init__.py"
    tree[path] = replace(tree[path], data=tree[path].data.replace(b"main", b"evil"))


@case("image-imports image-records", "METADATA says soundfile 0.99.1")
def metadata_that_contradicts_its_folder(b: Broken) -> None:
    tree = b.edit("audio")
    path = f"{SITE}/soundfile-0.13.1.dist-info/METADATA"
    tree[path] = replace(tree[path], data=tree[path].data.replace(b"Version: 0.13.1", b"Version: 0.99.1"))


@case("image-mapped", "the loader of /usr/bin/python3.13, is not a program")
def loader_that_cannot_be_executed(b: Broken) -> None:
    tree = b.edit("root")
    path = "usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1"
    tree[path] = replace(tree[path], mode=0o644)


@case("image-mapped", "/libexpat.so.1 is not in the image where the loader looks for what /usr/bin/python3.13 needs")
def library_of_the_interpreter_gone(b: Broken) -> None:
    tree = b.edit("root")
    for path in [path for path in tree if "libexpat.so" in path]:
        del tree[path]


@case("image-starts", "/proc is a file: no container starts")
def file_in_place_of_a_folder_of_the_kernel(b: Broken) -> None:
    b.edit("root")["proc"] = Member()


# --- kinds of files


@case("image-kinds", "/usr/lib/aarch64-linux-gnu cannot be entered by every user")
def folder_of_libraries_that_only_root_enters(b: Broken) -> None:
    tree = b.edit("root")
    path = "usr/lib/aarch64-linux-gnu"
    tree[path] = replace(tree[path], mode=0o700)


@case("image-kinds", "has the attribute security.capability")
def capability(b: Broken) -> None:
    b.add({"usr/local/bin/tool": Member(elf(), 0o755, pax=(("SCHILY.xattr.security.capability", "x"),))})


@case("image-kinds", "/opt/null is a char")
def device(b: Broken) -> None:
    b.add({"opt/null": Member(type=tarfile.CHRTYPE)})


@case("image-kinds", "differ in case alone")
def names_that_differ_in_case(b: Broken) -> None:
    b.add({"opt/a/Tool": b"1", "opt/a/tool": b"2"})


@case("image-kinds", "/opt/model.json (0600) can be read by its owner only")
def file_that_only_root_reads(b: Broken) -> None:
    b.add({"opt/model.json": Member(b"{}", 0o600)})


# --- secrets in other forms


@case("image-no-secrets", "a Hugging Face token in /opt/a.txt")
def token_in_utf16(b: Broken) -> None:
    b.add({"opt/a.txt": ("token = " + token().decode()).encode("utf-16")})


@case("image-no-secrets", "a Hugging Face token in /opt/a.gz")
def token_in_a_compressed_file(b: Broken) -> None:
    b.add({"opt/a.gz": gzip.compress(b"token = " + token())})


@case("image-no-secrets", "a Hugging Face token in /opt/a.json")
def token_in_a_large_file(b: Broken) -> None:
    b.add({"opt/a.json": b"[" + b'"word", ' * 600_000 + b'"' + token() + b'"]'})


@case("image-no-secrets", "a Hugging Face token in the name of a file")
def token_in_a_name(b: Broken) -> None:
    b.add({f"opt/cache/{token().decode()}": b""})
