"""The words that options can be, for help and completion; the commands themselves check them again."""

from __future__ import annotations

CHOICES: dict[str, tuple[str, ...]] = {
    "tier": ("static", "cpu", "gpu"),
    "engine": ("auto", "docker", "buildah"),
    "compression": ("zstd", "gzip"),
    "machine": ("spark-64", "spark-128"),
    "run format_": ("docker", "compose", "systemd", "env"),
    "graph format_": ("text", "dot", "mermaid", "svg"),
    "sbom format": ("cyclonedx", "spdx"),
    "run role": ("head", "worker"),
    "test serve": ("small", "recipe"),
    "list kind": ("recipes", "bases", "layers", "profiles"),
    "schema kind": ("recipe", "profile", "layer", "base", "requests", "lock"),
    "new kind": ("recipe", "layer", "base"),
    "add kind": ("wheels", "debs"),
}
"""The words that an option or argument can be, by its name, or by that of a command and its own."""


def choices(command: str, parameter: str) -> tuple[str, ...]:
    """The words that an option or argument of a command can be; empty when it can be others."""
    return CHOICES.get(f"{command} {parameter}") or CHOICES.get(parameter) or ()
