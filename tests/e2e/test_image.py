"""The image where it is used: in a registry, pulled and run by docker, unpacked in a sandbox. arm64, or under qemu.

Imports take minutes under qemu, so each large one happens once per place where it proves something:

* docker, as a user whom the image does not know: metadata, certificate authorities, our NCCL as the loader finds it;
* the sandbox, as that user: torch with our NCCL, the audio libraries, Triton's and FlashInfer's compilers;
* the sandbox, by `builder test --tier cpu`, as root: vLLM, and again torch and the audio libraries.

The nightly job imports vLLM in docker, too, as the unknown user.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import Command, run
from builder.smoke.image.opened import open_image
from builder.smoke.plan_checks import checks_of
from builder.store.store import Store
from tests.e2e.conftest import WHAT, Build, builder, nightly

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.qemu, pytest.mark.slow]

STRANGER = "54321:54321"
NIGHTLY = "BUILDER_NIGHTLY" in os.environ
INSIDE = Path(__file__).with_name("inside.py").read_text()
Done = subprocess.CompletedProcess[str]
EMULATED_FOR_LONG = {"serve-command", "starts-without-gpu"}
"""Each loads all of vLLM's server, many minutes where arm64 code is emulated: these run on the arm64 runners."""


@pytest.fixture(scope="module")
def registry(folder: Path) -> Iterator[str]:
    """Debian's docker-registry on loopback; yields HOST:PORT."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    server = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    server.terminate()
    server.wait()
    shutil.rmtree(folder / "registry", ignore_errors=True)


@pytest.fixture(scope="module")
def pushed(first: Build, registry: str) -> str:
    """The image's reference by digest after `builder push`."""
    done = builder("push", f"{registry}/team/omni:test", *WHAT, store=first.store)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def sandbox(first: Build) -> Iterator[RuncRunner]:
    """Unpacked (8 GB) where `builder test` looks for it."""
    runner = RuncRunner(open_image(first.store, first.digest), Store(first.store).unpacked)
    yield runner
    runner.close()
    shutil.rmtree(Store(first.store).unpacked)


@pytest.fixture(scope="module")
def ran(first: Build, pushed: str, sandbox: RuncRunner) -> Iterator[tuple[dict[str, Any], Done]]:
    """The results of inside.py for a user without an entry in passwd, in docker and in the sandbox; the cpu tier.

    Each runs on one core: the two of the sandbox at the same time, and they share their bytecode.
    """
    subprocess.run(["docker", "pull", "--quiet", "--platform", "linux/arm64", pushed], check=True, timeout=900)
    start = ["docker", "run", "--rm", "--platform", "linux/arm64", "--network=none", "--user", STRANGER]

    def in_docker() -> str:
        parts = ["metadata", "nccl", *(["vllm"] if NIGHTLY else [])]
        argv = [*start, "--entrypoint", "python3", pushed, "-c", INSIDE, *parts]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=2400)
        return done.stdout + done.stderr

    def in_sandbox() -> str:
        command = Command(["python3", "-c", INSIDE, "triton", "flashinfer", "audio"], user=STRANGER)
        return run(sandbox, command, timeout=2400).output

    merged: dict[str, Any] = {}
    with ThreadPoolExecutor(2) as pool:
        tier, outputs = pool.submit(cpu_tier, first), pool.submit(lambda: (in_docker(), in_sandbox()))
        for output in outputs.result():
            line = next((line for line in output.splitlines() if line.startswith("RESULT ")), None)
            assert line, output[-3000:]
            merged |= json.loads(line.removeprefix("RESULT "))
        done = tier.result()
    yield merged, done
    subprocess.run(["docker", "image", "rm", "--force", pushed], capture_output=True, check=False)


@pytest.fixture(scope="module")
def found(ran: tuple[dict[str, Any], Done]) -> dict[str, Any]:
    """The output of inside.py."""
    return ran[0]


def cpu_tier(first: Build) -> Done:
    """`builder test` without a daemon: the image is unpacked and run in a sandbox."""
    project = Project()
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    names = {check.id for check in checks_of(plan) if check.tier == "cpu"}
    assert names > EMULATED_FOR_LONG
    only = [word for name in sorted(names - EMULATED_FOR_LONG) for word in ("--only", name)]
    alone = {"DOCKER_HOST": f"unix://{first.store}/none"}
    return builder("test", *WHAT, "--tier", "cpu", "--require", "--json", *only, store=first.store, env=alone)


def test_the_registry_has_it_under_the_same_digest(first: Build, pushed: str) -> None:
    assert pushed.endswith(f"/team/omni@{first.digest}")
    raw = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{pushed}"], capture_output=True, check=True
    ).stdout
    assert raw == first.store.joinpath("blobs", *first.digest.split(":")).read_bytes()
    shown = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", f"docker://{pushed}"], capture_output=True, check=True
    )
    assert json.loads(shown.stdout)["Architecture"] == "arm64"


def test_skopeo_copies_it_unchanged(first: Build, pushed: str, folder: Path) -> None:
    target = folder / "copied"
    subprocess.run(
        ["skopeo", "copy", "--quiet", "--src-tls-verify=false", f"docker://{pushed}", f"oci:{target}:omni"], check=True
    )
    assert json.loads((target / "index.json").read_text())["manifests"][0]["digest"] == first.digest
    shutil.rmtree(target)


def test_a_second_push_sends_nothing(first: Build, pushed: str, registry: str) -> None:
    done = builder("push", f"{registry}/team/omni:again", *WHAT, store=first.store)
    assert done.stdout.strip() == pushed
    assert "uploaded" not in done.stderr


def test_dpkg_lists_exactly_the_locked_packages(sandbox: RuncRunner) -> None:
    done = run(sandbox, Command(["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\\n"]), timeout=60)
    locked = Project().section("trixie-root-arm64")
    assert sorted(done.output.split("\n")[:-1]) == sorted(
        f"{item.package} {item.version} ii " for item in locked.packages
    )  # type: ignore[union-attr]


def test_dpkg_finds_the_package_of_a_file(sandbox: RuncRunner) -> None:
    assert "python3.13-minimal" in run(sandbox, Command(["dpkg", "-S", "/usr/bin/python3.13"]), timeout=60).output


def test_metadata_lists_exactly_the_locked_distributions(found: dict[str, Any]) -> None:
    project = Project()
    sections = [project.section("vllm-0.20.0-cp313"), project.section("audio-0.20.0-cp313")]
    locked = {item.name.replace("_", "-").replace(".", "-") for section in sections for item in section.wheels}  # type: ignore[union-attr]
    assert found["distributions"] == sorted(locked)


def test_tls_has_more_than_a_hundred_authorities(found: dict[str, Any]) -> None:
    assert found["authorities"] > 100


def test_torch_and_the_audio_libraries_import_for_a_user_without_home(found: dict[str, Any]) -> None:
    assert found["uid"] == 54321
    assert found["torch"].startswith("2.11.0")
    assert len(found["audio"]) == 4


@nightly
def test_vllm_imports_in_docker_for_a_user_without_home(found: dict[str, Any]) -> None:
    assert found["vllm"] == "0.20.0"


def test_torch_maps_our_nccl_which_reports_its_version(found: dict[str, Any]) -> None:
    assert found["nccl"] == ["/opt/nccl/lib/libnccl.so.2.29.7"]
    assert found["nccl_version"] == 22907


def test_in_docker_the_wheels_name_of_nccl_is_ours(found: dict[str, Any]) -> None:
    assert found["nccl_of_the_wheel"] == ["/opt/nccl/lib/libnccl.so.2.29.7"]
    assert found["nccl_of_the_wheel_version"] == 22907


def test_tritons_driver_stub_compiles(found: dict[str, Any]) -> None:
    assert found["triton"] is True


def test_flashinfer_compiles_a_module_for_sm_121a(found: dict[str, Any]) -> None:
    path, is_cuda_library = found["flashinfer"]
    assert path.startswith("/.cache/flashinfer/") and is_cuda_library
    assert found["gencode"] == ["sm_121a"]


@pytest.mark.parametrize(
    "argv", [["tqdm", "--version"], ["ninja", "--version"], ["f2py", "-v"], ["tabulate", "--help"]]
)
def test_console_scripts_run(sandbox: RuncRunner, argv: list[str]) -> None:
    done = run(sandbox, Command(argv, user=STRANGER), timeout=300)
    assert done.code == 0, done.output


def test_every_console_script_names_the_images_interpreter(sandbox: RuncRunner) -> None:
    first_line = "[ \"$(head -c 2 $f | tr -d '\\0')\" = '#!' ] && head -n 1 $f"
    script = f"cd /usr/local/bin && for f in *; do {first_line}; done | sort | uniq -c"
    done = run(sandbox, Command(["sh", "-c", script]), timeout=120)
    lines = {line.split(None, 1)[1]: int(line.split(None, 1)[0]) for line in done.output.splitlines()}
    assert lines["#!/usr/bin/python3"] > 40
    assert set(lines) <= {"#!/usr/bin/python3", "#!/bin/sh", "#!/usr/bin/env bash", "#!/bin/bash"}


def test_compilers_and_ptxas_work(sandbox: RuncRunner) -> None:
    assert "release 13.0" in run(sandbox, Command(["ptxas", "--version"]), timeout=60).output
    source = "#include <Python.h>\\nint main() { return Py_IsInitialized(); }"
    compile_it = (
        f"cd /tmp && printf '{source}' > a.c && cc a.c -o a $(python3-config --includes --embed --ldflags) && ./a"
    )
    done = run(sandbox, Command(["sh", "-c", compile_it], user=STRANGER), timeout=300)
    assert done.code == 0, done.output


def test_the_cpu_tier_passes(first: Build, ran: tuple[dict[str, Any], Done]) -> None:
    report = json.loads(ran[1].stdout)
    failed = [f"{result['id']}: {result['message']}" for result in report["results"] if result["status"] != "pass"]
    assert ran[1].returncode == 0, "\n".join(failed)
    assert report["digest"] == first.digest and report["passed"] >= 8
    assert {"torch-import", "vllm-import", "nccl-mapped"} <= {result["id"] for result in report["results"]}
