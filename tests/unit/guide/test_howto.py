"""A newcomer's way: the documents' files in an empty folder, and their commands, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCS = ("add-a-recipe", "add-a-layer")
# These take an engine, gigabytes or a GPU: that their options are understood is seen by planning the same.
HEAVY = {"build": ("--load",), "test": ("--tier", "static", "--tier", "cpu")}


def steps(name: str) -> list[tuple[str, str]]:
    """The code blocks of a document, in order: their language, and their text."""
    return re.findall(r"```(\w+)\n(.*?)```", (ROOT / f"docs/{name}.md").read_text("utf-8"), re.DOTALL)


class Newcomer:
    """Somebody with an empty folder and the documents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "recipes").mkdir()
        self.ran: list[str] = []

    def write(self, text: str, language: str) -> None:
        """Puts a block where the document says it goes: by its name, or into the folder of the layer before it."""
        name = re.search(r"(?m)^name: (\S+)$", text)
        if language == "dockerfile":
            path = self.layer / "Dockerfile.j2"
            (self.layer / "answer.c").write_text("int answer(void) { return 42; }\n")
        elif name is None:
            # A part of a recipe: it goes under what is there.
            path = self.folder / "recipes/my-coder.yaml"
            text = path.read_text("utf-8") + text
        elif "producer:" in text:
            self.layer = self.folder / f"dockerfiles/layers/{name[1]}"
            path = self.layer / "layer.yaml"
        else:
            path = self.folder / f"recipes/{name[1]}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line)
        assert words[0] == "builder"
        if words[1] in HEAVY:
            words = ["builder", "plan", *(word for word in words[2:] if word not in HEAVY[words[1]])]
        if words[1] == "run":
            words += ["--image", "my-coder:1"]
        if words[1:3] == ["new", "recipe"] and (self.folder / f"recipes/{words[3]}.yaml").exists():
            (self.folder / f"recipes/{words[3]}.yaml").unlink()
        env = {key: value for key, value in os.environ.items() if not key.startswith("BUILDER_")}
        argv = [sys.executable, "-m", "builder", *words[1:]]
        environ = {**env, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        self.ran.append(words[1])
        assert done.returncode == 0, (line, done.stderr)
        return done


@pytest.mark.parametrize("document", DOCS)
def test_a_document_is_followed_to_its_end(document: str, tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    for language, text in steps(document):
        if language == "sh":
            for line in text.splitlines():
                done = newcomer.run(line)
                if line.startswith("builder lint"):
                    assert done.stdout == "", "what the documents show breaks no rule"
        else:
            newcomer.write(text, language)
    assert {"new", "lint", "plan"} <= set(newcomer.ran)


def test_the_compiled_example_renders(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    for language, text in steps("add-a-layer"):
        if language != "sh":
            newcomer.write(text, language)
    recipe = tmp_path / "recipes/polite.yaml"
    recipe.write_text(recipe.read_text("utf-8").replace("greeting: {to: Spark}", "compiled"), "utf-8")
    rendered = newcomer.run("builder render --recipe polite --base hermetic").stdout
    assert "/context/layers/compiled/answer.c" in rendered
    assert "FROM scratch AS compiled\n" in rendered


def test_the_profile_example_can_be_used(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    for language, text in steps("add-a-recipe"):
        if language == "yaml":
            newcomer.write(text, language)
    said = newcomer.run("builder plan --recipe my-coder --base hermetic --profile throughput").stdout
    assert "--max-num-seqs 16" in said
    assert "overridden: measured with 16 requests" in newcomer.run("builder lint my-coder").stdout
