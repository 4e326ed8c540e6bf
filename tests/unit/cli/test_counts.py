"""What commands cost, in counts that depend on no machine: processes, connections, files, hashed and sent bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from builder.plan.resolve import resolve
from builder.project import Project
from builder.store.store import Store
from tests.support.cli import Cli
from tests.support.counted import Counted, counted
from tests.support.engine import FakeEngine, build
from tests.support.mirror import Mirror
from tests.support.strict_registry import strict_registry

PARSERS = {"pydantic", "yaml", "jinja2", "re2", "rich"}
NETWORK = {"requests", "urllib3", "http.client", "ssl", "cryptography"}
WORK = {"zstandard", "builder.engine.process", "builder.produce", "builder.smoke"}
COMPLETIONS = {
    "bash": {"COMP_WORDS": "builder build --recipe ti", "COMP_CWORD": "3"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "builder build --recipe ti"},
    "fish": {"_TYPER_COMPLETE_ARGS": "builder build --recipe ti", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


def quiet(done: Counted) -> Counted:
    """The command succeeded, started no process and connected to nothing."""
    assert (done.code, done.started, done.connected) == (0, [], [])
    return done


@pytest.mark.parametrize(
    ("words", "hashed", "times", "absent"),
    [
        # All commands with their parameters.
        ("--man", 0, 1, PARSERS | NETWORK | WORK),
        ("list", 0, 1, NETWORK | WORK | {"jinja2", "builder.plan.resolve"}),
        ("plan tiny", 6_000, 1, NETWORK | WORK),
        # Also for the lines that it names.
        ("lint", 6_000, 1, {"zstandard", "cryptography", "builder.produce"}),
    ],
)
def test_what_reads_a_project(cli: Cli, words: str, hashed: int, times: int, absent: set[str]) -> None:
    done = quiet(counted(cli, *words.split()))
    assert absent & {*done.modules} == set()
    assert done.hashed <= hashed
    files = [path for path in done.read if path.endswith((".yaml", ".json", ".j2"))]
    assert max(Counter(files).values(), default=1) <= times
    assert not [path for path in done.written if path.startswith(str(cli.folder))]


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completion_of_a_recipe_reads_no_file(cli: Cli, shell: str) -> None:
    done = quiet(counted(cli, _BUILDER_COMPLETE=f"complete_{shell}", **COMPLETIONS[shell]))
    assert "tiny" in done.out
    assert (PARSERS | NETWORK | WORK) & {*done.modules} == set()
    assert not done.below(cli.folder / "project")


@dataclass(frozen=True)
class Stored:
    """The small project, compiled layer and all, is in the store; there is no engine on this machine.

    blobs: the names of its layers and inputs, by their paths in the store.
    """

    cli: Cli
    layers: int
    blobs: dict[str, str]

    def build(self, value: str) -> Counted:
        """Build with this value of the recipe's variable. Neither a layer nor an input is read."""
        self.cli.small.files["recipes/tiny.yaml"]["env"]["LAST"] = value
        done = quiet(counted(self.cli, "build", "tiny"))
        assert not self.read(done)
        return done

    def opened(self, done: Counted) -> int:
        """How many files of the store were opened to be read."""
        return done.below(self.cli.folder / "store").total()

    def read(self, done: Counted) -> set[str]:
        """The layers and inputs that were read."""
        return {self.blobs[path] for path in done.below(self.cli.folder / "store") if path in self.blobs}


@pytest.fixture
def stored(cli: Cli, mirror: Mirror, engine: FakeEngine) -> Stored:
    cli.environ |= mirror.environment
    cli.write()
    project = Project((cli.folder / "project",))
    built = build(resolve(project, project.recipe("tiny")), Store(cli.folder / "store"), engine)
    mirror.asked.clear()
    names = {record.digest.hex: id for id, record in built.records.items()}
    names |= {item.sha256: item.name for layer in built.plan.layers for item in layer.inputs}
    return Stored(cli, len(built.records), {f"blobs/sha256/{hex}": name for hex, name in names.items()})


def test_a_build_of_what_is_there(stored: Stored, mirror: Mirror) -> None:
    unchanged, changed = stored.build("word"), stored.build("other")
    assert changed.out != unchanged.out
    # Of each layer its record and its receipt; of the image its record, its manifest and its configuration.
    assert stored.opened(unchanged) <= 5 * stored.layers + 3
    assert unchanged.hashed <= 36_000
    # Also the lists of the files of the layers, which may conflict.
    assert stored.opened(changed) <= 7 * stored.layers + 3
    assert changed.hashed <= unchanged.hashed + 9_000
    assert mirror.asked == []


def test_a_first_build_asks_for_each_input_once(online: Cli, mirror: Mirror) -> None:
    done = counted(online, "build", "tiny")
    assert (done.code, done.started) == (0, [])
    assert max(Counter(mirror.asked).values()) == 1


def test_a_second_push(stored: Stored) -> None:
    with strict_registry() as registry:
        for value, requests, sent in (("word", 44, 32_000), ("word", 10, 0), ("other", 32, 28_000)):
            stored.build(value)
            asked, received = len(registry.asked), registry.received
            done = counted(stored.cli, "push", "tiny", f"{registry.host}/team/tiny:1")
            assert done.code == 0
            assert len(registry.asked) - asked <= requests
            assert registry.received - received <= sent
            # The revision of the project.
            assert all("'git'" in each for each in done.started)
            # What the image consists of is read where no wheel says it.
            assert not asked or stored.read(done) <= {
                "root",
                "compiled",
                "placed",
                "alpha 1.0",
                "beta 1.0",
                "gamma 1.0",
            }
