"""Variants and profiles: how a recipe is merged over the one it extends, and a profile over its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError, UsageError
from builder.model.recipe import Profile, Recipe
from builder.model.variant import extended, merge, with_profile
from builder.project import Project
from tests.support.errors import fails


def test_mappings_merge_lists_and_flag_values_are_replaced_whole() -> None:
    below: dict[str, Any] = {
        "run": {"port": 1, "env": {"A": "1"}},
        "layers": ["a", "b"],
        "serve": {"flags": {"speculative-config": {"method": "mtp", "n": 3}, "port": 1}},
    }
    above: dict[str, Any] = {
        "run": {"env": {"B": "2"}},
        "layers": ["c"],
        "serve": {"flags": {"speculative-config": {"method": "ngram"}}},
    }
    assert merge(below, above) == {
        "run": {"port": 1, "env": {"A": "1", "B": "2"}},
        "layers": ["c"],
        "serve": {"flags": {"speculative-config": {"method": "ngram"}, "port": 1}},
    }


def test_null_removes_a_key() -> None:
    below: dict[str, Any] = {"serve": {"flags": {"a": 1, "b": 2}}, "env": {"X": "1"}}
    assert merge(below, {"serve": {"flags": {"a": None}}, "env": None}) == {"serve": {"flags": {"b": 2}}}


def test_extending_inherits_all_but_name_title_and_speed() -> None:
    data: dict[str, dict[str, Any]] = {
        "a": {"name": "a", "title": "A", "base": "x", "speed": {"tokens_per_second": "1", "source": "s"}},
        "b": {"name": "b", "title": "B", "extends": "a"},
        "c": {"name": "c", "title": "C", "extends": "b", "base": "y"},
    }
    assert extended("c", data.__getitem__) == {"name": "c", "title": "C", "extends": "b", "base": "y"}
    assert extended("b", data.__getitem__)["base"] == "x"
    assert "speed" not in extended("b", data.__getitem__)


def test_a_recipe_that_extends_itself_is_refused() -> None:
    data: dict[str, dict[str, Any]] = {"a": {"extends": "b"}, "b": {"extends": "a"}}
    with fails(InvalidError, "recipe-extends-itself"):
        extended("a", data.__getitem__)


def recipe(**more: Any) -> Recipe:
    made = {"name": "r", "title": "t", "model": {"id": "x/y"}, "base": "b", "serve": {"flags": {"a": 1}}}
    return Recipe.model_validate({**made, **more})


def test_a_profile_changes_only_what_it_sets() -> None:
    long = {"title": "T", "serve": {"flags": {"a": 2}}, "notes": ["m"]}
    found = with_profile(recipe(notes=["n"], profiles={"long": long}), "long")
    assert found.serve.flags == {"a": 2}
    assert (found.title, found.base, found.notes) == ("t", "b", ("n", "m"))


def test_the_default_profile_is_the_recipe_and_an_unknown_one_lists_the_known() -> None:
    made = recipe(profiles={"fast": {"title": "T"}})
    assert with_profile(made, None) is made
    assert with_profile(made, "default") is made
    with fails(UsageError, "profile-unknown") as caught:
        with_profile(made, "other", {"ngram": Profile(title="n")})
    assert "default, ngram, fast" in caught.value.cause
    with fails(UsageError, "profile-unknown") as caught:
        with_profile(made, "fats")
    assert caught.value.cause == "did you mean fast?"


def test_profiles_combine_in_any_order_where_they_do_not_contradict() -> None:
    speed = {"tokens_per_second": "9", "source": "s"}
    one = {"title": "1", "serve": {"flags": {"a": 2, "c": {"d": 1}}}, "notes": ["one"], "speed": speed}
    two = {"title": "2", "serve": {"flags": {"a": 2, "b": 3}}, "run": {"port": 81}, "notes": ["two"]}
    made = recipe(profiles={"one": one, "two": two})
    found = with_profile(made, "two+one")
    assert found == with_profile(made, "one+two")
    assert found.serve.flags == {"a": 2, "b": 3, "c": {"d": 1}}
    assert (found.run.port, found.notes, found.speed) == (81, ("one", "two"), None)
    assert with_profile(made, "default+one") == with_profile(made, "one+one")


@pytest.mark.parametrize(
    ("one", "two", "key"),
    [
        ({"serve": {"flags": {"a": 2}}}, {"serve": {"flags": {"a": 3}}}, "serve.flags.a is 2 in one, and 3 in two"),
        ({"serve": {"flags": {"a": {"x": 1}}}}, {"serve": {"flags": {"a": {"y": 1}}}}, "serve.flags.a is"),
        ({"layers": ["x"]}, {"layers": ["y"]}, "layers is"),
        ({"base": "x"}, {"base": "y"}, 'base is "x" in one, and "y" in two'),
    ],
)
def test_profiles_that_contradict_are_both_named_with_the_key(one: Any, two: Any, key: str) -> None:
    made = recipe(profiles={"one": {"title": "1", **one}, "two": {"title": "2", **two}})
    with fails(UsageError, "profiles-contradict") as caught:
        with_profile(made, "one+two")
    assert "one and two" in caught.value.what
    assert key in caught.value.cause


def test_a_recipe_of_a_project_may_extend_a_shipped_one(tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "name: mine\ntitle: My own\nextends: nemotron-omni\n"
        "serve: {flags: {max-num-seqs: 2, served-model-name: mine}}\n"
    )
    shipped = Project().roots[-1]
    project = Project((tmp_path, shipped))
    mine, theirs = project.recipe("mine"), project.recipe("nemotron-omni")
    assert mine.layers == theirs.layers
    assert mine.serve.flags["max-num-seqs"] == 2
    assert mine.serve.flags["max-model-len"] == theirs.serve.flags["max-model-len"]
    (folder / "bad.yaml").write_text("name: bad\ntitle: t\nextends: nemotron-omni\nlayer: []\n")
    with fails(InvalidError, "key-unknown") as caught:
        project.recipe("bad")
    assert caught.value.where.endswith("bad.yaml:4")
