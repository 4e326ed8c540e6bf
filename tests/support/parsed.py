"""Importing this makes `builder` parse each of its own YAML files once per process: most commands read them all.

It comes before every import of a module that takes the function by its name.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from builder.model import yamlfile

_ROOT = f"{Path(__file__).resolve().parents[2]}/"
_parse = yamlfile.parse_yaml
_known: dict[str, bytes] = {}


def parse_yaml(text: str, where: str) -> Any:
    """As `builder.model.yamlfile.parse_yaml`."""
    if not where.startswith(_ROOT):
        return _parse(text, where)
    if text not in _known:
        _known[text] = pickle.dumps(_parse(text, where))
    return pickle.loads(_known[text])


yamlfile.parse_yaml = parse_yaml
