"""Exit codes and messages for wrong usage, invalid files and failing machines; no traceback, no files left behind."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.support.cli import Cli
from tests.support.mirror import Mirror
from tests.support.project import vendor_base

BUILD = ("build", "--recipe", "tiny")
Change = Callable[[dict[str, Any]], Any]


def nothing(files: dict[str, Any]) -> None:
    """No change."""


USAGE: list[tuple[tuple[str, ...], str]] = [
    (("build", "--recipe", "tiney"), "name-unknown"),
    (("build", "--recipe", "x" * 300), "name-unknown"),
    ((*BUILD, "--base", "nowhere"), "name-unknown"),
    ((*BUILD, "--set", "compiled.speed=1"), "parameter-unknown"),
    ((*BUILD, "--set", "compiled.version=9.9"), "parameter-value-invalid"),
    ((*BUILD, "--set", "nope.a=b"), "set-layer-unknown"),
    ((*BUILD, "--platform", "linux/amd64"), "platform-unsupported"),
    ((*BUILD, "--compression", "lzma"), "compression-unknown"),
    ((*BUILD, "--output", "tar:x"), "output-invalid"),
    ((*BUILD, "--engine", "podman"), "engine-unknown"),
    ((*BUILD, "--tag", "a\nb \x1b[31m"), "reference-invalid"),
    (("load", "--recipe", "tiny", "--tag", "A B"), "reference-invalid"),
    ((*BUILD, "--set", "compiled.version=" + "1" * 5000), "parameter-value-invalid"),
    (("render", "--recipe", "tiny", "--context", "/dev/null/x"), "context-not-writable"),
    (("render", "--recipe", "tiny", "--context", "/"), "context-not-empty"),
    (("new", "recipe", "mine", "--model", "a/b\nbase: x"), "model-name-invalid"),
    (("run", "--recipe", "tiny", "--image", "--privileged"), "image-name-invalid"),
    (("run", "--recipe", "tiny", "--image", "x\ny"), "image-name-invalid"),
    (("run", "--recipe", "tiny", "--image", "x", "--user", "$(id)"), "user-invalid"),
    (
        ("run", "minimax-m2.7-dual", "--role", "head", "--ip", "999.1.1.1", "--interface", "eth0", "--netplan"),
        "address-invalid",
    ),
    (
        ("run", "minimax-m2.7-dual", "--role", "head", "--ip", "10.0.0.1", "--interface", "a/b", "--netplan"),
        "device-name-invalid",
    ),
    (("bench", "--url", "nonsense"), "bench-url-invalid"),
    (("bench", "--url", "http://[::1"), "bench-url-invalid"),
    (("bench", "--url", "http://x:99999"), "bench-url-invalid"),
    (("test", "oci:/nowhere"), "layout-missing"),
    (("build",), "recipe-not-given"),
    (("build", "--recipe", "tiny", "--recipe", "tiny2", "--tag", "x"), "tag-for-several-images"),
    (("show", "tinny"), "name-unknown"),
    (("list", "things"), "list-kind-unknown"),
    (("lint", "--json", "--sarif"), "lint-formats-conflict"),
    (("doctor", "--base", "tiny"), "base-without-recipe"),
    (("push", "--recipe", "tiny", "NOT A REFERENCE"), "reference-invalid"),
    (("test",), "test-image-not-given"),
    (("test", "NOT A REFERENCE"), "reference-invalid"),
    (("test", "oci:x", "--base", "tiny"), "recipe-options-without-recipe"),
    (("test", "oci:x", "--tier", "gnu"), "tier-unknown"),
    (("test", "oci:x", "--serve", "nothing"), "serve-unknown"),
]
"""Command lines and the ids of their errors."""


@pytest.mark.parametrize(("words", "id"), USAGE, ids=[" ".join(words)[:60] for words, _ in USAGE])
def test_wrong_usage_is_2(cli: Cli, words: tuple[str, ...], id: str) -> None:
    cli(*words).failed(2, id)


@pytest.mark.parametrize("command", ["load", "push", "run", "test"])
def test_an_image_that_is_not_built_is_2_and_the_next_step_builds_it(cli: Cli, command: str) -> None:
    target = ("127.0.0.1:1/team/tiny:1",) if command == "push" else ()
    said = cli(command, "--recipe", "tiny", "--profile", "ngram", *target)
    said.failed(2, "image-not-built")
    assert "builder build --recipe tiny --profile ngram" in said.err


@pytest.mark.parametrize("words", [(*BUILD, "--jobs", "0"), (*BUILD, "--no-such-option"), ("no-such-command",)])
def test_an_error_of_the_option_parser_is_2_and_names_the_word(cli: Cli, words: tuple[str, ...]) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (2, "")
    assert next(word for word in reversed(words) if word != "0") in said.err


INVALID: list[tuple[str, Change, str]] = [
    (
        "unknown key",
        lambda f: f["recipes/tiny.yaml"].update(layer=[]),
        "key-unknown",
    ),
    ("malformed", lambda f: f.update({"recipes/tiny.yaml": "name: tiny\n  bad: [\n"}), "yaml-invalid"),
    ("nested", lambda f: f.update({"recipes/tiny.yaml": "a: " + "[" * 100_000}), "yaml-invalid"),
    ("not UTF-8", lambda f: f.update({"recipes/tiny.yaml": b"\xff"}), "file-not-text"),
    (
        "layer",
        lambda f: f["dockerfiles/layers/placed/layer.yaml"].update(producer="magic"),
        "value-invalid",
    ),
    (
        "template",
        lambda f: f.update({"dockerfiles/layers/compiled/Dockerfile.j2": "FROM x\nRUN {{ y }}"}),
        "template-broken",
    ),
    ("lock", lambda f: f.update({"recipes/locks/tiny-root.json": "{"}), "json-invalid"),
    ("twice", lambda f: f["recipes/tiny.yaml"]["layers"].append("placed"), "layer-used-twice"),
]


@pytest.mark.parametrize(("change", "id"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
def test_an_invalid_file_is_3(cli: Cli, change: Change, id: str) -> None:
    change(cli.small.files)
    cli(*BUILD).failed(3, id)


def test_an_unknown_engine_is_2_even_when_nothing_is_left_to_build(online: Cli) -> None:
    assert online(*BUILD).code == 0
    said = online(*BUILD, BUILDER_ENGINE="podman")
    said.failed(2, "engine-unknown")
    assert "BUILDER_ENGINE" in said.err


@pytest.mark.parametrize(
    ("name", "command", "code", "what"),
    [
        ("recipes/.#tiny.yaml", "list", 0, ""),
        ("recipes/Bad Name.yaml", "list", 3, "[file-name-invalid]"),
        ("recipes/other.yaml", "list", 3, "[file-not-regular]"),
        ("recipes/bases/other.yaml", "list bases", 3, "[file-not-regular]"),
        ("recipes/locks/tiny-wheels.json", "plan --recipe tiny", 3, "[file-not-regular]"),
        ("dockerfiles/layers/placed/key", "plan --recipe tiny", 3, "[file-not-regular]"),
    ],
)
def test_a_broken_link_is_reported_with_its_path(cli: Cli, name: str, command: str, code: int, what: str) -> None:
    cli.write()
    path = cli.folder / "project" / name
    path.unlink(missing_ok=True)
    path.symlink_to("/no/such/file")
    cli.keep = True
    said = cli(*command.split())
    assert said.code == code
    assert what in said.err
    assert code == 0 or path.name in said.err


def test_a_layers_folder_brings_no_file_of_this_machine_into_a_build(cli: Cli) -> None:
    cli.write()
    secret = cli.folder / "secret"
    secret.write_text("of this machine")
    (cli.folder / "project/dockerfiles/layers/compiled/key").symlink_to(secret)
    cli.keep = True
    said = cli("plan", "--recipe", "tiny")
    said.failed(3, "file-not-regular")
    assert "compiled/key: " in said.err


def test_a_template_that_is_not_utf8_is_3(cli: Cli) -> None:
    cli.small.files["dockerfiles/layers/compiled/Dockerfile.j2"] = b"FROM x\xff"
    said = cli(*BUILD)
    said.failed(3, "file-not-text")
    assert "Dockerfile.j2: " in said.err


@pytest.mark.parametrize(
    ("key", "value", "id", "suggested"),
    [
        ("layers", ["plaiced", "entrypoint"], "layer-unknown", "placed or "),
        ("extends", "tini", "extends-unknown", "tiny?"),
        ("base", "tinny", "recipe-base-unknown", "tiny?"),
    ],
)
def test_an_unknown_name_in_a_recipe_is_3_with_its_line_and_a_suggestion(
    cli: Cli, key: str, value: object, id: str, suggested: str
) -> None:
    recipe = cli.small.files["recipes/tiny.yaml"]
    recipe[key] = value
    lines = yaml.safe_dump(recipe, sort_keys=False).splitlines()
    number = next(count for count, line in enumerate(lines, 1) if str(value[0] if key == "layers" else value) in line)
    said = cli(*BUILD)
    said.failed(3, id)
    assert f"recipes/tiny.yaml:{number}: " in said.err
    assert suggested in said.err
    linted = cli("lint", "tiny")
    assert linted.code == 3
    assert f"recipes/tiny.yaml:{number}: error: " in linted.out


def test_a_layer_that_an_extended_recipe_names_is_looked_for_there(cli: Cli) -> None:
    cli.small.files["recipes/child.yaml"] = {"name": "child", "title": "Child", "extends": "tiny"}
    cli.small.files["recipes/tiny.yaml"]["layers"].append("plaiced")
    said = cli("build", "--recipe", "child")
    said.failed(3, "layer-unknown")
    assert "recipes/tiny.yaml:" in said.err


def test_a_base_like_a_known_one_is_suggested(cli: Cli) -> None:
    said = cli(*BUILD, "--base", "hermetik")
    said.failed(2, "name-unknown")
    assert said.err.partition("cause:")[2].count(" hermetic ") <= 1, "a name is suggested once"
    assert "hermetic" in said.err.partition("cause:")[2]


def test_a_missing_section_is_4_with_the_command_that_locks_it(cli: Cli) -> None:
    del cli.small.files["recipes/locks/tiny-wheels.json"]
    said = cli(*BUILD)
    said.failed(4, "lock-section-missing")
    assert "next:  request it in your recipes/locks/requests.yaml, then: builder lock tiny-wheels" in said.err


def test_an_input_that_differs_from_the_lock_is_4_and_is_not_stored(online: Cli, mirror: Mirror) -> None:
    file, data = next(iter(mirror.wheels["beta"].items()))
    mirror.wheels["beta"][file] = data[:-1] + b"x"
    said = online(*BUILD)
    said.failed(4, "input-mismatch")
    assert "beta 1.0" in said.err
    assert list((online.folder / "store/tmp").iterdir()) == []
    assert list((online.folder / "store/images").iterdir()) == []


def test_offline_without_the_inputs_is_4(cli: Cli) -> None:
    cli.small.files["recipes/tiny.yaml"]["layers"].remove("compiled")
    cli(*BUILD, "--offline").failed(4, "input-missing-offline")


def test_no_engine_is_5_with_the_package_to_install(cli: Cli, mirror: Mirror) -> None:
    cli.environ |= mirror.environment
    said = cli(*BUILD)
    said.failed(5, "engine-missing")
    assert "next:  apt-get install buildah" in said.err
    assert mirror.asked == []


def test_a_store_that_cannot_be_written_is_5(cli: Cli) -> None:
    (cli.folder / "file").write_text("x")
    said = cli(*BUILD, BUILDER_STORE=str(cli.folder / "file/store"))
    said.failed(5, "disk-write-failed")
    assert "BUILDER_STORE" in said.err


def vendor(cli: Cli, compatible: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    image = f"127.0.0.1:{port}/team/vendor:1"
    cli.small.files["recipes/bases/vendor.yaml"] = vendor_base(image, "sha256:" + "a" * 64)
    cli.small.files["recipes/tiny.yaml"] |= {"base": "vendor", "compatible": compatible}


def test_a_registry_that_refuses_is_6_and_names_the_base_that_needs_none(cli: Cli) -> None:
    vendor(cli, ["hermetic"])
    said = cli(*BUILD)
    said.failed(6, "connection-failed")
    assert "127.0.0.1" in said.err
    assert "add --base hermetic, which needs no registry" in said.err
    assert list((cli.folder / "store/images").iterdir()) == []


def test_a_base_that_is_not_pinned_is_4(cli: Cli) -> None:
    vendor(cli, [])
    cli.small.files["recipes/bases/vendor.yaml"]["pin"]["manifest"] = None
    cli(*BUILD).failed(4, "base-not-pinned")


def test_a_project_that_is_no_folder_is_2(cli: Cli) -> None:
    said = cli("list", BUILDER_PROJECT="/no/such/folder")
    said.failed(2, "project-not-a-folder")
    assert "/no/such/folder" in said.err


def test_an_output_that_cannot_be_written_is_2_before_the_build(online: Cli) -> None:
    said = online(*BUILD, "--output", "oci:/proc/nowhere/image")
    said.failed(2, "layout-not-writable")
    assert "oci:DIR" in said.err


def test_a_folder_with_something_else_in_it_is_not_written_to(online: Cli) -> None:
    (online.folder / "mine").mkdir()
    (online.folder / "mine/file").write_text("x")
    said = online(*BUILD, "--output", f"oci:{online.folder / 'mine'}")
    said.failed(2, "layout-folder-occupied")
    assert [path.name for path in (online.folder / "mine").iterdir()] == ["file"]
