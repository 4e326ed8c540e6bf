"""Bad YAML gives exit code 3 and a message with the file, the line and, for a key, the closest known one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import ExitCode, InvalidError
from builder.model.layer import Layer
from builder.model.recipe import Recipe
from builder.model.yamlfile import load, parse_yaml, read_text

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


def refused(folder: Path, text: str) -> InvalidError:
    with pytest.raises(InvalidError) as caught:
        loaded(folder, text)
    assert caught.value.code == ExitCode.INVALID
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
    error = refused(tmp_path, RECIPE.replace(old, new))
    assert error.where == f"{tmp_path}/tiny.yaml:{line}"
    assert error.what == f"unknown key {key!r}"
    assert error.cause == f"did you mean {closest!r}?"


def test_an_unknown_key_like_no_other_lists_the_known_ones(tmp_path: Path) -> None:
    error = refused(tmp_path, RECIPE.replace("  id:", "  zzz: 1\n  id:"))
    assert error.where.endswith(":4")
    assert error.cause.startswith("known keys: checkpoint, family, gated, ")


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("base: small\n", "", "", "base is missing"),
        ("id: someone/tiny", "id: tiny", ":4", "model.id"),
        ("port: 8000", "port: [[1]]", ":11", "serve.flags.port: Input should be a valid boolean, or a valid integer"),
        ("port: 8000", "port: .nan", ":11", "finite"),
        ("port: 8000", "Port: 8000", ":11", "serve.flags.Port"),
        ("title: A tiny one", 'title: "two\\nlines"', ":2", "title: must be one line without control characters"),
        ("title: A tiny one", "title: 0.20", ":2", "title: Input should be a valid string"),
        ("title: A tiny one", "title: !!binary aGk=", ":2", "tag"),
        ("title: A tiny one", "title: !!int ''", "", "not valid YAML"),
        ("title: A tiny one", "title: !!python/object:os.system x", ":2", "tag"),
        ("title: A tiny one", "title: [", ":4", "not valid YAML"),
        ("title: A tiny one", "title: *nothing", ":2", "undefined alias"),
        ("title: A tiny one", "title: \x07", "", "control characters"),
        ("title: A tiny one", "? [a]\n: 1", ":2", "a key must be plain text"),
        ("name: tiny", "a: 1\n---\nname: tiny", "", "another document"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, old: str, new: str, where: str, what: str) -> None:
    assert old in RECIPE
    error = refused(tmp_path, RECIPE.replace(old, new))
    assert error.where.endswith(f"/tiny.yaml{where}") or (not where and "/tiny.yaml:" in error.where)
    assert what in error.what


@pytest.mark.parametrize("text", ["", "just text", "- a\n- list\n", "null"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert "the file: Input should be a valid dictionary" in refused(tmp_path, text).what


def test_an_unquoted_date_stays_text(tmp_path: Path) -> None:
    assert loaded(tmp_path, RECIPE.replace("A tiny one", "2026-01-01")).title == "2026-01-01"


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, RECIPE + "base: other\n")
    assert error.where.endswith(":12")
    assert "'base' stands here twice" in error.what


def test_a_key_may_override_what_is_merged_in() -> None:
    text = "one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}\nthree: {b: 4, <<: *one}\n"
    data = parse_yaml(text, "file")
    assert data["two"] == {"a": 1, "b": 3}
    assert data["three"] == {"a": 1, "b": 4}


def test_a_file_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    with pytest.raises(InvalidError, match="cannot read: No such file"):
        load(path, Recipe)
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(InvalidError, match="not UTF-8 text") as caught:
        load(path, Recipe)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "a: " + "[" * 60 + "]" * 60])
def test_deep_nesting_is_refused_before_it_overflows_the_stack(text: str) -> None:
    with pytest.raises(InvalidError, match="nested too deeply"):
        parse_yaml(text, "file")


@pytest.mark.parametrize("one", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_aliases_cannot_multiply(one: str) -> None:
    levels = [f"a{n}: &a{n} {one.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 9)]
    begin = time.monotonic()
    with pytest.raises(InvalidError, match="too large once its aliases are followed"):
        parse_yaml("\n".join(["a0: &a0 {k: v}", *levels]), "file")
    assert time.monotonic() - begin < 1


def test_an_alias_of_what_it_stands_in_is_refused() -> None:
    with pytest.raises(InvalidError, match="stands inside of itself"):
        parse_yaml("a: &a [*a]", "file")


def test_a_file_of_megabytes_is_refused() -> None:
    with pytest.raises(InvalidError, match="longer than"):
        parse_yaml("a: " + "x" * (1 << 20), "file")


def test_a_file_too_large_for_memory_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidError, match="larger than"):
        read_text(tmp_path / "large.yaml")


def test_a_byte_order_mark_stands_first_or_nowhere() -> None:
    """libyaml skips one before a key, other readers make it a part of the key."""
    assert parse_yaml("\ufeffa: 1", "file") == {"a": 1}
    with pytest.raises(InvalidError, match="byte order mark") as caught:
        parse_yaml("a: 1\nb:\n\ufeff  c: 2\n", "file")
    assert caught.value.where == "file:3"


@given(st.text())
def test_any_text_is_values_or_a_told_error(text: str) -> None:
    try:
        parse_yaml(text, "file")
    except InvalidError as error:
        assert error.where.startswith("file")


def test_a_layer_whose_patterns_do_not_compile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer.yaml"
    path.write_text(
        "name: one\ntitle: t\nproducer: config\nparameters:\n  p: {type: text, pattern: '[', help: h}\n", "utf-8"
    )
    with pytest.raises(InvalidError, match="not a regular expression") as caught:
        load(path, Layer)
    assert caught.value.where == f"{path}:5"
