"""`build --builder` twice: two BuildKit workers in network namespaces of their own share the layers of a build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.nightly import nightly
from tests.support.sparks import problem, two_sparks

pytestmark = [pytest.mark.engine, nightly, pytest.mark.skipif(bool(problem()), reason=problem())]
LAYERS = ("first", "second", "third", "fourth")


@pytest.fixture
def workers(online: Cli, tmp_path: Path) -> Iterator[Cli]:
    """`builder` with the buildx builders `one` and `two`, and a recipe of four layers that an engine makes."""
    cli = online
    for name in LAYERS:
        folder = f"dockerfiles/layers/{name}"
        cli.small.files[f"{folder}/layer.yaml"] = {"name": name, "title": name, "producer": "dockerfile"}
        text = f"FROM scratch AS {{{{ id }}}}\nCOPY layers/{name}/data /opt/{name}/data\n"
        cli.small.files[f"{folder}/Dockerfile.j2"] = text
        cli.small.files[f"{folder}/data"] = f"of {name}\n"
    cli.small.files["recipes/tiny.yaml"]["layers"] = [*LAYERS, "entrypoint"]
    config = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    own = tmp_path / "config"
    own.mkdir()
    if (config / "cli-plugins").is_dir():
        shutil.copytree(config / "cli-plugins", own / "cli-plugins", symlinks=True)
    with two_sparks(tmp_path) as sparks:
        environ = {**os.environ, "DOCKER_CONFIG": str(own)}
        for number, name in enumerate(("one", "two"), 1):
            host = f"host=unix://{sparks.folder}/spark{number}/docker.sock"
            words = ["docker", "context", "create", name, "--docker", host]
            subprocess.run(words, env=environ, check=True, capture_output=True)
        cli.environ |= {"DOCKER_CONFIG": str(own), "PATH": os.environ["PATH"]}
        yield cli


def test_each_layer_is_built_by_one_of_them(workers: Cli) -> None:
    build = ("build", "--recipe", "tiny", "--engine", "docker", "--verbose", "--jobs", "2")
    both = workers(*build, "--builder", "one", "--builder", "two")
    assert both.code == 0, both.err
    built = re.findall(r"(\w+): on the builder (\w+)", both.err)
    assert sorted(name for name, _ in built) == sorted(LAYERS), "each layer once"
    assert {where for _, where in built} == {"one", "two"}, built
    alone = workers(*build, "--builder", "two", BUILDER_STORE=str(workers.folder / "other"))
    assert alone.out == both.out, "the same digest"
    lost = workers(*build, "--builder", "one", "--builder", "gone", BUILDER_STORE=str(workers.folder / "third"))
    assert lost.code == 5 and "gone" in lost.err, lost.err
