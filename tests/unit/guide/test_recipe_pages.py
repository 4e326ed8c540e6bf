"""The commands of every recipe page work as they are printed, and the pages answer in order."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from builder.project import Project
from tests.support.cli import CommandResult, run_here
from tests.support.nightly import nightly_but
from tests.support.shipped import pages

ROOT = Path(__file__).resolve().parents[3]
PROJECT = Project((ROOT,))
PAGES = pages()
USUAL = ("nemotron-omni", "minimax-m2.7-dual", "gemma4-31b-dflash", "gpt-oss-120b")
"""One and two nodes, a drafter, a base of a vendor."""
QUESTIONS = ["Will it run on my machine", "Build", "How fast", "When memory is short", "Serving command", "Profiles"]


def commands(name: str) -> list[list[str]]:
    """The commands for a shell on a page, without the serving command."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGES[f"recipes/{name}.md"], re.DOTALL)
    lines = [line for block in blocks if not block.startswith("vllm") for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


def harmless(words: list[str]) -> tuple[list[str], set[int]]:
    """A command that changes nothing and stands for this one, and the exit codes that it may end with."""
    command, *options = words
    plain = [word for word in options if word not in ("--exec", "--load")]
    if command == "build":
        return ["plan", *plain], {0}
    if command == "run" and "--netplan" not in plain:
        return ["run", *plain, "--image", "x:1"], {0}
    if command == "doctor":
        return words, {0, 5}
    if command == "bench":
        return [*words, "--url", "http://127.0.0.1:9"], {6}
    return [command, *plain], {0}


@pytest.mark.parametrize("name", nightly_but(PROJECT.recipe_names(), *USUAL))
def test_every_command_of_a_page_works_as_printed(name: str, tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("BUILDER_")}
    environ |= {"HOME": str(tmp_path), "BUILDER_STORE": str(tmp_path / "store"), "BUILDER_PROJECT": str(ROOT)}

    def call(words: list[str]) -> CommandResult:
        return run_here(tuple(words), environ=environ, folder=tmp_path)

    ran, pinned = [], True
    for words in commands(name):
        if words[0] == "sudo":
            continue
        assert words[0] == "builder"
        ran.append(words[1])
        if words[1] == "lock":
            # It needs a registry; the build after it needs its result.
            assert PROJECT.base(words[-1])
            pinned = False
            continue
        instead, codes = harmless(words[1:])
        done = call(instead)
        if words[1] == "build" and not pinned:
            assert (done.code, "[base-not-pinned]" in done.err) == (4, True)
        else:
            assert done.code in codes, (words, done.err)
    assert [step for step in ran if step != "lock"][:2] == ["doctor", "build"]
    assert {"prefetch", "run", "bench"} <= set(ran)


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_a_page_answers_in_order(name: str) -> None:
    page = PAGES[f"recipes/{name}.md"]
    found = re.findall(r"(?m)^## (.*)$", page)
    assert [title for title in found if title in QUESTIONS] == QUESTIONS
    assert ("Two Sparks, step by step" in found) == (PROJECT.recipe(name).nodes == 2)
    assert found[-1].startswith("What differs from the sources")


def test_two_nodes_step_by_step() -> None:
    page = PAGES["recipes/minimax-m2.7-dual.md"]
    steps = ["--netplan", "builder doctor", "prefetch", "drop_caches", "--role head", "--role worker"]
    places = [page.index(step, page.index("step by step")) for step in steps]
    assert places == sorted(places)
    assert page.count("--hca rocep1s0f1,roceP2p1s0f1") == 3
    assert "--hca" not in PAGES["recipes/qwen3.5-122b-fp8-dual.md"], "sockets need no RDMA devices"
