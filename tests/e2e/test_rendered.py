"""The output of `render --context`, built by docker without builder: the same files and the same configuration.

The image is a small one with every kind of stage; see small_project.py. The nightly job compares all of nemotron-omni.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard

from builder.smoke.image.unpack import remove_tree
from tests.e2e.building import SMALL, Builds, builder
from tests.support.nightly import NIGHTLY

pytestmark = [pytest.mark.engine, pytest.mark.slow]

NAME = "builder-e2e-rendered:test"
File = tuple[str, int, str]
"""kind, permission bits, and a file's hash or a link's target."""


@dataclass(frozen=True)
class Pair:
    """An image: its digest, its store, its build context, and its least number of files."""

    digest: str
    store: Path
    context: Path
    files: int


@pytest.fixture(scope="module", params=["small", *(["nemotron-omni"] if NIGHTLY else [])])
def pair(
    request: pytest.FixtureRequest, builds: Builds, inputs: Path, folder: Path, small: dict[str, str]
) -> Iterator[Pair]:
    """Our image and its context, which is large."""
    if request.param == "nemotron-omni":
        context = request.getfixturevalue("context")
        yield Pair(builds.full.digest, builds.full.store, context, 50_000)
        return
    target = folder / "small-context"
    rendered = builder("render", *SMALL, "--context", str(target), store=inputs, env=small)
    assert rendered.returncode == 0, rendered.stderr
    yield Pair(builds.by_docker.digest, builds.by_docker.store, target, 10_000)
    remove_tree(target)


@pytest.fixture
def buildx(pair: Pair) -> Iterator[list[str]]:
    """The command that builds a context, as its user would."""
    command = ["docker", "buildx", "build", "--network=none", "--platform", "linux/arm64", "--provenance=false"]
    yield [*command, str(pair.context)]
    subprocess.run(["docker", "image", "rm", "--force", NAME], capture_output=True, check=False)


def read_tar(stream: IO[bytes], tree: dict[str, File]) -> None:
    """Add a tar's members to a tree, like an overlay; a hard link counts as a file."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            path = member.name.removeprefix("./").strip("/")
            assert (member.uid, member.gid) == (0, 0), path
            if member.isdir():
                tree[path] = ("dir", member.mode, "")
            elif member.issym():
                tree[path] = ("symlink", 0o777, member.linkname)
            elif member.islnk():
                tree[path] = tree[member.linkname.removeprefix("./").strip("/")]
            else:
                content = archive.extractfile(member)
                assert content is not None, path
                tree[path] = ("file", member.mode, hashlib.file_digest(content, "sha256").hexdigest())  # type: ignore[arg-type]
    tree.pop("", None)


def ours(pair: Pair) -> tuple[dict[str, File], dict[str, Any]]:
    """The files and the configuration of our image."""

    def blob(digest: str) -> Path:
        return pair.store.joinpath("blobs", *digest.split(":"))

    manifest = json.loads(blob(pair.digest).read_bytes())
    tree: dict[str, File] = {}
    for layer in manifest["layers"]:
        with blob(layer["digest"]).open("rb") as raw:
            read_tar(zstandard.ZstdDecompressor().stream_reader(raw), tree)  # type: ignore[arg-type]
    return tree, json.loads(blob(manifest["config"]["digest"]).read_bytes())


@pytest.fixture
def theirs(buildx: list[str]) -> tuple[dict[str, File], dict[str, Any]]:
    done = subprocess.run([*buildx, "--load", "--tag", NAME], capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stderr[-4000:]
    config = json.loads(subprocess.run(["docker", "image", "inspect", NAME], capture_output=True, check=True).stdout)[0]
    tree: dict[str, File] = {}
    with subprocess.Popen(
        [*buildx, "--output", "type=tar,dest=-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as run:
        assert run.stdout is not None
        read_tar(run.stdout, tree)
    assert run.returncode == 0
    return tree, config


def test_same_tree_and_same_configuration(pair: Pair, theirs: tuple[dict[str, File], dict[str, Any]]) -> None:
    our_tree, our_config = ours(pair)
    their_tree, their_config = theirs
    assert len(our_tree) > pair.files
    assert sorted(our_tree.keys() ^ their_tree.keys()) == []
    assert {path: (our_tree[path], their_tree[path]) for path in our_tree if our_tree[path] != their_tree[path]} == {}

    settings = our_config["config"]
    for name in ("Entrypoint", "Cmd", "Labels", "WorkingDir"):
        assert their_config["Config"][name] == settings[name], name
    assert dict(item.split("=", 1) for item in their_config["Config"]["Env"]) == dict(
        item.split("=", 1) for item in settings["Env"]
    )
    assert (their_config["Os"], their_config["Architecture"]) == (our_config["os"], our_config["architecture"])
