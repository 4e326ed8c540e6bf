"""Code that runs in place of other code: beside scripts, in folders that the loader makes up, named by variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.smoke.image.opened import open_image
from builder.smoke.static.run import check_image, run_static
from tests.support.images import SITE, Files, distribution, elf, folder, layout, ld_cache, link, program

SCRIPT = program(b"#!/usr/bin/python3\n")
ROOT: Files = {"usr/bin/python3": program(elf()), "usr/bin/vllm": SCRIPT}
PATH = "PATH=/usr/bin"
NCCL: Files = {
    **distribution("torch", "2.9.0", {f"{SITE}/torch/lib/libtorch_cuda.so": elf()}),
    f"{SITE}/torch/lib/libtorch_cuda.so": elf(needed=["libnccl.so.2"], rpath="/opt/nccl/lib"),
    "opt/nccl/lib/libnccl.so.2": elf(),
    "opt/other/libnccl.so.2": elf(),
}

SHADOWS: dict[str, tuple[list[Files], dict[str, Any], set[str], str]] = {
    # name: layers, settings, the checks that fail, a message of one
    "beside a script, by another name of its folder": (
        [ROOT, {"usr/bin/json.py": b""}],
        {"Env": ["PATH=/usr//bin"]},
        {"imports"},
        "/usr/bin/json.py",
    ),
    "in the working directory, by a link": (
        [{**ROOT, "srv/here": link("/opt/there"), "opt/there": folder()}, {"opt/there/vllm/__init__.py": b""}],
        {"Env": [PATH], "WorkingDir": "/srv/here"},
        {"imports"},
        "/opt/there/vllm/__init__.py",
    ),
    "beside the script that a link in PATH leads to": (
        [ROOT, {"usr/local/bin/vllm-bench": link("/opt/app/bench"), "opt/app/bench": SCRIPT, "opt/app/json.py": b""}],
        {"Env": [f"{PATH}:/usr/local/bin"]},
        {"imports"},
        "/opt/app/json.py",
    ),
    "a link to another file than the recorded one": (
        [
            ROOT,
            {
                **distribution("vllm", "0.20.0", {f"{SITE}/vllm/a.py": b"good"}),
                f"{SITE}/vllm/a.py": link("/opt/a.py"),
                "opt/a.py": b"evil",
            },
        ],
        {"Env": [PATH]},
        {"records"},
        "vllm/a.py is a symlink",
    ),
    "a library of the working directory": (
        [ROOT, {"opt/lib/a.so": elf(needed=["libx.so.1"], runpath="$ORIGIN:"), "srv/libx.so.1": elf()}],
        {"Env": [PATH], "WorkingDir": "/srv"},
        {"elf-ours"},
        "/opt/lib/a.so loads from '', which is the working directory /srv: libx.so.1",
    ),
    "a library by a relative folder": (
        [ROOT, {"opt/lib/a.so": elf(rpath="opt/good")}],
        {"Env": [PATH]},
        {"elf-ours"},
        "'opt/good'",
    ),
    "a folder that the loader names": (
        [ROOT, {"opt/lib/a.so": elf(runpath="/opt/$LIB")}],
        {"Env": [PATH]},
        {"elf-ours"},
        "'/opt/$LIB'",
    ),
    "the same by a variable": (
        [ROOT],
        {"Env": [PATH, "LD_LIBRARY_PATH=/opt/${PLATFORM}"]},
        {"preloads"},
        "/opt/${PLATFORM}",
    ),
    "a folder for processors": (
        [ROOT, {"opt/lib/libx.so.1": elf(), "opt/lib/tls/atomics/libx.so.1": elf()}],
        {"Env": [PATH]},
        {"libraries"},
        "/opt/lib/tls/atomics/libx.so.1 is loaded in place of /opt/lib/libx.so.1",
    ),
    "a cache that gives another name": (
        [{**ROOT, "opt/liby.so.1": elf(), "etc/ld.so.cache": ld_cache({"libx.so.1": "/opt/liby.so.1"})}],
        {"Env": [PATH]},
        {"libraries"},
        "libx.so.1",
    ),
    "a library by vLLM's variable": (
        [{**ROOT, "opt/evil.so": elf()}],
        {"Env": [PATH, "VLLM_CUDART_SO_PATH=/opt/evil.so"]},
        {"preloads"},
        "VLLM_CUDART_SO_PATH",
    ),
    "any variable with a library": (
        [{**ROOT, "opt/evil.so": elf()}],
        {"Env": [PATH, "ANY_LIST=x:/opt/evil.so"]},
        {"preloads"},
        "ANY_LIST, which names /opt/evil.so",
    ),
    "any variable with a program": (
        [{**ROOT, "opt/evil": SCRIPT}],
        {"Env": [PATH, "ANY_TOOL=/opt/../opt/evil"]},
        {"preloads"},
        "ANY_TOOL",
    ),
    "a plugin of a compiler": (
        [ROOT],
        {"Env": [PATH, "LLVM_PASS_PLUGIN_PATH=/models/x.so"]},
        {"preloads"},
        "LLVM_PASS_PLUGIN_PATH",
    ),
    "another home": (
        [{**ROOT, "opt/home/.cache/vllm/a.so": elf()}],
        {"Env": [PATH, "HOME=/opt/home"]},
        {"preloads"},
        "/opt/home/.cache/vllm/a.so",
    ),
    "settings of NCCL in another home": (
        [{**ROOT, "opt/home/.nccl.conf": b"NCCL_DEBUG=INFO\n"}],
        {"Env": [PATH, "HOME=/opt/home"]},
        {"nccl-conf"},
        "/opt/home/.nccl.conf",
    ),
    "a server of others": (
        [ROOT],
        {"Env": [PATH, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://203.0.113.1"]},
        {"settings"},
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    ),
}


@pytest.mark.parametrize("case", SHADOWS.values(), ids=SHADOWS)
def test_code_in_place_of_other_code(tmp_path: Path, case: tuple[list[Files], dict[str, Any], set[str], str]) -> None:
    layers, settings, kinds, message = case
    failed = [
        row
        for row in run_static(layout(tmp_path / "image", list(layers), **settings), None, []).results
        if row.status == "fail"
    ]
    assert {row.kind for row in failed} == kinds, failed
    assert any(message in row.message for row in failed), failed


ON_A_BASE = {
    # a variable or field above the base: the check that fails
    "BASH_ENV=/opt/x.sh": "preloads",
    "VLLM_CUDART_SO_PATH=/opt/x.so": "preloads",
    "CC=/opt/cc": "preloads",
    "https_proxy=http://203.0.113.1": "settings",
    "VLLM_SERVER_DEV_MODE=1": "settings",
    "": "settings",
}


@pytest.mark.parametrize("word", ON_A_BASE)
def test_what_is_not_the_settings_of_the_base(tmp_path: Path, word: str) -> None:
    of_base = {"Env": [PATH, "BASH_ENV=/etc/base.sh", "CC=/usr/bin/gcc"], "Shell": ["/bin/sh"]}
    changed = {**of_base, "Env": [*of_base["Env"], word]} if word else {**of_base, "Shell": ["/opt/sh"]}
    if word.partition("=")[0] in ("BASH_ENV", "CC"):
        changed["Env"] = [PATH, word]

    def failed(settings: dict[str, Any], base: dict[str, Any] | None) -> set[str]:
        where = tmp_path / f"{settings is changed}-{base is None}"
        image = open_image(layout(where, [ROOT, {"opt/a": b""}], **settings))
        rows = check_image(image, [], base=1, settings=base).results
        return {row.kind for row in rows if row.status == "fail" and row.kind in ("preloads", "settings")}

    assert failed(changed, of_base) == {ON_A_BASE[word]}
    assert failed(of_base, of_base) == failed(changed, None) == set()


def nccl_of_vllm(where: Path, named: str) -> str:
    env = [PATH, f"VLLM_NCCL_SO_PATH={named}"]
    results = run_static(layout(where, [ROOT, NCCL], Env=env), None, []).results
    return next(row.message for row in results if row.kind == "preloads")


def test_vllm_may_name_the_library_that_torch_loads(tmp_path: Path) -> None:
    assert nccl_of_vllm(tmp_path / "1", "/opt/nccl/lib/libnccl.so.2") == "none"
    assert "which names /opt/other/libnccl.so.2" in nccl_of_vllm(tmp_path / "2", "/opt/other/libnccl.so.2")


def test_a_library_as_nvidia_ships_it_passes(tmp_path: Path) -> None:
    library = elf(needed=["libx.so.1"], runpath="$ORIGIN:")
    layers: list[Files] = [ROOT, {"opt/lib/a.so": library, "opt/lib/libx.so.1": elf()}]
    results = run_static(layout(tmp_path, layers, Env=[PATH]), None, []).results
    assert next(row.status for row in results if row.kind == "elf-ours") == "pass"


def test_a_program_that_is_in_path_may_be_named(tmp_path: Path) -> None:
    results = run_static(layout(tmp_path, [ROOT], Env=[PATH, "ANY_TOOL=/usr/bin/python3"]), None, []).results
    assert next(row.message for row in results if row.kind == "preloads") == "none"
