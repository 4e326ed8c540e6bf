"""What a terminal shows is the text of files and engines, and none of it is executed."""

from __future__ import annotations

import io

from rich.console import Console

from builder.cli.progress import Progress
from builder.events import Event
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
