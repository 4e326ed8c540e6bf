"""What a user need not repeat: `builder.toml`, and images that were built with other options."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.limits import ends

MODE = {"type": "text", "choices": ["slow", "fast"], "default": "slow", "help": "mode"}


@pytest.fixture
def built(online: Cli) -> Cli:
    """The recipe was built with a parameter that is not its default."""
    layer = online.small.files["dockerfiles/layers/placed/layer.yaml"]
    layer["parameters"] = {"mode": MODE}
    layer["files"][0]["content"] = "placed\n"
    layer["files"].append({"path": "opt/placed/mode", "link": "/etc/{{ params.mode }}"})
    assert online("build", "--recipe", "tiny", "--set", "placed.mode=fast").code == 0
    return online


def next_command(said: str) -> list[str]:
    """The first command of the last `next:` line."""
    return shlex.split(said.rpartition("next:")[2].partition(";")[0])[1:]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--recipe", "tiny", "--format", "compose"),
        ("run", "--recipe", "tiny", "--base", "hermetic", "--port", "9000", "--offline"),
        ("test", "--recipe", "tiny", "--json"),
        ("sbom", "--recipe", "tiny", "--format", "spdx"),
    ],
)
def test_an_image_that_was_built_with_other_options_is_offered_and_the_offer_works(
    built: Cli, words: tuple[str, ...]
) -> None:
    said = built(*words)
    said.failed(2, "image-not-built")
    offered = next_command(said.err)
    assert "--set placed.mode=fast" in shlex.join(offered)
    assert set(words) <= set(offered), "the other options stay"
    assert built(*offered).code in (0, 7), "7: a check of the small image fails, but it was found"


def test_an_image_that_the_project_does_not_make_any_more_is_not_offered(built: Cli) -> None:
    built.small.files["dockerfiles/layers/placed/layer.yaml"]["files"][0]["content"] = "other\n"
    said = built("run", "--recipe", "tiny")
    said.failed(2, "image-not-built")
    assert "--set" not in said.err
    assert next_command(said.err) == ["build", "--recipe", "tiny", "--load"]


def test_a_damaged_record_offers_nothing(built: Cli) -> None:
    for path in (built.folder / "store/images").iterdir():
        data = json.loads(path.read_text())
        for wrong in ("", "[]", "{}", json.dumps({**data, "layers": [1]}), json.dumps({**data, "digest": "x"})):
            path.write_text(wrong)
            assert next_command(built("run", "--recipe", "tiny").err)[0] == "build"


def test_the_choices_of_a_project_apply_to_its_commands(built: Cli) -> None:
    built.small.files["builder.toml"] = 'base = "hermetic"\nset.placed.mode = "fast"\nset.settings = {}\n'
    said = built("run", "--recipe", "tiny")
    assert said.code == 0
    assert said.err.startswith("with builder.toml: --base tiny --set placed.mode=fast\n")
    assert built("verify", "tiny", "--quick").err.startswith("with builder.toml: "), "the same image everywhere"
    argv = json.loads(built("run", "tiny", "--json").out)
    assert argv["argv"][:3] == ["docker", "run", "--name"]
    assert argv["image"].startswith("tiny:")
    built("run", "--recipe", "tiny", "--set", "placed.mode=slow").failed(2, "image-not-built")
    plan = json.loads(built("plan", "--recipe", "tiny", "--json").out)
    assert "fast" in [layer["params"].get("mode") for layer in plan["layers"]]


def test_a_choice_applies_where_it_fits(online: Cli) -> None:
    online.small.files["recipes/bases/other.yaml"] = {
        **online.small.files["recipes/bases/tiny.yaml"],
        "name": "other",
        "aliases": [],
    }
    online.small.files["dockerfiles/layers/unused/layer.yaml"] = {
        "name": "unused",
        "title": "Unused",
        "producer": "config",
        "parameters": {"mode": MODE},
    }
    online.small.files["builder.toml"] = 'base = "other"\n[set.unused]\nmode = "fast"\n'
    said = online("plan", "--recipe", "tiny")
    assert said.code == 0
    assert said.out.startswith("tiny on tiny "), "the recipe does not name the base"
    assert said.err == ""


@pytest.mark.parametrize(
    ("text", "code", "id"),
    [
        ("base =", 3, "toml-invalid"),
        ('bas = "tiny"', 3, "key-unknown"),
        ("base = 3", 3, "value-invalid"),
        ('source = "git@example.org:me/x"', 3, "value-invalid"),
        ('base = "tinny"', 3, "choice-unknown"),
        ('set.placd.mode = "fast"', 3, "choice-unknown"),
        ("[set.placed]\nmod = 1", 3, "layer-parameter-invalid"),
        ("set.placed = 3", 3, "value-invalid"),
        ('set.placed.mode = "odd"', 3, "layer-parameter-invalid"),
        ('set.placed.mod = "fast"', 3, "layer-parameter-invalid"),
        ("a = " + "[" * 5000, 3, "toml-invalid"),
        ("set.placed.mode = " + "1" * 5000, 3, "toml-invalid"),
        (f"a{'.a' * 1000} = 1", 3, "toml-invalid"),
        ("#" * 70_000, 3, "toml-invalid"),
        ('engine = "podman"', 3, "value-invalid"),
    ],
)
def test_a_wrong_choice_is_found(built: Cli, text: str, code: int, id: str) -> None:
    built.small.files["builder.toml"] = text
    said = built("plan", "--recipe", "tiny")
    said.failed(code, id)
    assert "/builder.toml:" in said.err


def test_source_and_licences_are_labels_of_every_image(cli: Cli) -> None:
    def labels() -> dict[str, str]:
        return dict(json.loads(cli("plan", "--recipe", "tiny", "--json").out)["labels"])

    before = labels()
    cli.small.files["builder.toml"] = 'source = "https://example.org/me/images"\nlicenses = "Apache-2.0"\n'
    more = {"source": "https://example.org/me/images", "licenses": "Apache-2.0"}
    assert labels() == before | {f"org.opencontainers.image.{name}": value for name, value in more.items()}


def test_options_and_variables_win_over_the_file(cli: Cli) -> None:
    cli.small.files["builder.toml"] = 'engine = "docker"\nmirror = "nowhere"\n'
    build = ("build", "--recipe", "tiny", "--offline")
    cli(*build).failed(2, "mirror-not-layout")
    cli(*build, "--mirror", "elsewhere").failed(2, "mirror-not-layout")
    assert "elsewhere" in cli(*build, BUILDER_MIRROR="elsewhere").err
    assert cli("--help").code == cli("build", "--help").code == 0


def test_a_folder_with_nothing_but_choices_is_a_project(cli: Cli, tmp_path: Path) -> None:
    (cli.folder / "empty").mkdir()
    (cli.folder / "empty/builder.toml").write_text('base = "hermetic"\n')
    said = cli("plan", "--recipe", "nemotron-omni", BUILDER_PROJECT=str(cli.folder / "empty"))
    assert said.out.startswith("nemotron-omni on hermetic-0.20 ")


def test_images_lists_what_is_in_the_store(built: Cli) -> None:
    assert built("test", "--recipe", "tiny", "--set", "placed.mode=fast").code in (0, 7)
    (row,) = json.loads(built("images", "--json").out)
    assert (row["recipe"], row["base"], row["profile"], row["pushed"]) == ("tiny", "tiny", None, [])
    assert row["checks"]["passed"] > 10
    assert row["size"] > 1000
    lines = built("images", "tiny").out.splitlines()
    assert lines[1].split()[:2] == ["tiny", "tiny"]
    assert "passed" in lines[1]
    built("images", "other").failed(2, "name-unknown")
    for path in (built.folder / "store/layers").iterdir():
        path.unlink()
    assert json.loads(built("images", "--json").out) == []


def test_a_key_of_many_parts_is_refused_in_time(cli: Cli) -> None:
    """tomllib's time is quadratic in them: half a megabyte took hours, in every command."""
    cli.small.files["builder.toml"] = f"a{'.a' * 250_000} = 1\n"
    ends(lambda: cli("list").failed(3, "toml-invalid"))


def test_the_cache_of_a_project_is_not_where_gc_deletes(cli: Cli) -> None:
    cli.small.files["builder.toml"] = 'cache = "127.0.0.1:1/team/layers"\n'
    for words in ((), ("--older-than", "30d")):
        said = cli("gc", *words)
        assert said.code == 0 and f"freed at {cli.folder / 'store'}" in said.out, said.err
