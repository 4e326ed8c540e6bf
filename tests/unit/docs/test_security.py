"""SECURITY.md says for each command what is trusted."""

from __future__ import annotations

import re

from builder.cli.app import COMMANDS
from tests.support.project import ROOT


def test_every_command_has_its_row() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8").partition("| command |")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = {words.split()[0] for cell in cells for words in re.findall("`([^`]+)`", cell)}
    assert set(COMMANDS) <= named, set(COMMANDS) - named
