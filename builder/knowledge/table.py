"""The option table of one vLLM version: which flags, variables and choices it has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from builder.folders import search_path, shipped_root
from builder.model.common import EnvName, Flag, Sha256, Strict, Version
from builder.model.yamlfile import load
from builder.versions import python_version

FOLDER = Path(__file__).parent / "vllm"

FlagKind = Literal["value", "toggle", "switch"]
"""value: takes one. toggle: also exists as --no-NAME. switch: does not."""


class Table(Strict):
    """One vLLM version, read from its source distribution.

    flags: options of `vllm serve` without dashes. choices: the values of an option that accepts a closed set; backend
    names are matched without regard to case. json_keys: the keys of options that take JSON. extras: the packages that
    `vllm[NAME]` adds. libraries: the pins of its CUDA requirements. docker: the arguments that its Dockerfile builds
    the official image with. fp8_constants: the module constants of w8a8_utils.py that hold the result of a function.
    """

    vllm: Version
    sdist: Sha256
    flags: dict[Flag, FlagKind]
    choices: dict[Flag, tuple[str, ...]]
    json_keys: dict[Flag, tuple[str, ...]]
    speculative_methods: tuple[str, ...]
    env: tuple[EnvName, ...]
    extras: dict[str, tuple[str, ...]]
    libraries: dict[str, str]
    docker: dict[str, str]
    fp8_constants: tuple[str, ...]

    def has_flag(self, name: str) -> bool:
        """Whether `--NAME` exists, a negated toggle included."""
        return name in self.flags or (name.startswith("no-") and self.flags.get(name[3:]) == "toggle")

    def accepts(self, flag: str, value: str) -> bool:
        """Whether the option takes the value; true where its values are not a closed set."""
        known = self.choices.get(flag)
        if known is None:
            return True
        if flag.endswith("backend"):
            wanted = value.lower().replace("-", "_")
            return any(wanted == item.lower() for item in known)
        return value in known


def folders() -> tuple[Path, ...]:
    """Where tables are: `recipes/vllm` of a project folder of one's own, then the package. Raises UsageError."""
    own = [root for root in search_path() if root != shipped_root()]
    return (*(root / "recipes" / "vllm" for root in own), FOLDER)


def versions() -> tuple[str, ...]:
    """The vLLM versions that have a table, oldest first."""
    names = {path.stem for folder in folders() for path in folder.glob("*.yaml")}
    return tuple(sorted(names, key=python_version))


def load_table(version: str) -> Table | None:
    """The table of a vLLM version; None without one. A local version (0.19.0+nv26.4) has its release's."""
    release = re.fullmatch(r"(\d+\.\d+\.\d+)(\+.*)?", version)
    if not release:
        return None
    paths = (folder / f"{release[1]}.yaml" for folder in folders())
    return next((read_table(path) for path in paths if path.is_file()), None)


@cache
def read_table(path: Path) -> Table:
    """The table in a file. Raises InvalidError."""
    return load(path, Table)
