"""The lines that show how far docker is with an image."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from builder.cli.image import sending as pulling
from builder.cli.image.sending import Pulling
from builder.events import Event

A, B, C = "a" * 12, "b" * 12, "c" * 12
SIZES = {A: 300_000_000, B: 100_000_000, C: 5_000_000}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [100.0]
    monkeypatch.setattr(pulling, "now", lambda: found[0])
    return found


def frame(shown: Pulling, columns: int = 200) -> list[str]:
    """What a terminal of this width shows."""
    out = io.StringIO()
    console = Console(file=out, width=columns, height=24)
    console.print(shown._shown(console))
    return out.getvalue().splitlines()


def test_what_docker_lacks_the_time_left_and_the_unpacking(clock: list[float]) -> None:
    shown = Pulling(SIZES)
    on = shown.listener()
    clock[0] += 3
    assert frame(shown) == ["3 s: waiting for docker"]
    on(Event(C, "cached"))
    for layer in (A, B):
        on(Event(layer, "waiting"))
    on(Event(A, "fetching", 1_000_000, 1))
    clock[0] += 1
    assert frame(shown) == ["1 s: 0 of 2 layers, 1.0 MB of 400.0 MB, 1.0 MB/s"], "the first bytes give no estimate"
    on(Event(A, "fetching", 100_000_000, 300_000_000))
    clock[0] += 9
    assert frame(shown) == ["10 s, about 30 s more: 0 of 2 layers, 100.0 MB of 400.0 MB, 10.0 MB/s"]
    on(Event(B, "unpacking"))
    on(Event(B, "unpacking", 40_000_000, 100_000_000))
    clock[0] += 10
    assert frame(shown)[0].startswith("20 s, about 90 s more: 0 of 2 layers, 200.0 MB of 400.0 MB"), (
        "unpacking takes longest"
    )
    on(Event(B, "done"))
    on(Event(A, "unpacking", 100_000_000, 300_000_000))
    assert frame(shown) == ["20 s, about 10 s more: 1 of 2 layers, unpacked 200.0 MB of 400.0 MB"]
    on(Event(A, "done"))
    assert frame(shown) == ["20 s: 2 of 2 layers, unpacked 400.0 MB of 400.0 MB"]


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_each_machine_has_a_line_at_every_width(clock: list[float], columns: int) -> None:
    shown = Pulling(SIZES)
    hosts = ["me@spark1:2222", "spark2", "spark3"]
    first, *_ = [shown.listener(host) for host in hosts]
    first(Event(A, "fetching", 150_000_000, 300_000_000))
    clock[0] += 5
    lines = frame(shown, columns)
    assert [line.split()[0] for line in lines] == hosts
    assert lines[0].startswith("me@spark1:2222  5 s, about 5 s more: 0 of 1 layer, ")
    assert max(map(len, lines)) <= columns


def test_a_line_every_ten_seconds_where_there_is_no_terminal(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Pulling(SIZES) as shown:
        on = shown.listener("spark1")
        for _ in range(6):
            on(Event(A, "fetching", 150_000_000, 300_000_000))
            clock[0] += 4
    assert capsys.readouterr().err.splitlines() == [
        "  spark1  12 s, about 12 s more: 0 of 1 layer, 150.0 MB of 300.0 MB, 12.5 MB/s"
    ]


def test_layers_that_are_not_known_are_counted_as_the_daemon_says_within_bounds(clock: list[float]) -> None:
    known, shown = Pulling(SIZES), Pulling()
    of_known, on = known.listener(), shown.listener()
    for number in range(3000):
        for listener in (of_known, on):
            listener(Event(f"{number:012x}", "fetching", 10, 20))
    clock[0] += 2
    assert frame(known) == ["2 s: waiting for docker"]
    assert frame(shown) == ["2 s: 0 of 1000 layers, 10.0 kB of 20.0 kB, 5.0 kB/s"]
