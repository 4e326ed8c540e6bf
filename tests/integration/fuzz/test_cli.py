"""Damaged files in a project, on the command line: an exit code and message of builder, never a traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import CommandResult, run_here
from tests.support.fuzz import SEED, times
from tests.support.mutate import Mutator
from tests.support.project import ask_locks, sample, vendor_base, write_files

DIGEST = "sha256:" + "a" * 64
Command = tuple[str, ...]
PLAN: Command = ("plan", "--recipe", "tiny", "--json")
VENDOR: Command = ("plan", "--recipe", "tiny", "--base", "vendor", "--json")
CHECK: Command = ("lock", "--check")
RENDER: Command = ("render", "--recipe", "tiny")

FILES: dict[str, tuple[list[Command], int]] = {
    "recipes/tiny.yaml": ([PLAN, RENDER, ("lint", "--recipe", "tiny")], 20),
    "recipes/bases/tiny.yaml": ([PLAN, CHECK], 20),
    "recipes/bases/vendor.yaml": ([VENDOR, ("list", "bases", "--json"), CHECK], 20),
    "recipes/locks/requests.yaml": ([CHECK, ("lock", "nothing")], 20),
    "recipes/locks/tiny-wheels.json": ([PLAN, CHECK], 20),
    "recipes/locks/tiny-root.json": ([PLAN, CHECK], 15),
    "recipes/locks/sources.json": ([PLAN, CHECK], 15),
    "dockerfiles/layers/compiled/layer.yaml": ([PLAN, RENDER], 20),
    "dockerfiles/layers/placed/layer.yaml": ([PLAN], 15),
    "registries.yaml": ([("lock", "--check", "--remote", "vendor")], 20),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small = sample()
    for name in ("recipes/tiny.yaml", "recipes/bases/tiny.yaml"):
        small.files[name]["notes"] = ["one", "two"]
    small.files["recipes/tiny.yaml"] |= {"compatible": ["vendor"]}
    # No server listens on port 1.
    small.files["recipes/bases/vendor.yaml"] = vendor_base("127.0.0.1:1/team/app:1", DIGEST)
    ask_locks(small.files)
    small.write(tmp_path)
    write_files(tmp_path, {"registries.yaml": "mirror.lan:\n  insecure: true\n"})
    monkeypatch.setenv("BUILDER_PROJECT", str(tmp_path))
    monkeypatch.setenv("BUILDER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("BUILDER_REGISTRIES", str(tmp_path / "registries.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BUILDER_DEBUG", raising=False)
    monkeypatch.setattr("builder.folders.search_path", lambda: (tmp_path,))
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[[Command], CommandResult]:
    """Runs the program in this process, with its own error boundary."""
    return lambda words: run_here(words, environ=os.environ.copy(), folder=Path.cwd())


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name: str, folder: Path, run: Callable[[Command], CommandResult]) -> None:
    commands, count = FILES[name]
    path = folder / name
    kind = "json" if path.suffix == ".json" else "yaml"
    codes: dict[int, int] = {}
    for data in Mutator(path.read_text("utf-8"), kind, f"{SEED} {name}").some(times(count)):
        path.write_bytes(data)
        for words in commands:
            if words[-1] == "vendor" and reads(path):
                continue  # a good file: this would only find that no server answers
            result = run(words)
            codes[result.code] = codes.get(result.code, 0) + 1
            assert result.code in (0, 2, 3, 4, 6, 9), f"{words}: {result.err}\n{data!r}"
            assert "Traceback" not in result.out + result.err
            if result.code and words[0] != "lint":
                assert result.err.strip(), data
                assert words[0] == "list" or result.out == "" or words == CHECK
            assert "\x1b" not in result.err
    assert codes.get(3, 0) + codes.get(4, 0) > 0


def reads(path: Path) -> bool:
    from builder.errors import InvalidError
    from builder.registry.config import RegistriesConfig

    try:
        RegistriesConfig.load(path)
    except InvalidError:
        return False
    return True


def test_undamaged_files_give_no_error(folder: Path, run: Callable[[Command], CommandResult]) -> None:
    assert [run(words).code for words in (PLAN, VENDOR, CHECK, RENDER)] == [0, 0, 0, 0]
