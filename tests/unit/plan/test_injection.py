"""No text of a recipe, base, layer or command line becomes a Dockerfile instruction or a shell command.

The rendered Dockerfile is read back by a parser of its own: kinds and number of instructions never change, and every
value comes out as it went in.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from builder.errors import BuilderError, InvalidError
from builder.model.plan import Plan
from builder.oci.assemble import environment
from builder.plan.placed import run_instruction
from builder.plan.render import render
from builder.plan.resolve import resolve
from builder.plan.template import render_dockerfile, sh
from builder.project import Project
from tests.support.dockerfile import Instruction, parse, stages
from tests.support.errors import fails
from tests.support.fuzz import times
from tests.support.project import sample

NASTY = st.text("ab \"'`$\\(){}[]<>|&;#=:,*?!~\u00a0\ufeffä%-" + "\U0001f600", max_size=30)
EXAMPLES = [
    "X\\",
    '"',
    '" \\',
    "$(touch /tmp/evil)",
    "`id`",
    "${PATH}",
    "$PATH",
    "\\${PATH}",
    "a b=c",
    "'; rm -rf / #",
    "<<EOF",
    "# comment",
    "{{ base.name }}",
    "{% raw %}",
    " leading and trailing ",
    "",
]
CONTROL = ["ENV X=1\nRUN evil", "a\rRUN evil", "a\\\nRUN evil", "\x00", "\x0b", "\x0c", "\x1c", "\x1b[0m", "\x7f"]
UNSEEN = ["\x85RUN evil", "\x9b0m", "\u202e", "\u2028RUN evil", "\u200f"]
"""Characters that a Dockerfile can contain and that a reader does not see."""


FOLDER = TemporaryDirectory(prefix="builder-injection-")


@cache
def project() -> Project:
    return sample().write(Path(FOLDER.name))


def plan(
    env: str = "a", label: str = "a", flag: str = "a", model: str = "a", other: Mapping[str, Any] | None = None
) -> Plan:
    """The small recipe with text at every place that takes any."""
    recipe = project().recipe("tiny")
    data = recipe.model_dump()
    data["title"] = label
    data["env"] = {"FIRST": env, "LIBS": env, "LAST": "last"}
    data["serve"] = {"model": model, "flags": {"text": flag, "list": (flag, "b"), "json": {flag: [flag, {"k": flag}]}}}
    data |= other or {}
    return resolve(project(), type(recipe).model_validate(data))


def read(made: Plan) -> list[Instruction]:
    return parse(render(project(), made))


def kinds(instructions: list[Instruction]) -> list[str]:
    return [item.name for item in instructions]


def values(image: list[Instruction], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in image:
        if item.name == name:
            key, value = item.pair(found)
            found[key] = value
    return found


def check(made: Plan) -> None:
    instructions = read(made)
    assert kinds(instructions) == kinds(read(plan()))
    image = stages(instructions)["image"]
    assert [f"{k}={v}" for k, v in values(image, "ENV").items()] == environment([], made.env)
    assert values(image, "LABEL") == dict(made.labels)
    words = {item.name: item.words() for item in image if item.name in ("ENTRYPOINT", "CMD")}
    assert words == {"ENTRYPOINT": list(made.entrypoint or ()), "CMD": list(made.command)}


def test_the_benign_plan_has_all_places() -> None:
    found = stages(read(plan()))
    assert next(iter(found)) == "toolchain"
    assert {"compiled-build", "compiled"} <= set(found)
    assert list(found)[-1] == "image"
    assert {"ENV", "LABEL", "ENTRYPOINT", "CMD", "COPY", "WORKDIR"} <= {item.name for item in found["image"]}


@given(NASTY, NASTY, NASTY, NASTY)
@settings(max_examples=times(60))
def test_values_reach_the_dockerfile_unchanged(env: str, label: str, flag: str, model: str) -> None:
    check(plan(env, label, flag, model))


@pytest.mark.parametrize("text", EXAMPLES)
def test_text_with_special_characters_stays_data(text: str) -> None:
    check(plan(text, text, text, text))


@pytest.mark.parametrize("text", [*CONTROL, *UNSEEN])
@pytest.mark.parametrize("place", ["env", "label", "flag", "model"])
def test_control_characters_are_refused(text: str, place: str) -> None:
    with pytest.raises((ValidationError, InvalidError)):
        check(plan(**{place: text}))


@pytest.mark.parametrize(
    "other",
    [
        {"env": {"A=1\nRUN evil": "x"}},
        {"env": {"A B": "x"}},
        {"env": {"A\u2028": "x"}},
        {"name": "a\nRUN evil"},
        {"name": "$(evil)"},
        {"base": "../evil"},
        {"layers": ["compiled", "placed\nRUN evil"]},
        {"serve": {"model": "m", "flags": {"a b": 1}}},
        {"serve": {"model": "m", "flags": {"-a": 1}}},
        {"model": {"id": "a/b\nRUN evil"}},
    ],
    ids=str,
)
def test_names_are_refused_before_they_reach_a_template(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        plan(other=other)


@given(st.text(max_size=20) | NASTY)
@settings(max_examples=times(60))
@example("all\nRUN evil")
@example("all; evil")
@example("$(evil)")
@example("all && evil")
@example("(AllReduce|Reduce) (Sum|MinMax) * *")
def test_a_parameter_is_one_word_of_one_command_or_refused(text: str) -> None:
    recipe = project().recipe("tiny")
    try:
        made = resolve(project(), recipe, sets={"compiled": {"words": text}})
    except BuilderError:
        return
    found = read(made)
    assert kinds(found) == kinds(read(resolve(project(), recipe)))
    (run,) = [item for item in stages(found)["compiled-build"] if item.name == "RUN"]
    command = run.rest.partition(" ")[2]
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["make", "-f", "/context/inputs/widget-1.0.tar.gz", text]


@given(st.lists(NASTY, min_size=1, max_size=8))
@settings(max_examples=times(40))
def test_sh_makes_one_word_of_any_line(texts: list[str]) -> None:
    words = " ".join(sh(text) for text in texts)
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {words}"], capture_output=True, check=True).stdout.decode()
    assert shown == "".join(f"{text}\n" for text in texts)


@pytest.mark.parametrize("text", CONTROL)
@pytest.mark.parametrize("filter", ["sh", "dockerfile", "word", "exec_form"])
def test_no_filter_lets_a_control_character_through(filter: str, text: str) -> None:
    value: object = [text] if filter == "exec_form" else text
    with pytest.raises(InvalidError):
        render_dockerfile(f"RUN x {{{{ value | {filter} }}}}", {"value": value}, "here")


@pytest.mark.parametrize("text", ["a b", "$x", "a;b", '"', "`", "\\", "ä", "a\nb", "(", "*", "\u2028"])
def test_an_unquoted_value_fails_to_render(text: str) -> None:
    with fails(InvalidError, "value-unquoted") as caught:
        render_dockerfile("FROM x\nRUN {{ value }}", {"value": text}, "Dockerfile.j2")
    assert caught.value.where == "Dockerfile.j2"


def test_a_placed_file_holds_exactly_its_content(tmp_path: Path) -> None:
    contents = ["", "-e\n", "a%sb%%\n", "tab\there\n", "no newline", "back\\slash\\n", "ä\u2028\n", "\\055"]
    contents.append("'q' \"q\" `q` $q $(q) #\n")
    files = [{"path": f"etc/d{n}/a file", "content": text} for n, text in enumerate(contents)]
    files += [
        {"path": "opt/link", "link": "/etc/a b"},
        {"path": "opt/empty", "directory": True},
        {"path": "opt/run", "content": "#!/bin/sh\n", "mode": "0755"},
    ]
    (run,) = parse(str(run_instruction(files, str(tmp_path))))
    subprocess.run(["sh", "-c", run.rest], check=True)
    assert [(tmp_path / f"etc/d{n}/a file").read_text("utf-8") for n in range(len(contents))] == contents
    assert (tmp_path / "opt/link").readlink() == Path("/etc/a b")
    assert (tmp_path / "opt/empty").is_dir()
    assert (tmp_path / "opt/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "etc/d0/a file").stat().st_mode & 0o777 == 0o644
