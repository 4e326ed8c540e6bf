"""Bad YAML gives exit code 3 and a message with the file, the line and, for a key, the closest known one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import InvalidError
from builder.model.layer import Layer
from builder.model.recipe import Recipe
from builder.model.textfile import read_text
from builder.model.yamlfile import load, parse_yaml
from tests.support.errors import fails

RECIPE = """\
name: tiny
title: A tiny one
model:
  id: someone/tiny
base: small
layers:
  - nccl
  - marlin: {fp8: true}
serve:
  model: someone/tiny
  flags: {port: 8000}
"""


def loaded(folder: Path, text: str) -> Recipe:
    path = folder / "tiny.yaml"
    path.write_text(text, "utf-8")
    return load(path, Recipe)


def refused(folder: Path, text: str, id: str) -> InvalidError:
    with fails(InvalidError, id) as caught:
        loaded(folder, text)
    return caught.value


def test_a_good_file_loads(tmp_path: Path) -> None:
    recipe = loaded(tmp_path, RECIPE)
    assert [use.layer for use in recipe.layers] == ["nccl", "marlin"]
    assert recipe.layers[1].set == {"fp8": True}


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "closest"),
    [
        ("title:", "titel:", 2, "titel", "title"),
        ("  id:", "  idd:", 4, "idd", "id"),
        ("  flags:", "  flag:", 11, "flag", "flags"),
        ("  - nccl", "  - {layer: nccl, sets: {}}", 7, "sets", "set"),
    ],
)
def test_an_unknown_key_names_file_line_and_the_closest_key(
    tmp_path: Path, old: str, new: str, line: int, key: str, closest: str
) -> None:
    error = refused(tmp_path, RECIPE.replace(old, new), "key-unknown")
    assert error.where == f"{tmp_path}/tiny.yaml:{line}"
    assert error.what == f"unknown key {key!r}"
    assert error.cause == f"did you mean {closest!r}?"


def test_an_unknown_key_like_no_other_lists_the_known_ones(tmp_path: Path) -> None:
    error = refused(tmp_path, RECIPE.replace("  id:", "  zzz: 1\n  id:"), "key-unknown")
    assert error.where.endswith(":4")
    assert error.cause.startswith("known keys: checkpoint, family, gated, ")


@pytest.mark.parametrize(
    ("old", "new", "where", "id", "what"),
    [
        ("base: small\n", "", "", "key-missing", "base is missing"),
        ("id: someone/tiny", "id: tiny", ":4", "value-invalid", "model.id"),
        (
            "port: 8000",
            "port: [[1]]",
            ":11",
            "value-invalid",
            "serve.flags.port: Input should be a valid boolean, or a valid integer",
        ),
        ("port: 8000", "port: .nan", ":11", "yaml-invalid", "finite"),
        ("port: 8000", "Port: 8000", ":11", "value-invalid", "serve.flags.Port"),
        (
            "title: A tiny one",
            'title: "two\\nlines"',
            ":2",
            "value-invalid",
            "title: must be one line without control characters",
        ),
        ("title: A tiny one", "title: 0.20", ":2", "value-invalid", "title: Input should be a valid string"),
        ("title: A tiny one", "title: !!binary aGk=", ":2", "yaml-invalid", "tag"),
        ("title: A tiny one", "title: !!int ''", "", "yaml-invalid", "not valid YAML"),
        ("title: A tiny one", "title: !!python/object:os.system x", ":2", "yaml-invalid", "tag"),
        ("title: A tiny one", "title: [", ":4", "yaml-invalid", "not valid YAML"),
        ("title: A tiny one", "title: *nothing", ":2", "yaml-invalid", "undefined alias"),
        ("title: A tiny one", "title: \x07", "", "yaml-invalid", "control characters"),
        ("title: A tiny one", "? [a]\n: 1", ":2", "yaml-invalid", "a key must be plain text"),
        ("title: A tiny one", "1: 1", ":2", "yaml-invalid", "a key must be plain text"),
        ("name: tiny", "a: 1\n---\nname: tiny", "", "yaml-invalid", "another document"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, where: str, id: str, what: str
) -> None:
    assert old in RECIPE
    error = refused(tmp_path, RECIPE.replace(old, new), id)
    assert error.where.endswith(f"/tiny.yaml{where}") or (not where and "/tiny.yaml:" in error.where)
    assert what in error.what


@pytest.mark.parametrize("text", ["", "just text", "- a\n- list\n", "null"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert "dictionary" in refused(tmp_path, text, "value-invalid").what


def test_an_unquoted_date_stays_text(tmp_path: Path) -> None:
    assert loaded(tmp_path, RECIPE.replace("A tiny one", "2026-01-01")).title == "2026-01-01"


def test_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, RECIPE + "base: other\n", "yaml-invalid")
    assert error.where.endswith(":12")
    assert "'base'" in error.what


def test_a_key_may_override_what_is_merged_in() -> None:
    text = "one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}\nthree: {b: 4, <<: *one}\n"
    data = parse_yaml(text, "file")
    assert data["two"] == {"a": 1, "b": 3}
    assert data["three"] == {"a": 1, "b": 4}


def test_a_file_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    with fails(InvalidError, "file-unreadable"):
        load(path, Recipe)
    path.write_bytes(b"name: caf\xe9\n")
    with fails(InvalidError, "file-not-text") as caught:
        load(path, Recipe)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "a: " + "[" * 60 + "]" * 60])
def test_deep_nesting_is_refused_before_it_overflows_the_stack(text: str) -> None:
    with fails(InvalidError, "yaml-invalid"):
        parse_yaml(text, "file")


@pytest.mark.parametrize("one", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_aliases_cannot_multiply(one: str) -> None:
    levels = [f"a{n}: &a{n} {one.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 9)]
    begin = time.process_time()
    with fails(InvalidError, "yaml-invalid"):
        parse_yaml("\n".join(["a0: &a0 {k: v}", *levels]), "file")
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    "text",
    [
        "[&a '" + "x" * 4000 + "', " + "*a, " * 15_000 + "]",
        "a: 1" + ":59" * 200_000,
        "a: 1" + ":59" * 2000 + ".5",
        "a: 0x" + "f" * 20_000,
        "a: !!float 1" + "0" * 400,
    ],
    ids=["aliases of a long text", "base 60", "float of base 60", "base 16", "float"],
)
def test_long_numbers_and_texts_take_no_time(text: str) -> None:
    begin = time.process_time()
    with fails(InvalidError, "yaml-invalid"):
        parse_yaml(text, "file")
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("end", ["\n", "\u2028"])
def test_names_of_tags_take_no_time(end: str) -> None:
    begin = time.process_time()
    with fails(InvalidError, "yaml-invalid"):
        parse_yaml("".join(f"%TAG !{number}! x{end}" for number in range(60_000)) + "--- a\n", "x")
    assert time.process_time() - begin < 2


def test_a_recursive_alias_is_refused() -> None:
    with fails(InvalidError, "yaml-invalid"):
        parse_yaml("a: &a [*a]", "file")


def test_a_file_of_megabytes_is_refused() -> None:
    with fails(InvalidError, "yaml-too-long"):
        parse_yaml("a: " + "x" * (1 << 20), "file")


def test_a_file_too_large_for_memory_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with fails(InvalidError, "file-too-large"):
        read_text(tmp_path / "large.yaml")


def test_a_byte_order_mark_is_allowed_at_the_start_only() -> None:
    """libyaml skips one before a key, other readers make it a part of the key."""
    assert parse_yaml("\ufeffa: 1", "file") == {"a": 1}
    with fails(InvalidError, "yaml-byte-order-mark") as caught:
        parse_yaml("a: 1\nb:\n\ufeff  c: 2\n", "file")
    assert caught.value.where == "file:3"


@given(st.text())
def test_any_text_gives_values_or_an_error_with_its_place(text: str) -> None:
    try:
        parse_yaml(text, "file")
    except InvalidError as error:
        assert error.where.startswith("file")


def test_a_layer_whose_patterns_do_not_compile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer.yaml"
    path.write_text(
        "name: one\ntitle: t\nproducer: config\nparameters:\n  p: {type: text, pattern: '[', help: h}\n", "utf-8"
    )
    with fails(InvalidError, "value-invalid") as caught:
        load(path, Layer)
    assert caught.value.where == f"{path}:5"


def test_a_layer_of_thousands_of_patterns_is_refused_in_time(tmp_path: Path) -> None:
    rows = (f"  p{number}: {{type: text, pattern: '[\\pL\\pN\\pS]{{8}}{number}', help: x}}\n" for number in range(2400))
    path = tmp_path / "layer.yaml"
    path.write_text("name: x\ntitle: x\nproducer: config\nparameters:\n" + "".join(rows))
    begin = time.process_time()
    with fails(InvalidError, "value-invalid"):
        load(path, Layer)
    assert time.process_time() - begin < 10
