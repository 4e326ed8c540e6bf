"""`builder graph`: recipes, their bases, layers and locked inputs, as text or a drawing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from builder.cli.image.plan_all import plan_all
from builder.cli.options import BaseOption
from builder.cli.output import print_line
from builder.cli.request import asked_each, recipe_names
from builder.engine.process import output
from builder.errors import UsageError
from builder.model.plan import Plan
from builder.plan.explain import required_layers
from builder.project import Project

_SECONDS, _LARGEST = 60, 64 << 20
_SHAPES = {"recipe": "box", "base": "folder", "layer": "component", "input": "note", "toolchain": "component"}


@dataclass(frozen=True)
class Node:
    """kind: recipe, base, layer, input or toolchain. A layer with another key is another node."""

    kind: str
    name: str
    id: str


@dataclass(frozen=True)
class Graph:
    """Nodes by id, and edges from who needs something to what is needed, in the order in which they were found."""

    nodes: dict[str, Node]
    edges: dict[tuple[str, str], None]

    def add(self, node: Node, *, below: str | None = None) -> str:
        """Add a node, and the edge to it."""
        self.nodes.setdefault(node.id, node)
        if below is not None:
            self.edges[below, node.id] = None
        return node.id


def graph(
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", "-r", help="Only these recipes. May be repeated; default: all.")
    ] = None,
    base: BaseOption = None,
    format_: Annotated[str, typer.Option("--format", help="text, dot, mermaid, or svg (needs graphviz).")] = "text",
) -> None:
    """Show what recipes are made of: bases, layers and locked inputs. Layers with equal keys are one."""
    writers: dict[str, Callable[[Graph], Iterator[str]]] = {"text": _text, "dot": _dot, "mermaid": _mermaid}
    if format_ not in (*writers, "svg"):
        raise UsageError(
            f"there is no format {format_!r}", id="graph-format-unknown", cause=f"one of {', '.join(writers)}, svg"
        )
    project = Project()
    names = recipe_names(project, recipe, every=not recipe, next="builder graph --recipe NAME")
    for name in recipe or ():
        project.recipe(name)
    # A recipe whose base is not pinned is left out, and named.
    plans, _ = plan_all(project, asked_each(project, names, base))
    found = graph_of(project, plans)
    if format_ == "svg":
        sys.stdout.write(_svg("\n".join(_dot(found))))
        return
    for line in writers[format_](found):
        print_line(line, hang=6 if format_ == "text" else None)


def graph_of(project: Project, plans: list[Plan]) -> Graph:
    """The graph of plans: recipe → base → layers → inputs. Several inputs of a layer are one node."""
    found = Graph({}, {})
    for plan in plans:
        top = found.add(Node("recipe", plan.recipe, f"recipe {plan.recipe}"))
        below = found.add(Node("base", plan.base, f"base {plan.base}"), below=top)
        own = len(project.base(plan.base).layers)
        ids = {layer.layer: f"layer {layer.id} {layer.key[:12]}" for layer in plan.layers}
        for number, layer in enumerate(plan.layers):
            label = f"{layer.id} {layer.key[:12]}".rstrip()
            here = found.add(
                Node("layer", label, f"layer {layer.id} {layer.key[:12]}"), below=below if number < own else top
            )
            if len(layer.inputs) == 1:
                found.add(Node("input", layer.inputs[0].name, f"input {layer.inputs[0].sha256}"), below=here)
            elif layer.inputs:
                found.add(Node("input", f"{len(layer.inputs)} inputs", f"inputs of {here}"), below=here)
            if layer.toolchain:
                found.add(Node("toolchain", "toolchain", "toolchain"), below=here)
            if layer.reads_base:
                found.edges[here, below] = None
            for name in required_layers(project.layer(layer.layer).definition):
                if name in ids:
                    found.edges[here, ids[name]] = None
    return found


def _text(found: Graph) -> Iterator[str]:
    """A tree for each recipe; a base is a tree of its own."""
    children: dict[str, list[Node]] = {}
    for one, other in found.edges:
        children.setdefault(one, []).append(found.nodes[other])
    for node in found.nodes.values():
        if node.kind in ("recipe", "base"):
            yield f"{node.kind} {node.name}"
            for child in children.get(node.id, ()):
                inputs = ", ".join(each.name for each in children.get(child.id, ())) if child.kind == "layer" else ""
                yield f"  {child.kind} {child.name}" + (f": {inputs}" if inputs else "")


def _dot(found: Graph) -> Iterator[str]:
    yield "digraph builder {"
    yield "  rankdir=LR; node [fontname=monospace];"
    for node in found.nodes.values():
        yield f"  {json.dumps(node.id)} [label={json.dumps(node.name)}, shape={_SHAPES[node.kind]}];"
    yield from (f"  {json.dumps(one)} -> {json.dumps(other)};" for one, other in found.edges)
    yield "}"


def _mermaid(found: Graph) -> Iterator[str]:
    numbers = {id: f"n{number}" for number, id in enumerate(found.nodes)}
    yield "graph LR"
    for node in found.nodes.values():
        yield f'  {numbers[node.id]}["{node.kind} {node.name}"]'
    yield from (f"  {numbers[one]} --> {numbers[other]}" for one, other in found.edges)


def _svg(dot: str) -> str:
    program = shutil.which("dot")
    if program is None:
        raise UsageError(
            "the command dot is missing", id="dot-missing", next="install the package graphviz, or use mermaid"
        )
    try:
        done = output([program, "-Tsvg"], timeout=_SECONDS, limit=_LARGEST, stdin=dot.encode())
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError("dot made no drawing", id="dot-failed", cause=str(error)[:200]) from None
    if done.status:
        raise UsageError("dot made no drawing", id="dot-failed", cause=done.errors[:200])
    return done.text
