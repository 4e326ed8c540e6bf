"""The table of packages in docs/architecture.md has the order of the import contract in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_of_packages_is_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    table = text.partition("## The packages")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert rows == [layer.split(" | ") for layer in reversed(layers)]
