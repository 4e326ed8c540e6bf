"""Reads the workflows and actions, and finds their linters."""

from __future__ import annotations

import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github/actions").glob("*/action.yml"))
BY_NAME = {path.stem: path for path in WORKFLOWS}


@cache
def read(path: Path) -> dict[str, Any]:
    """A workflow. YAML 1.1 reads its key `on` as true."""
    data = yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert isinstance(data, dict)
    if True in data:
        data["on"] = data.pop(True)
    return data


def tool(name: str) -> str | None:
    """A program beside this interpreter, else on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
