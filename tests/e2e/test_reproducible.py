"""One recipe, one digest: whatever the engine, the machine, the user and the day; and whoever rebuilds it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import zstandard

from builder.smoke.image.unpack import remove_tree
from tests.e2e.building import WHAT, Build, Builds, Pushed, build_on, builder, fresh_store
from tests.e2e.machines import Machine, without_emulation
from tests.support.nightly import NIGHTLY, nightly

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]

LARGE = 200_000_000


@nightly
def test_both_engines_compile_nccl_to_the_same_bytes(first: Build, inputs: Path, beta: Machine, folder: Path) -> None:
    with without_emulation():
        second = build_on(beta, fresh_store(inputs, folder / "beta" / "store-nccl"), "docker", WHAT)
    assert second.digest == first.digest
    assert leaked(second, first, folder) == []


def test_a_second_build_needs_no_engine_and_no_network(first: Build, tmp_path: Path) -> None:
    again = builder("build", *WHAT, "--offline", store=first.store, env={"PATH": str(tmp_path)})
    assert (again.returncode, again.stdout.strip()) == (0, first.digest), again.stderr
    assert " built " not in again.stderr


@pytest.mark.parametrize("engine", ["buildah", pytest.param("docker", marks=nightly)])
def test_a_stranger_rebuilds_the_image(shared: Pushed, inputs: Path, folder: Path, engine: str) -> None:
    """With another engine, on another machine: docker built it as a user of a machine in another time zone."""
    empty = folder / f"stranger-{engine}"
    empty.mkdir()
    words = ("verify", shared.reference, "--trust-plan", "--engine", engine, "--offline", "--json")
    done = builder(*words, store=fresh_store(inputs, empty / "store"), env={"BUILDER_PROJECT": str(empty)})
    remove_tree(empty)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["image"], report["verdict"]) == (shared.build.digest, "identical")
    assert {"hello", "config", "manifest"} <= {part["part"] for part in report["parts"]}


def test_memory_stays_bounded(builds: Builds) -> None:
    for build in (builds.full, builds.by_docker):
        peak = re.search(r"peak (\d+) kB", build.log)
        assert peak, "GNU time is needed to measure memory"
        assert int(peak[1]) * 1024 < 600_000_000


def test_nothing_of_the_build_host_is_in_a_layer(builds: Builds, folder: Path) -> None:
    assert leaked(builds.full, builds.by_docker, folder) == []
    assert leaked(builds.by_docker, builds.full, folder) == []


def leaked(build: Build, other: Build, folder: Path) -> list[tuple[str, bytes]]:
    """Names, addresses and paths of the machines that occur in an image, with the blob that has them."""
    home = str(Path.home())
    words = [build.machine.name, other.machine.name, build.machine.nameserver, other.machine.nameserver]
    words += [
        str(folder),
        str(folder.parent),
        f"{home}/.cache/builder",
        str(Path.cwd()),
        os.uname().nodename,
        "23456:23456",
    ]
    # Short words and "localhost" occur in packages that do not depend on this machine.
    needles = [word.encode() for word in dict.fromkeys(words) if len(word) > 9]
    manifest = json.loads(build.store.joinpath("blobs", *build.digest.split(":")).read_bytes())
    # Large layers hold little besides what their wheels hold: at night.
    blobs = [each["digest"] for each in (manifest["config"], *manifest["layers"]) if NIGHTLY or each["size"] < LARGE]
    assert len(blobs) > 5
    return [
        (blob, needle) for blob in blobs for needle in search(build.store.joinpath("blobs", *blob.split(":")), needles)
    ]


def search(blob: Path, needles: list[bytes]) -> set[bytes]:
    """Which of the needles are in a blob, looked for in what it decompresses to."""
    found: set[bytes] = set()
    overlap = max(map(len, needles))
    with blob.open("rb") as raw:
        zipped = raw.read(4) == b"\x28\xb5\x2f\xfd"
        raw.seek(0)
        stream = zstandard.ZstdDecompressor().stream_reader(raw) if zipped else raw
        tail = b""
        while chunk := stream.read(8 << 20):
            window = tail + chunk
            found |= {needle for needle in needles if needle in window}
            tail = window[-overlap:]
    return found


def test_no_layer_names_a_package_mirror_or_resolver(first: Build) -> None:
    manifest = json.loads(first.store.joinpath("blobs", *first.digest.split(":")).read_bytes())
    diff = {record["digest"]: record for record in _records(first.store)}
    paths = set()
    for layer in manifest["layers"]:
        listing = first.store.joinpath("blobs", *diff[layer["digest"]]["listing"].split(":"))
        entries = map(json.loads, listing.read_text("utf-8").splitlines())
        paths |= {path for path, kind, *_ in entries if kind != "dir"}
    assert len(paths) > 50_000
    assert paths.isdisjoint({"etc/resolv.conf", "etc/hostname", "etc/hosts", "etc/apt/sources.list"})
    assert not [path for path in paths if path.startswith(("etc/apt/sources.list.d/", "var/lib/apt/lists/"))]
    assert not [path for path in paths if path.endswith(".pyc")]


def _records(store: Path) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in (store / "layers").glob("*.json")]


def test_the_static_tier_passes(first: Build) -> None:
    done = builder("test", *WHAT, "--tier", "static", "--json", store=first.store)
    report = json.loads(done.stdout)
    assert done.returncode == 0, [result for result in report["results"] if result["status"] != "pass"]
    assert report["digest"] == first.digest
    assert report["passed"] > 30 and report["not_run"] == 0
