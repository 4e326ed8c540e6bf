"""Every declared dependency is imported somewhere in builder/, and every third-party import there is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement

from tests.support.project import ROOT

IN_IMAGES = {"numpy", "torch", "triton", "vllm"}
"""Imported by programs that run inside an image, below builder/smoke/gpu/probes."""

WITH_OTHERS = {"pydantic-core": "pydantic", "urllib3": "requests"}
"""Distributions that a declared one exposes: pydantic has custom types described in terms of pydantic_core, and
`Response.raw` of requests raises the exceptions of urllib3."""


def normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    """The distributions in [project].dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {normalised(Requirement(text).name) for text in project["dependencies"]}


@cache
def imported() -> dict[str, str]:
    """The distributions that builder/ imports, each with one place. An unknown module stands for itself."""
    distributions = packages_distributions()
    places: dict[str, str] = {}
    for path in sorted((ROOT / "builder").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            for module in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"builder"}:
                if module in IN_IMAGES and "probes" in path.parts:
                    continue
                distribution = normalised(distributions.get(module, [module])[0])
                places[WITH_OTHERS.get(distribution, distribution)] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return places


def test_every_declared_dependency_is_imported() -> None:
    assert declared() - imported().keys() == set()


def test_every_import_is_declared() -> None:
    assert {name: place for name, place in imported().items() if name not in declared()} == {}
