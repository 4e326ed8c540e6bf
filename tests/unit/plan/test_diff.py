"""The differences of two plans, of two locks, and of two commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.plan.diff import Change, differences, lock_contents, options, plan_contents
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.project import Sample, hashed

SECTION = "recipes/locks/tiny-wheels.json"


def change_files(sample: Sample, change: Callable[[dict[str, Any]], Any], tmp_path: Path) -> tuple[Project, Project]:
    old = sample.write(tmp_path / "old")
    change(sample.files)
    return old, sample.write(tmp_path / "new")


def env(files: dict[str, Any]) -> None:
    files["recipes/tiny.yaml"]["env"]["LAST"] = "other"


def flag(files: dict[str, Any]) -> None:
    files["recipes/tiny.yaml"]["serve"]["flags"] = {"port": 9000, "seed": 1}


def wheel_of_another_version(files: dict[str, Any]) -> None:
    files[SECTION]["wheels"][0] |= {"version": "2.0", "file": "alpha-2.0-py3-none-any.whl"}


def another_wheel(files: dict[str, Any]) -> None:
    files[SECTION]["wheels"][0] |= hashed(b"another build")


def package(files: dict[str, Any]) -> None:
    files["recipes/locks/tiny-root.json"]["packages"][1]["version"] = "2"


def toolchain(files: dict[str, Any]) -> None:
    files["recipes/locks/toolchain-arm64.json"]["packages"][1]["version"] = "2"


def layer(files: dict[str, Any]) -> None:
    files["recipes/tiny.yaml"]["layers"].remove("placed")


def script(files: dict[str, Any]) -> None:
    files["dockerfiles/layers/compiled/Dockerfile.j2"] += "# more\n"


def source(files: dict[str, Any]) -> None:
    files["recipes/tiny.yaml"]["layers"][0] = {"compiled": {"version": "2.0"}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (env, [("env", "LAST", "word", "other")]),
        (flag, [("option", "--port", "8000", "9000"), ("option", "--seed", None, "1")]),
        (wheel_of_another_version, [("python", "alpha", "1.0", "2.0"), ("layer", "wheels-alpha", ...)]),
        (another_wheel, [("python", "alpha", "1.0 (sha256", "1.0 (sha256"), ("layer", "wheels-alpha", ...)]),
        (package, [("debian", "tool", "1", "2")]),
        (toolchain, [("toolchain", "arm64 make", "1", "2")]),
        (layer, [("layer", "placed", ...)]),
        (script, [("layer", "compiled", ...)]),
        (
            source,
            [
                ("source", "widget", "1.0", "2.0"),
                ("env", "WIDGET", "1.0", "2.0"),
                ("label", "org.example.widget", "1.0", "2.0"),
                ("layer", "compiled", ...),
            ],
        ),
    ],
)
def test_what_changed(
    small: Sample, tmp_path: Path, change: Callable[[dict[str, Any]], Any], expected: list[tuple[Any, ...]]
) -> None:
    plans = [
        plan_contents(resolve(project, project.recipe("tiny"))) for project in change_files(small, change, tmp_path)
    ]
    found = differences(plans[0], plans[1])
    assert [(item.kind, item.name) for item in found] == [(kind, name) for kind, name, *_ in expected]
    for item, (_, _, *values) in zip(found, expected, strict=True):
        if values != [...]:
            for text, start in zip((item.old, item.new), values, strict=True):
                assert text == start or str(text).startswith(f"{start}"), item
    assert differences(plans[0], plans[0]) == []


def test_a_lock(small: Sample, tmp_path: Path) -> None:
    projects = change_files(small, another_wheel, tmp_path)
    locks = [lock_contents("lock", map(project.section, project.section_names())) for project in projects]
    (found,) = differences(*locks)
    assert (found.kind, found.name) == ("python", "tiny-wheels/alpha") and found.old != found.new


def test_what_a_lock_says_beside_its_files(small: Sample, tmp_path: Path) -> None:
    """Another place of a file, and the first of two wheels of one name, were no difference."""
    projects = change_files(small, lambda files: files[SECTION]["request"].update(python="3.12"), tmp_path)
    locks = [lock_contents("lock", map(project.section, project.section_names())) for project in projects]
    assert [change.name for change in differences(*locks)] == ["what is not listed"]


def test_a_commit_is_named(small: Sample, tmp_path: Path) -> None:
    project = small.write(tmp_path)
    contents = plan_contents(resolve(project, project.recipe("tiny")), lambda name, version: "1" * 40)
    assert contents.text("source", "widget") == "1.0 (111111111111)"


def test_options() -> None:
    words = ["vllm", "serve", "a/b", "--port", "1", "--x={}", "--flag", "--set", "1", "-2", "--port", "3", "-c", "d"]
    assert {name: fact.text for name, fact in options(words).items()} == {
        "program": "vllm serve a/b",
        "--port": "1 3",
        "--x": "{}",
        "--flag": "",
        "--set": "1 -2",
        "-c": "d",
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--x", "1 2"], ["--x", "1", "2"]),
        (["--x", "1", "--y", "2", "--x", "3"], ["--x", "1", "3", "--y", "2"]),
        (["--y", "2", "--x", "1"], ["--x", "1", "--y", "2"]),
    ],
)
def test_commands_of_other_words_differ(small: Sample, tmp_path: Path, one: list[str], other: list[str]) -> None:
    project = small.write(tmp_path)
    plan = resolve(project, project.recipe("tiny"))
    old, new = (plan_contents(replace(plan, command=tuple(words))) for words in (one, other))
    assert "option" in {change.kind for change in differences(old, new)}


def test_nothing_differs_only_when_the_plans_are_equal(small: Sample, tmp_path: Path) -> None:
    project = small.write(tmp_path)
    plan = resolve(project, project.recipe("tiny"))
    others = [
        replace(plan, layers=plan.layers[::-1]),
        replace(plan, layers=(replace(plan.layers[0], replaces=("/usr/bin/sh",)), *plan.layers[1:])),
        replace(plan, entrypoint=(), command=(*(plan.entrypoint or ()), *plan.command, "x")),
        replace(plan, notes=("other",)),
        replace(plan, checks=()),
    ]
    assert len(plan.layers) > 1 and plan.checks
    for other in others:
        assert differences(plan_contents(plan), plan_contents(other)), other
    assert not differences(plan_contents(plan), plan_contents(replace(plan)))


def test_kinds_that_one_side_does_not_know_are_not_compared(small: Sample, tmp_path: Path) -> None:
    project = small.write(tmp_path)
    plan = plan_contents(resolve(project, project.recipe("tiny")))
    facts = {kind: found for kind, found in plan.facts.items() if kind != "debian"}
    other = type(plan)("image", "image", facts)
    assert all(change.kind != "debian" for change in differences(plan, other))
    assert Change("env", "LAST", "word", None) in differences(plan, type(plan)("x", "plan", {**facts, "env": {}}))
