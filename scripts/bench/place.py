"""Where the benchmarks work: a folder, the kept inputs, and a project with the measured recipes."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from measure import Command

from builder.inputs.fetch import fetch
from builder.model.plan import Plan
from builder.plan.resolve import resolve
from builder.project import Project
from builder.store.store import Store

ROOT = Path(__file__).resolve().parents[2]
MODULES = os.pathsep.join([str(ROOT), str(Path(__file__).parent), *sys.path[1:]])
"""PYTHONPATH of a process that imports what this one can."""
STACK = """\
name: stack
title: The hermetic stack without NCCL
model: {id: none/none}
base: BASE
layers: [ptxas, marlin, audio, entrypoint]
serve: {model: none/none}
"""


@dataclass(frozen=True)
class Place:
    """folder: its contents are removed. inputs: the folder of a store that keeps the inputs. runs: of each side."""

    folder: Path
    inputs: Path
    runs: int
    base: str

    def builder(self, *words: str, store: Path | None = None, project: Path | None = None) -> Command:
        """A command of `builder`."""
        environ = {"PYTHONPATH": MODULES, "BUILDER_PROJECT": str(project or self.project)}
        if store is not None:
            environ["BUILDER_STORE"] = str(store)
        return Command([sys.executable, "-P", "-m", "builder", *words], environ, self.folder)

    @cached_property
    def project(self) -> Path:
        """A project with the recipe `stack`."""
        folder = self.folder / "project"
        (folder / "recipes").mkdir(parents=True, exist_ok=True)
        (folder / "recipes/stack.yaml").write_text(STACK.replace("BASE", self.base), "utf-8")
        return folder

    @cached_property
    def plan(self) -> Plan:
        """The plan of the recipe `stack`."""
        os.environ["BUILDER_PROJECT"] = str(self.project)
        project = Project()
        return resolve(project, project.recipe("stack"))

    def fresh(self, name: str) -> Path:
        """A new store with the inputs of the stack alone. They are read once, so that all sides read from memory."""
        inputs = list({item.digest: item for layer in self.plan.layers for item in layer.inputs}.values())
        kept = Store(self.inputs)
        fetch(kept, inputs, offline=False, progress=lambda event: None)
        remove(self.folder / name)
        store = Store(self.folder / name)
        for item in inputs:
            store.blob(item.digest).hardlink_to(kept.blob(item.digest))
            store.verify(item.digest)
        return store.root


def remove(path: Path) -> None:
    """Remove a folder or a file, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def needed(*programs: str) -> str:
    """Why a case cannot run here: the programs that are missing; empty if none is."""
    missing = [program for program in programs if shutil.which(program) is None]
    return f"needs {', '.join(missing)}" if missing else ""
