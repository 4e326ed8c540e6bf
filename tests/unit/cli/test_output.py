"""Standard output has the result and nothing else; messages go to standard error."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from builder.digest import Digest
from tests.support.cli import Cli
from tests.support.dockerfile import parse
from tests.support.mirror import Mirror

BUILD = ("build", "--recipe", "tiny")
DIGEST = r"sha256:[0-9a-f]{64}"


def test_a_build_prints_the_digest(online: Cli, mirror: Mirror) -> None:
    first = online(*BUILD)
    assert first.code == 0
    assert re.fullmatch(f"{DIGEST}\n", first.out)
    assert "wheels-alpha" in first.err
    assert "built" in first.err
    mirror.asked.clear()
    again = online(*BUILD)
    assert (again.out, mirror.asked) == (first.out, [])
    assert "cached" in again.err
    assert "built" not in again.err


def test_a_build_first_prints_the_work_to_do(online: Cli) -> None:
    lines = online(*BUILD).err.splitlines()
    assert re.match(
        r"4 layers to build; .* to download, about .* more in the store, up to .* for temporary files", lines[0]
    )


def test_a_build_as_json(online: Cli) -> None:
    said = online(*BUILD, "--json")
    data = json.loads(said.out)
    assert re.fullmatch(DIGEST, data["digest"])
    assert {layer["id"]: layer["state"] for layer in data["layers"]} == {
        **dict.fromkeys(("root", "wheels-alpha", "wheels-other", "placed"), "built"),
        **dict.fromkeys(("settings", "entrypoint"), "config"),
    }
    assert online(*BUILD).out == f"{data['digest']}\n"


def test_a_build_into_a_layout(online: Cli) -> None:
    folder = online.folder / "layout"
    said = online(*BUILD, "--output", f"oci:{folder}", "--tag", "mine:1")
    index = json.loads((folder / "index.json").read_text())
    assert [entry["digest"] for entry in index["manifests"]] == [said.out.strip()]
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == "mine:1"
    for path in (folder / "blobs/sha256").iterdir():
        assert Digest.of(path.read_bytes()).hex == path.name
    if shutil.which("skopeo"):
        command = ["skopeo", "--override-arch", "arm64", "inspect", f"oci:{folder}:mine:1"]
        seen = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert seen["Digest"] == said.out.strip()
        assert seen["Architecture"] == "arm64"


def test_the_same_digest_from_another_folder_time_zone_locale_and_umask(online: Cli) -> None:
    first = online(*BUILD)
    machine = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "USER": "else"}
    again = online.process(*BUILD, **machine, BUILDER_STORE=str(online.folder / "other"))
    assert again.out == first.out


def test_lists_and_descriptions(cli: Cli) -> None:
    assert "tiny" in cli("list").out
    assert {row["name"] for row in json.loads(cli("list", "layers", "--json").out)} >= {"compiled", "placed"}
    shown = json.loads(cli("show", "tiny", "--json").out)
    assert shown["name"] == "tiny"
    assert "LIBS=/opt/widget (before the base's value)" in cli("plan", "--recipe", "tiny").out


def test_render_prints_a_dockerfile_and_fetches_nothing(cli: Cli) -> None:
    said = cli("render", "--recipe", "tiny")
    assert (said.code, said.err) == (0, "")
    assert parse(said.out)[0].name == "FROM"
    assert not (cli.folder / "store").exists()


def test_a_context_is_written_beside_the_dockerfile(online: Cli) -> None:
    said = online("render", "--recipe", "tiny", "--context", str(online.folder / "context"))
    assert (online.folder / "context/Dockerfile").read_text() == said.out
    assert "docker buildx build" in said.err


def test_engines_are_listed_with_the_missing_programs(cli: Cli) -> None:
    lines = cli("engines").out.splitlines()
    assert lines[0].startswith("docker: not usable: the command docker is not installed; install")
    assert lines[1].startswith("buildah: not usable: the command buildah is not installed; apt-get install")


def test_text_that_is_not_ascii_comes_out_in_any_locale(cli: Cli) -> None:
    cli.small.files["recipes/tiny.yaml"] |= {"title": "größer", "env": {"A": "ä"}}
    plan = ("plan", "--recipe", "tiny", "--json")
    said = cli.process(*plan, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (said.code, said.err, "ä" in said.out) == (0, "", True)
    assert said == cli(*plan)
    assert "ä" in cli("render", "--recipe", "tiny").out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_build_leaves_a_clean_store(online: Cli, mirror: Mirror, number: signal.Signals, code: int) -> None:
    mirror.silent.add(next(f"/files/{name}/{file}" for name, files in mirror.wheels.items() for file in files))
    process = online.start(*BUILD)
    try:
        limit = time.monotonic() + 60
        while not any(path in mirror.silent for path in mirror.asked):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < limit, mirror.asked
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (code, "")
    assert "[stopped]" in err
    assert "Traceback" not in err
    assert list((online.folder / "store/tmp").iterdir()) == []
    mirror.silent.clear()
    assert online(*BUILD).code == 0


def test_help_and_version(cli: Cli) -> None:
    assert re.fullmatch(r"builder \d+\.\d+\.\d+\n", cli("--version").out)
    assert "reproducible" in cli("--help").out
    assert "Usage" in cli("build", "--help").out


def test_several_recipes_and_their_digests(online: Cli) -> None:
    online.small.files["recipes/second.yaml"] = {**online.small.files["recipes/tiny.yaml"], "name": "second"}
    said = online("build", "-r", "tiny", "-r", "second")
    assert re.fullmatch(f"{DIGEST}  tiny\n{DIGEST}  second\n", said.out)
    assert online("build", "-r", "tiny", "-r", "second", "--tag", "x").code == 2
    assert Path(online.folder / "store/CACHEDIR.TAG").exists()
