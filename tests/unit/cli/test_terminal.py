"""What a terminal shows is the text of files and engines, and none of it is executed."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from builder.cli.output import fitted
from builder.cli.progress import Progress
from builder.events import Event
from builder.text import with_status
from tests.support.nightly import nightly_but
from tests.unit.cli.conftest import Cli


def test_square_brackets_of_a_title_are_no_markup(cli: Cli) -> None:
    path = "dockerfiles/layers/placed/layer.yaml"
    cli.small.files[path] = {**cli.small.files[path], "title": "Files [bold]as[/x] they are"}
    listed = cli("list", "layers")
    assert listed.code == 0
    assert "Files [bold]as[/x] they are" in listed.out


def test_an_engine_cannot_send_controls_to_the_terminal() -> None:
    progress, out = Progress(verbose=True), io.StringIO()
    progress.on_event(Event("compiled", "building", 0, 0, "a\x1b]0;title\x07b\x9b2J\u202e"))
    Console(file=out, force_terminal=True, color_system=None, width=80).print(progress._table())
    assert "building: a?]0;title?b?2J?" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def on_terminal(columns: int, cli: Cli, *words: str, **more: str) -> list[str]:
    """What a command prints on a terminal of this width. more: further variables."""
    cli.write()
    code = f"import sys, pty; sys.exit(pty.spawn({[sys.executable, '-m', 'builder', *words]!r}) >> 8)"
    environ = cli.environment({"COLUMNS": str(columns), "TERM": "xterm"})
    environ |= more
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environ, check=False, timeout=60)
    return done.stdout.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize("columns", nightly_but([60, 80, 160], 60))
@pytest.mark.parametrize("kind", ["recipes", "bases", "layers", "profiles"])
def test_a_list_has_one_line_for_each_name_at_every_width(cli: Cli, kind: str, columns: int) -> None:
    names = [row["name"] for row in json.loads(cli("list", kind, "--json").out)]
    lines = on_terminal(columns, cli, "list", kind)
    assert [line.split()[0] for line in lines[1:]] == names, "no name is split"
    assert max(map(len, lines)) <= columns


def test_a_piped_list_has_all_columns_and_is_neither_wrapped_nor_padded(cli: Cli) -> None:
    lines = cli("list", "bases").out.splitlines()
    assert lines[0].split() == ["NAME", "ALIASES", "VLLM", "PYTHON", "PINNED", "FAMILY", "IMAGE"]
    assert not [line for line in lines if line != line.rstrip()]
    assert "hermetic-0.20" in [line.split()[0] for line in lines]


def test_a_small_terminal_shows_the_active_layers_and_counts_the_others() -> None:
    progress = Progress(verbose=True)
    progress.expect({f"layer-{number}": 0 for number in range(30)}, 10_000_000_000, {})
    progress.on_event(Event("layer-29", "fetching", 1_000_000_000, 4_000_000_000))
    progress.on_event(Event("layer-0", "done", 5, 5))
    out = io.StringIO()
    Console(file=out, width=80).print(progress._table(10))
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "0 s, about 0 s more to download: 1 of 30 layers, 1.0 GB of 10.0 GB fetched"
    assert lines[1].split()[:3] == ["layer-29", "fetching", "1.0"]
    assert "waiting for its turn" in lines[2]
    assert "and 22 more layers, waiting or done" in lines[-1]


RED, YELLOW = "\x1b[31mbuilder\x1b[0m: ", "\x1b[33munknown\x1b[0m "


def test_status_words_have_a_color_on_a_terminal_and_where_it_is_asked_for(cli: Cli) -> None:
    """The variables of no-color.org and force-color.org."""
    assert on_terminal(80, cli, "plan", "nobody")[0].startswith(RED)
    for more in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal(80, cli, "plan", "nobody", **more)[0].startswith("builder: ")
    assert cli("doctor").out.startswith("unknown ")
    assert cli("doctor", FORCE_COLOR="1").out.startswith(YELLOW)
    assert cli("doctor", FORCE_COLOR="").out.startswith("unknown ")
    cli.small.files["recipes/tiny.yaml"]["base"] = "nowhere"
    assert ": \x1b[31merror\x1b[0m: " in cli("lint", FORCE_COLOR="1").out
    assert ": error: " in cli("lint").out


def test_text_of_others_has_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = with_status("nccl \x1b[32mdiffers\x1b[0m differs", "differs", io.StringIO())
    assert shown == "nccl ?[32m\x1b[31mdiffers\x1b[0m?[0m differs"


NAMES = ["wheels-nvidia-cudnn", "wheels-other", "compiled", "placed"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the live display reads."""
    found = [100.0]
    monkeypatch.setattr("builder.cli.progress.now", lambda: found[0])
    return found


def first(progress: Progress, columns: int = 200) -> str:
    """The first line of the live display."""
    return frame(progress, columns)[0]


def frame(progress: Progress, columns: int) -> list[str]:
    """The live display on a terminal of this width."""
    out = io.StringIO()
    Console(file=out, width=columns).print(progress._table())
    return out.getvalue().splitlines()


def test_the_estimate_is_of_the_whole_build_and_says_what_it_does_not_count(clock: list[float]) -> None:
    progress = Progress(verbose=True)
    assert first(progress) == "0 s: looking up what the store has"
    progress.expect(
        dict.fromkeys(NAMES, 0), 4_000_000_000, {"wheels-nvidia-cudnn": 30.0, "wheels-other": 10.0, "placed": 1.0}, 2
    )
    assert first(progress) == "0 s, no estimate yet: 0 of 4 layers, 0 B of 4.0 GB fetched"
    clock[0] += 10
    progress.on_event(Event("compiled", "building", detail="cc x.c"))
    progress.on_event(Event(NAMES[0], "fetching", 1_000_000_000, 4_000_000_000))
    assert first(progress).startswith("10 s, about 60 s more, not counting compiled: 0 of 4 layers, "), (
        "30 s follow the download"
    )
    clock[0] += 30
    progress.on_event(Event(NAMES[0], "fetching", 4_000_000_000, 4_000_000_000))
    progress.on_event(Event(NAMES[0], "packing", 5))
    assert first(progress).startswith("40 s, about 30 s more, not counting compiled: ")
    clock[0] += 25
    for name in ("wheels-other", "placed"):
        progress.on_event(Event(name, "done", 5, 5))
    assert first(progress).startswith("65 s, about 5 s more, not counting compiled: 2 of 4 layers")
    clock[0] += 95
    assert first(progress).startswith("3 min, no estimate of 2 layers: "), "it takes longer than before"
    progress.on_event(Event(NAMES[0], "done", 5, 5))
    assert first(progress).startswith("3 min, no estimate of compiled: 3 of 4 layers")
    progress.on_event(Event("compiled", "done", 5, 5))
    assert first(progress) == "3 min: 4 of 4 layers", "nothing is left to fetch"


def test_the_first_build_learns_from_its_own_layers(clock: list[float]) -> None:
    progress = Progress(verbose=True)
    progress.expect({"one": 100, "two": 300, "compiled": 0}, 0, {}, 2)
    assert first(progress) == "0 s, no estimate of 3 layers: 0 of 3 layers"
    progress.on_event(Event("one", "packing"))
    clock[0] += 5
    progress.on_event(Event("one", "done", 1, 1))
    assert first(progress) == "5 s, about 15 s more, not counting compiled: 1 of 3 layers"
    progress.on_event(Event("two", "packing"))
    clock[0] += 16
    assert first(progress) == "21 s, no estimate of 2 layers: 1 of 3 layers"


def test_many_layers_take_as_long_as_their_processors_need(clock: list[float]) -> None:
    progress = Progress(verbose=True)
    progress.expect(dict.fromkeys(NAMES, 0), 0, dict.fromkeys(NAMES, 10.0), 2)
    assert first(progress) == "0 s, about 20 s more: 0 of 4 layers"


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_the_live_display_has_whole_names_and_the_estimate_at_every_width(clock: list[float], columns: int) -> None:
    progress = Progress(verbose=True)
    progress.expect(dict.fromkeys(NAMES, 0), 4_000_000_000, {})
    clock[0] += 10
    progress.on_event(Event(NAMES[0], "fetching", 1_000_000_000, 4_000_000_000))
    progress.on_event(Event("compiled", "building", detail="a line of a compiler " * 10))
    lines = frame(progress, columns)
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("10 s, about 30 s more to download: 0 of 4 layers, 1.0 GB")
    assert {line.split()[0] for line in lines[1:]} == {*NAMES}
    assert next(line for line in lines if line.startswith("compiled ")).rstrip().endswith("…  0 s")


def test_rows_lose_columns_and_prose_goes_on_in_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "  [1/12]  wheels-nvidia-cudnn      uploaded      1.1 GB  sha256:0123456789ab"
    text = "  note      a-name-that-is-longer/than-the-terminal-and-is-never-split and words"
    monkeypatch.setenv("COLUMNS", "60")
    assert (fitted(row, sys.stdout, row=True), fitted(text, sys.stdout, hang=12)) == (row, text), "not on a terminal"
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    assert fitted(row, out, row=True) == row[:-21]
    assert fitted(text, out, hang=4).splitlines() == ["  note", f"    {text.split()[1]}", "    and words"]
    assert fitted(text, out) == text, "it may hold a command"
