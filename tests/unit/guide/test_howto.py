"""The how-to documents: their files are written to an empty folder, and their commands run in order."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.cli import CommandResult, run_here

ROOT = Path(__file__).resolve().parents[3]
DOCS = ("add-a-recipe", "add-a-layer")
# These commands need an engine, gigabytes or a GPU: `plan` with the same options stands for them.
HEAVY = {"build": ("--load",), "test": ("--tier", "static", "--tier", "cpu")}


def steps(name: str) -> list[tuple[str, str]]:
    """The code blocks of a document, in order: their language, and their text."""
    return re.findall(r"```(\w+)\n(.*?)```", (ROOT / f"docs/{name}.md").read_text("utf-8"), re.DOTALL)


class Newcomer:
    """An empty folder that a reader of the documents works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "recipes").mkdir()
        self.ran: list[str] = []

    def write(self, text: str, language: str) -> None:
        """Write a code block to its file: that of its `name`, or one in the folder of the layer before it."""
        name = re.search(r"(?m)^name: (\S+)$", text)
        if language == "dockerfile":
            path = self.layer / "Dockerfile.j2"
        elif name is None:
            # A part of a recipe: it is appended to the recipe.
            path = self.folder / "recipes/my-coder.yaml"
            text = path.read_text("utf-8") + text
        elif "producer:" in text:
            self.layer = self.folder / f"dockerfiles/layers/{name[1]}"
            path = self.layer / "layer.yaml"
        else:
            path = self.folder / f"recipes/{name[1]}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, line: str) -> CommandResult:
        words = shlex.split(line)
        assert words[0] == "builder"
        if words[1] in HEAVY:
            words = ["builder", "plan", *(word for word in words[2:] if word not in HEAVY[words[1]])]
        if words[1] == "run":
            words += ["--image", "my-coder:1"]
        if words[1:3] == ["new", "recipe"] and (self.folder / f"recipes/{words[3]}.yaml").exists():
            (self.folder / f"recipes/{words[3]}.yaml").unlink()
        environ = {key: value for key, value in os.environ.items() if not key.startswith("BUILDER_")}
        done = run_here(tuple(words[1:]), environ=environ, folder=self.folder)
        self.ran.append(words[1])
        assert done.code == 0, (line, done.err)
        return done


@pytest.mark.parametrize("document", DOCS)
def test_a_document_is_followed_to_its_end(document: str, tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    for language, text in steps(document):
        if language == "sh":
            for line in text.splitlines():
                done = newcomer.run(line)
                if line.startswith("builder lint"):
                    assert done.out == "", "the examples of the documents break no rule"
        else:
            newcomer.write(text, language)
    assert {"new", "lint", "plan"} <= set(newcomer.ran)


@pytest.mark.network
@pytest.mark.parametrize(
    ("number", "without"),
    [(0, 'without: ["vllm-0.20.0-cp313", "audio-0.20.0-cp313"]'), (1, 'without: ["trixie-root-arm64"]')],
    ids=["wheels", "debs"],
)
def test_packages_are_added_in_an_empty_folder_as_the_document_says(number: int, without: str, tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    commands = [text for language, text in steps("add-packages") if language == "sh"]
    for line in commands[number].splitlines():
        newcomer.run(line)
    assert newcomer.ran == ["add", "new", "lint", "plan", "plan"]
    assert without in (tmp_path / "recipes/locks/requests.yaml").read_text("utf-8")


def test_a_compiled_layer_takes_five_commands_and_the_document_shows_its_files(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    found = steps("add-a-layer")
    commands = next(text for _, text in found if "--compiled" in text).splitlines()
    assert len(commands) == 5
    for line in commands:
        newcomer.run(line)
    layer = tmp_path / "dockerfiles/layers/answer"
    for language, file in (("yaml", "layer.yaml"), ("dockerfile", "Dockerfile.j2")):
        assert any((layer / file).read_text("utf-8").endswith(text) for kind, text in found if kind == language)
    rendered = newcomer.run("builder render --recipe my-answer --set nccl.functions=inference").out
    assert "/context/layers/answer/answer.c" in rendered
    assert "FROM scratch AS answer\n" in rendered


def test_the_profile_example_can_be_used(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    for language, text in steps("add-a-recipe"):
        if language == "yaml":
            newcomer.write(text, language)
    assert (
        "--max-num-seqs 16" in newcomer.run("builder plan --recipe my-coder --base hermetic --profile throughput").out
    )
    assert "reason: measured with 16 requests" in newcomer.run("builder lint my-coder").out
