"""The image in a registry and unpacked in a sandbox: what it holds, and its quick programs.

The small image is pushed, listed, copied and pulled; the nightly job does the same with nemotron-omni, and runs it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.attest import cyclonedx, spdx
from builder.model.reference import Reference
from builder.project import Project
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attached, read_attached
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import Command, run
from tests.e2e.building import WHAT, Build, Pushed, builder, push
from tests.e2e.emulated import STRANGER, inside_docker, inside_sandbox
from tests.e2e.inventory import check, independent
from tests.support.nightly import NIGHTLY, nightly

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.qemu, pytest.mark.slow]


@pytest.fixture(scope="module")
def whole(first: Build, registry: str) -> Pushed:
    """nemotron-omni in the registry."""
    return push(f"{registry}/team/omni:test", first, WHAT)


@pytest.fixture(scope="module", params=["shared", pytest.param("whole", marks=nightly)])
def pushed(request: pytest.FixtureRequest) -> Pushed:
    """An image in the registry: the small one, at night nemotron-omni too."""
    found: Pushed = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What inside.py found in a container, for a user without an entry in passwd: in docker's at night."""
    if not NIGHTLY:
        return inside_sandbox(request.getfixturevalue("sandbox"), "metadata", "nccl")
    with pulled(request.getfixturevalue("whole").reference) as image:
        return inside_docker(image, "metadata", "nccl", "vllm")


@contextlib.contextmanager
def pulled(reference: str) -> Iterator[str]:
    """The reference, while docker has the image."""
    subprocess.run(["docker", "pull", "--quiet", "--platform", "linux/arm64", reference], check=True, timeout=900)
    yield reference
    subprocess.run(["docker", "image", "rm", "--force", reference], capture_output=True, check=False)


def test_docker_pulls_an_image_by_its_digest(shared: Pushed) -> None:
    with pulled(shared.reference) as image:
        shown = subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=True).stdout
        (found,) = json.loads(shown)
    assert found["Architecture"] == "arm64"
    assert found["RepoDigests"] == [shared.reference]


def test_the_registry_has_it_under_the_same_digest(pushed: Pushed) -> None:
    first = pushed.build
    assert pushed.reference.endswith(f"@{first.digest}")
    raw = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{pushed.reference}"],
        capture_output=True,
        check=True,
    ).stdout
    assert raw == first.store.joinpath("blobs", *first.digest.split(":")).read_bytes()
    shown = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", f"docker://{pushed.reference}"], capture_output=True, check=True
    )
    assert json.loads(shown.stdout)["Architecture"] == "arm64"


def test_its_sboms_list_what_is_installed_and_nothing_else(pushed: Pushed, folder: Path) -> None:
    metadata = folder / "metadata"
    digest = pushed.build.digest
    installed = independent(pushed.build.store, digest, metadata)
    client, place = Registry(config=RegistriesConfig(), credentials=Credentials()), Reference.parse(pushed.reference)
    for kind in (cyclonedx.MEDIA_TYPE, spdx.MEDIA_TYPE):
        (descriptor,) = attached(client, place, digest, kind)
        others = check(json.loads(read_attached(client, place, descriptor, 1 << 22).payload), installed)
        if pushed.what == WHAT:
            assert len(installed) > 300
            assert "github nvidia/nccl v2.29.7-1" in others
            assert all(name.startswith(("github nvidia/nccl ", "generic nvidia-")) for name in others)
    shutil.rmtree(metadata)


def test_skopeo_copies_it_unchanged(pushed: Pushed, folder: Path) -> None:
    target = folder / "copied"
    source = f"docker://{pushed.reference}"
    subprocess.run(["skopeo", "copy", "--quiet", "--src-tls-verify=false", source, f"oci:{target}:omni"], check=True)
    assert json.loads((target / "index.json").read_text())["manifests"][0]["digest"] == pushed.build.digest
    shutil.rmtree(target)


def test_a_second_push_sends_nothing(pushed: Pushed) -> None:
    again = pushed.reference.partition("@")[0] + ":again"
    done = builder("push", again, *pushed.what, store=pushed.build.store, env=pushed.env)
    assert done.stdout.strip() == pushed.reference
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


@nightly
def test_vllm_imports_in_docker_for_a_user_without_home(found: dict[str, Any]) -> None:
    assert found["vllm"] == "0.20.0"


def test_the_wheels_name_of_nccl_is_ours(found: dict[str, Any]) -> None:
    assert found["nccl_of_the_wheel"] == ["/opt/nccl/lib/libnccl.so.2.29.7"]
    assert found["nccl_of_the_wheel_version"] == 22907


@pytest.mark.parametrize(
    "argv",
    [
        ["tqdm", "--version"],
        ["ninja", "--version"],
        pytest.param(["f2py", "-v"], marks=nightly),
        pytest.param(["tabulate", "--help"], marks=nightly),
    ],
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
