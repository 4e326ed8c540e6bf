"""Every kind of static check, on a healthy image and on one broken in one way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.image.opened import open_image
from builder.smoke.report import Report
from builder.smoke.static.run import ALWAYS as EVERY
from builder.smoke.static.run import run_static
from tests.support.errors import fails
from tests.support.images import (
    SITE,
    SM_121,
    Member,
    elf,
    fatbin,
    folder,
    gb10,
    layout,
    link,
    program,
    tar,
)

SETTINGS = {
    "Env": ["PATH=/usr/bin", "VLLM_MARLIN_USE_ATOMIC_ADD=1"],
    "Labels": {"org.example.nccl": "2.29.7"},
    "Entrypoint": ["/usr/bin/env"],
    "Cmd": ["vllm", "serve", "model"],
}
NCCL = "/opt/nccl/lib/libnccl.so.2"
CUBIN = {"path": NCCL}
OLD_PTXAS = program(elf(more=b"release 12.8, V12.8.93\0sm_120a\0"))

Case = tuple[str, dict[str, Any]]

HEALTHY: list[Case] = [
    ("file", {"path": NCCL, "mode": "0644"}),
    ("file", {"path": "/opt/nccl", "type": "dir", "mode": "0755"}),
    ("file", {"path": f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "type": "symlink"}),
    ("file", {"path": "/bin/env", "executable": True}),
    ("symlink", {"path": f"/{SITE}/nvidia/nccl/lib/libnccl.so.2", "to": NCCL, "under": "/opt/nccl"}),
    ("no-dangling-links", {}),
    ("elf-machine", {"prefix": "/opt/nccl"}),
    ("cubin", CUBIN),
    ("torch-nccl", {}),
    ("ptxas", {}),
    ("env", {"name": "VLLM_MARLIN_USE_ATOMIC_ADD", "value": "1"}),
    ("env", {"name": "LD_PRELOAD", "absent": True}),
    ("env", {"name": "PATH", "starts": "/usr", "matches": "[/a-z]+"}),
    ("label", {"name": "org.example.nccl", "value": "2.29.7"}),
    ("entrypoint", {"entrypoint": ["/usr/bin/env"], "command": ["vllm", "serve"], "begins": True}),
    ("entrypoint", {"command": ["vllm", "serve", "model"]}),
    ("distribution", {"name": "vLLM", "version": "0.20.0"}),
    ("symbol-versions", {"path": NCCL}),
    ("no-setuid", {"allowed": ["/usr/bin/su"], "everywhere": True}),
]


def check(kind: str, args: dict[str, Any]) -> Check:
    return Check(id=kind, tier="static", kind=kind, args=args)


def report(where: Path, layers: list[Any], *cases: Case, settings: dict[str, Any] = SETTINGS, **more: Any) -> Report:
    image = layout(where / "image", layers, **settings)
    return run_static(image, None, [check(*case) for case in cases], **more)


def test_a_healthy_image_passes(tmp_path: Path) -> None:
    found = report(tmp_path, gb10(), *HEALTHY)
    assert [(result.id, result.message) for result in found.results if result.status != "pass"] == []
    assert len(found.results) == len(EVERY) + len(HEALTHY)
    assert found.digest == open_image(tmp_path / "image").digest


def torch(**parts: Any) -> bytes:
    return elf(**{"needed": ["libnccl.so.2"], "rpath": "$ORIGIN/../../nvidia/nccl/lib", **parts})


SITE_ = SITE.replace("/", "__")
BROKEN: list[tuple[str, Case, dict[str, Member | bytes | None], str]] = [
    ("gone", ("file", {"path": NCCL}), {"opt__nccl__lib__libnccl.so.2.29.7": None}, "not in the image"),
    ("empty", ("file", {"path": NCCL}), {"opt__nccl__lib__libnccl.so.2.29.7": b""}, "is empty"),
    (
        "mode",
        ("file", {"path": NCCL, "mode": "0644"}),
        {"opt__nccl__lib__libnccl.so.2.29.7": Member(b"x", 0o600)},
        "0600",
    ),
    ("folder", ("file", {"path": NCCL}), {"opt__nccl__lib__libnccl.so.2": folder()}, "is a dir, not a file"),
    ("not-a-link", ("file", {"path": NCCL, "type": "symlink"}), {"opt__nccl__lib__libnccl.so.2": b"x"}, "is a file"),
    ("not-executable", ("file", {"path": "/x", "executable": True}), {"x": Member(b"#!", 0o744)}, "0744"),
    ("copied", ("symlink", {"path": NCCL}), {"opt__nccl__lib__libnccl.so.2": elf()}, "is a file, not a link"),
    (
        "elsewhere",
        ("symlink", {"path": NCCL, "under": "/opt/nccl"}),
        {"opt__nccl__lib__libnccl.so.2": link("/usr/bin/env")},
        "leads to /usr/bin/env",
    ),
    ("other", ("symlink", {"path": NCCL, "to": "/usr/bin/env"}), {}, "not to /usr/bin/env"),
    ("dangling", ("no-dangling-links", {"prefix": "/opt"}), {"opt__x": link("nowhere")}, "/opt/x -> nowhere"),
    ("x86", ("elf-machine", {"prefix": "/opt"}), {"opt__nccl__lib__x.so": elf(machine=62)}, "x.so (x86-64)"),
    ("nothing", ("elf-machine", {"prefix": "/opt/gone"}), {}, "with an ELF file in it"),
    (
        "stock",
        ("cubin", CUBIN),
        {"opt__nccl__lib__libnccl.so.2.29.7": elf(gpu=fatbin((2, 120, 0), (1, 120, 0)))},
        "no sm_121 code: compute_120 (1), sm_120 (1)",
    ),
    ("no-gpu-code", ("cubin", CUBIN), {"opt__nccl__lib__libnccl.so.2.29.7": elf()}, "no GPU code"),
    ("wrong-suffix", ("cubin", {"path": NCCL, "archs": ["sm_121a"]}), {}, "no sm_121a code"),
    ("no-elf", ("cubin", CUBIN), {"opt__nccl__lib__libnccl.so.2.29.7": b"text"}, "damaged ELF"),
    (
        "wheel-nccl",
        ("torch-nccl", {}),
        {f"{SITE_}__nvidia__nccl__lib__libnccl.so.2": elf()},
        "not the one below /opt/nccl",
    ),
    ("x86-nccl", ("torch-nccl", {}), {"opt__nccl__lib__libnccl.so.2.29.7": elf(machine=62)}, "where the loader looks"),
    ("torch-static", ("torch-nccl", {}), {f"{SITE_}__torch__lib__libtorch_cuda.so": elf()}, "does not load libnccl"),
    (
        "no-torch",
        ("torch-nccl", {}),
        {f"{SITE_}__torch__lib__libtorch_cuda.so": None},
        "libtorch_cuda.so is not in the image",
    ),
    (
        "old-ptxas",
        ("ptxas", {}),
        {f"{SITE_}__triton__backends__nvidia__bin__ptxas-blackwell": OLD_PTXAS},
        "(12.8.93), which does not know sm_121a",
    ),
    ("no-ptxas", ("ptxas", {}), {f"{SITE_}__triton__backends__nvidia__bin__ptxas-blackwell": None}, "not in the image"),
    (
        "x86-ptxas",
        ("ptxas", {}),
        {f"{SITE_}__triton__backends__nvidia__bin__ptxas-blackwell": program(elf(machine=62))},
        "x86-64, not aarch64",
    ),
    (
        "ptxas-mode",
        ("ptxas", {}),
        {f"{SITE_}__triton__backends__nvidia__bin__ptxas-blackwell": Member(elf(), 0o644)},
        "cannot be executed",
    ),
    ("no-triton", ("ptxas", {}), {f"{SITE_}__triton-3.6.0.dist-info__METADATA": None}, "triton-*.dist-info is not"),
    ("env-missing", ("env", {"name": "NCCL_DEBUG"}), {}, "is not set"),
    ("env-value", ("env", {"name": "PATH", "value": "/bin"}), {}, "expected '/bin'"),
    ("env-starts", ("env", {"name": "PATH", "starts": "/opt"}), {}, "begin with '/opt'"),
    ("env-matches", ("env", {"name": "PATH", "matches": "/usr"}), {}, "does not match"),
    ("env-present", ("env", {"name": "PATH", "absent": True}), {}, "must not be set"),
    ("label", ("label", {"name": "org.example.nccl", "value": "2.28.9"}), {}, "expected '2.28.9'"),
    ("entrypoint", ("entrypoint", {"entrypoint": ["vllm", "serve"]}), {}, "the entrypoint is ['/usr/bin/env']"),
    ("command", ("entrypoint", {"command": ["serve"], "begins": True}), {}, "expected it to begin with ['serve']"),
    ("version", ("distribution", {"name": "vllm", "version": "0.20.1"}), {}, "vllm is 0.20.0, expected 0.20.1"),
    ("no-wheel", ("distribution", {"name": "soundfile"}), {}, "soundfile-*.dist-info is not"),
    (
        "twice",
        ("distribution", {"name": "vllm"}),
        {f"{SITE_}__vllm-0.21.0.dist-info__METADATA": b"x"},
        "more than once: 0.20.0, 0.21.0",
    ),
    (
        "glibc",
        ("symbol-versions", {"path": NCCL}),
        {"opt__nccl__lib__libnccl.so.2.29.7": elf(versions={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.39"]})},
        "needs GLIBC_2.39, which /usr/lib/aarch64-linux-gnu/libc.so.6 does not have",
    ),
    ("setuid", ("no-setuid", {"everywhere": True}), {}, "/usr/bin/su (4755, layer 0)"),
]


@pytest.mark.parametrize(("case", "files", "expected"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_sabotage(tmp_path: Path, case: Case, files: dict[str, Member | bytes | None], expected: str) -> None:
    result = report(tmp_path, gb10(**files), case).results[-1]
    assert result.status == "fail"
    assert expected in result.message


def test_the_ptxas_that_triton_calls(tmp_path: Path) -> None:
    cuda = {"usr__local__cuda__bin__ptxas": program(elf(more=b"release 13.0, V13.0.88\0sm_121a"))}
    env = ["TRITON_PTXAS_BLACKWELL_PATH=/usr/local/cuda/bin/ptxas"]

    def found(name: str, env: list[str], **files: Member | bytes | None) -> str:
        result = report(tmp_path / name, gb10(**cuda, **files), ("ptxas", {}), settings={"Env": env}).results[-1]
        return f"{result.status}: {result.message}"

    assert found("own", []).endswith("bin/ptxas-blackwell (12.9.86)")
    assert found("given", env) == "pass: Triton 3.6.0 calls /usr/local/cuda/bin/ptxas (13.0.88)"
    # Triton passes over a path that it cannot run, and takes its own.
    assert found("gone", ["TRITON_PTXAS_BLACKWELL_PATH=/none"]).endswith("bin/ptxas-blackwell (12.9.86)")
    # The old variable has no effect from 3.6 on ...
    assert "ptxas-blackwell" in found("old-variable", ["TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas"])
    # ... and the new one none before.
    old: dict[str, Member | bytes | None] = {
        f"{SITE_}__triton-3.6.0.dist-info__METADATA": None,
        f"{SITE_}__triton-3.5.1+git1.dist-info__METADATA": b"x",
    }
    assert "does not know sm_121a" in found("old-triton", env, **old)
    assert "pass" in found("old-triton-given", ["TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas"], **old)


def test_layer_size(tmp_path: Path) -> None:
    found = report(tmp_path, [{"a": b"1" * 5000}], ("layer-size", {"most_gb": 1e-9})).results[-1]
    assert found.status == "fail"
    assert "is the limit" in found.message
    found = report(tmp_path, [{"a": b"1" * 5000}], ("layer-size", {"warn_gb": 1e-9})).results[-1]
    assert found.status == "warn"
    assert "many registries" in found.message


def test_modes_and_parents_are_checked_in_our_layers_only(tmp_path: Path) -> None:
    base = tar({"opt/x": Member(b"", 0o4666)}, parents=False)
    image = layout(tmp_path, [{"a": b""}, base, {"opt/ours": b""}])
    assert run_static(image, None, [], base=2).ok()
    assert run_static(image, None, []).count("fail") == 3


def test_links_into_folders_of_the_engine_may_dangle(tmp_path: Path) -> None:
    layer = {"etc/mtab": link("../proc/self/mounts"), "dev2": link("/dev/null"), "opt/x": link("gone")}
    found = report(tmp_path, [layer], ("no-dangling-links", {"allowed": ["/opt/*"]})).results[-1]
    assert (found.status, found.message) == ("pass", "2 links")


def test_a_path_that_may_be_in_an_absent_base_layer_is_not_run(tmp_path: Path) -> None:
    image = layout(tmp_path, [{"usr/lib/x": b""}, {"opt/a": link("/usr/lib/x"), "opt/b": elf()}])
    open_image(image).layers[0].path.unlink()
    cases: list[Case] = [
        ("file", {"path": "/usr/lib/x"}),
        ("no-dangling-links", {"prefix": "/opt"}),
        ("file", {"path": "/opt/b"}),
        ("elf-machine", {"prefix": "/opt"}),
        ("ptxas", {}),
        ("cubin", {"path": "/opt/b"}),
    ]
    found = run_static(image, None, [check(*case) for case in cases], base=1)
    states = [result.status for result in found.results[len(EVERY) :]]
    assert states == ["not-run", "not-run", "pass", "pass", "not-run", "fail"]
    assert "not on this machine" in found.results[len(EVERY)].message
    assert found.notes == ["1 of 2 layers (the base's) are not on this machine"]


def test_family_and_arch_specific_code_counts(tmp_path: Path) -> None:
    library = elf(gpu=fatbin((2, 121, 0x1208011), SM_121))
    cases: list[Case] = [
        ("cubin", {"path": "/a.so", "archs": ["sm_121f", "sm_121"]}),
        ("cubin", {"path": "/a.so", "absent": ["sm_121"]}),
    ]
    found = report(tmp_path, [{"a.so": library}], *cases).results[-2:]
    assert [result.status for result in found] == ["pass", "fail"]
    assert found[0].message == "sm_121 (1), sm_121f (1)"


@pytest.mark.parametrize(
    ("kind", "args", "id", "names"),
    [
        ("cubbin", {"path": "/x"}, "check-kind-unknown", "'cubin'"),
        ("cubin", {}, "check-arguments-wrong", "path: "),
        ("cubin", {"path": "/x", "architectures": ["sm_121"]}, "check-arguments-wrong", "architectures: "),
        ("file", {"path": 5}, "check-arguments-wrong", "path: "),
        ("file", {"path": "/x", "type": "directory"}, "check-arguments-wrong", "type: "),
    ],
)
def test_a_wrong_check_is_an_error(tmp_path: Path, kind: str, args: dict[str, Any], id: str, names: str) -> None:
    with fails(InvalidError, id) as caught:
        report(tmp_path, [{"a": b""}], (kind, args))
    assert names in str(caught.value)


def test_checks_of_other_tiers_are_ignored(tmp_path: Path) -> None:
    image = layout(tmp_path, [{"a": b""}])
    other = Check(id="x", tier="cpu", kind="import", args={"module": "vllm"})
    assert len(run_static(image, None, [other], always=()).results) == 0
