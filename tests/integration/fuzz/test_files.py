"""Thousands of damaged files: each is refused with an InvalidError, or loads with exactly its values.

Wrongly accepted would be: an unknown or duplicate key, a value of another type than the file's, a number out of bounds,
an invalid digest, size or platform. BUILDER_FUZZ multiplies the number of inputs, BUILDER_FUZZ_SEED chooses others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from builder.errors import InvalidError
from builder.model.base import Base
from builder.model.layer import Layer
from builder.model.lockfile import load_requests, load_section
from builder.model.recipe import Profile, Recipe
from builder.model.yamlfile import load
from builder.registry.config import RegistriesConfig
from tests.support.fuzz import SEED, TIMES, times
from tests.support.mutate import Mutator
from tests.support.oracle import AmbiguousFileError, differs, plain_values
from tests.support.project import ROOT

SECONDS = 10.0
"""The longest time to refuse one file, on a busy machine."""

FREE = ("args", "content", "flags", "model")
"""JSON of any form, or text of several lines: never part of a command line."""

REGISTRIES = """\
docker.io:
  mirror: [mirror.lan:5000/hub, other.example]
nvcr.io:
  mirror:
    - "[::1]:5000/nv/cache"
mirror.lan:5000:
  insecure: true
"""


def shipped(pattern: str, without: str = "\0") -> list[Path]:
    return [path for path in sorted(ROOT.glob(pattern)) if f"\n{without}" not in path.read_text("utf-8")]


def of_model(model: type[BaseModel]) -> Callable[[Path], BaseModel]:
    return lambda path: load(path, model)


KINDS: dict[str, tuple[str, list[Path], Callable[[Path], Any], int]] = {
    "base": ("yaml", shipped("recipes/bases/*.yaml"), of_model(Base), 300),
    "recipe": ("yaml", shipped("recipes/*.yaml", "extends:"), of_model(Recipe), 300),
    "profile": ("yaml", shipped("recipes/profiles/*.yaml"), of_model(Profile), 200),
    "layer": ("yaml", shipped("dockerfiles/layers/*/layer.yaml"), of_model(Layer), 250),
    "requests": ("yaml", shipped("recipes/locks/requests.yaml"), load_requests, 200),
    "lock": ("json", shipped("recipes/locks/*.json"), load_section, 700),
}


def variants(kind: str, paths: list[Path], count: int) -> Iterator[tuple[Path, bytes]]:
    """`count` variants in total, about equally many of each file."""
    each = max(1, round(count * TIMES / len(paths)))
    for path in paths:
        for data in Mutator(path.read_text("utf-8"), kind, f"{SEED} {path.name}").some(each):
            yield path, data


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_refused_or_loaded_with_its_values(name: str, tmp_path: Path) -> None:
    kind, paths, loader, count = KINDS[name]
    refused = accepted = 0
    for original, data in variants(kind, paths, count):
        path = tmp_path / original.name
        path.write_bytes(data)
        begin = time.monotonic()
        try:
            made = loader(path)
        except InvalidError as error:
            refused += 1
            assert error.what
            assert str(path) in error.where
            continue
        finally:
            assert time.monotonic() - begin < SECONDS
        accepted += 1
        check(made, data, kind, name)
    # A fuzzer whose files are all refused, or all accepted, proves nothing.
    assert refused > count * TIMES / 3
    assert accepted > count * TIMES / 50


def check(made: BaseModel, data: bytes, kind: str, name: str) -> None:
    try:
        values = plain_values(data, kind)
    except AmbiguousFileError as error:
        raise AssertionError(f"accepted, though {error}:\n{data!r}") from None
    if name == "requests":
        values = {key: value for key, value in values.items() if not str(key).startswith("x-")}
    assert not (where := differs(made, values)), f"{where}\n{data!r}"
    for field, value in scalars(made):
        if field in ("sha256", "sdist"):
            assert re.fullmatch("[0-9a-f]{64}", value)
        elif field in ("index", "manifest"):
            assert re.fullmatch("sha256:[0-9a-f]{64}", value)
        elif field == "size":
            assert 0 <= value < 2**53
        elif field in ("commit", "tree"):
            assert re.fullmatch("[0-9a-f]{40}", value)
        elif field == "architecture":
            assert value in ("amd64", "arm64", "all")
        if isinstance(value, str) and field not in FREE:
            assert not re.search(r"[\x00-\x1f\x7f]", value)


def scalars(value: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar with the name of its field."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from scalars(getattr(value, name), name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from scalars(key, field)
            yield from scalars(item, field)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from scalars(item, field)
    elif value is not None:
        yield field, value


def test_damaged_registries(tmp_path: Path) -> None:
    path = tmp_path / "registries.yaml"
    refused = accepted = 0
    for data in Mutator(REGISTRIES, "yaml", SEED).some(times(700)):
        path.write_bytes(data)
        begin = time.monotonic()
        try:
            found = RegistriesConfig.load(path)
        except InvalidError as error:
            refused += 1
            assert str(path) in error.where
            continue
        finally:
            assert time.monotonic() - begin < SECONDS
        accepted += 1
        values = plain_values(data, "yaml") or {}
        assert set(values) == set(found.entries)
        for host, entry in found.entries.items():
            assert not (where := differs(entry, values[host])), f"{where}\n{data!r}"
            for endpoint in found.endpoints(host):
                assert re.fullmatch(r"https?://[a-z0-9.:\[\]-]+", endpoint.base)
                assert not endpoint.prefix.startswith(("/", "."))
    assert refused > 200 * TIMES
    assert accepted > 20 * TIMES


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "a: &a {k: v}\n" + "".join(f"b{n}: &b{n} {{<<: [*a, *a], x{n}: *a}}\n" for n in range(2000)),
        "[" * 100_000,
        "{a: " * 50_000,
        "- " * 100_000,
        "a: " + "9" * 1_000_000,
        "a: !!float " + "9" * 400_000,
        "a: &a\n  b: *a\n",
        "? &a [*a]\n: b\n",
        "a: " + "'" * 500_000,
        "x: 1\n" * 100_000,
        "\n".join(f"k{n}: 1" for n in range(100_000)),
        "%TAG ! tag:x,2000:\n---\na: !y z\n",
        "a: 1\n---\nb: 2\n",
        "#" * 900_000 + "\na: 1\n",
        "a: !!timestamp 2026-01-01\n",
        "a: 190:20:30:" + ":".join("59" for _ in range(5000)) + "\n",
    ],
    ids=lambda text: text[:12].strip(),
)
def test_bombs_are_refused_in_time(tmp_path: Path, text: str) -> None:
    loaders = [("x.yaml", loader) for kind, _, loader, _ in KINDS.values() if kind == "yaml"]
    for name, loader in [*loaders, ("x.json", load_section), ("registries.yaml", RegistriesConfig.load)]:
        path = tmp_path / name
        path.write_text(text)
        begin = time.monotonic()
        with pytest.raises(InvalidError):
            loader(path)
        assert time.monotonic() - begin < SECONDS
