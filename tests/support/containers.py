"""Containers of recipes, on one node or on both."""

from __future__ import annotations

from typing import Any

from builder.model.recipe import Recipe
from builder.project import Project
from builder.serve.spec import Container, Node, container

PROJECT = Project()
IMAGE = "registry.example/spark@sha256:" + "a1" * 32
HEAD = Node("head", "192.168.100.10", "192.168.100.10", "enp1s0f0np0", "rocep1s0f0,roceP2p1s0f0")
WORKER = Node("worker", "192.168.100.11", "192.168.100.10", "enp1s0f0np0", "rocep1s0f0,roceP2p1s0f0")


def made(recipe: Recipe, node: Node | None = None, **options: Any) -> Container:
    node = node or (HEAD if recipe.nodes == 2 else None)
    return container(recipe, PROJECT.base(recipe.base), IMAGE, node=node, **options)
