"""Commands that read a project: start-up, completion, list, plan, lint; and how they grow with the recipes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from measure import Command, Row, in_turns
from place import ROOT, Place

COUNTS = (1, 10, 100)
START, READ_ALL = 0.25, 1.5
LIBRARIES = "import jinja2, pydantic, typer, yaml"


def start(place: Place) -> Iterator[Row]:
    """What a person waits for at each command."""
    program = place.builder("--help")
    words = "builder build --recipe nemo"
    asked = {
        "_BUILDER_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        **program.environ,
    }
    complete = "import sys; sys.argv = ['builder']; from builder.__main__ import main; main()"
    for work, command, target in (
        ("builder --help", program, START),
        ("completion of a recipe", Command([sys.executable, "-c", complete], asked, place.folder), START),
        # No command that reads a recipe can be faster than this.
        ("Python with Jinja, pydantic, PyYAML, Typer", Command([sys.executable, "-c", LIBRARIES]), None),
        ("builder list", place.builder("list"), None),
        ("builder plan nemotron-omni", place.builder("plan", "nemotron-omni", "--base", "hermetic"), None),
        ("builder lint, all shipped recipes", place.builder("lint", project=ROOT), None),
    ):
        [ours] = in_turns(max(place.runs, 5), command)
        yield Row("start", work, ours, target=target)


def recipes(place: Place) -> Iterator[Row]:
    """Lint and plan of 1, 10 and 100 recipes of a project."""
    folder = place.folder / "many"
    (folder / "recipes").mkdir(parents=True, exist_ok=True)
    text = (place.project / "recipes/stack.yaml").read_text("utf-8")
    for count in COUNTS:
        names = [f"stack-{number}" for number in range(count)]
        for name in names:
            (folder / f"recipes/{name}.yaml").write_text(text.replace("name: stack", f"name: {name}"), "utf-8")
        lint = place.builder("lint", *names, project=folder)
        [ours] = in_turns(place.runs, lint)
        target = READ_ALL if count == COUNTS[-1] else None
        yield Row("recipes", f"builder lint of {count} recipes", ours, target=target, size=count)
