"""Before a recipe is served: the commands that download its weights, and the netplan file of two Sparks."""

from __future__ import annotations

from collections.abc import Sequence

from builder.model.recipe import Recipe

Step = tuple[dict[str, str], tuple[str, ...]]
"""A command: its environment and its arguments. Host paths may begin with ~/."""

_OWN_BLOBS = {"HF_HUB_DISABLE_SHARED_BLOBS": "1"}
"""Newer hub clients keep files of all models in one folder and link to them: a copied model's links would dangle."""


def prefetch(recipe: Recipe) -> list[Step]:
    """The commands that download the weights."""
    home = next((v.host for v in recipe.run.volumes if v.container == recipe.run.env.get("HF_HOME")), "~/vllm")
    path = recipe.serve.model if (recipe.serve.model or "").startswith("/") else None
    local = next((v.host for v in recipe.run.volumes if path and v.container == path), None)
    commands = [_download(recipe.model.id, recipe.model.revision, home, local)]
    for item in recipe.run.downloads:
        repository, _, file = item.partition(":")
        repository, _, revision = repository.partition("@")
        commands.append(_download(repository, revision or None, home, home if file else None, file))
    return commands


def _download(repository: str, revision: str | None, home: str, folder: str | None, file: str = "") -> Step:
    pinned = ("--revision", revision) if revision else ()
    words = ("hf", "download", repository, *([file] if file else ()), *pinned)
    return ({}, (*words, "--local-dir", folder)) if folder else ({"HF_HOME": home, **_OWN_BLOBS}, words)


def verification(step: Step) -> Step | None:
    """The command that compares what a step of `prefetch` downloaded with the hub's checksums; None for one file."""
    env, words = step
    one_file = len(words) > 3 and not words[3].startswith("--")
    return None if one_file else (env, ("hf", "cache", "verify", "--fail-on-missing-files", *words[2:]))


def netplan(links: Sequence[tuple[str, str]]) -> str:
    """A netplan file for the direct link between two Sparks: jumbo frames on each interface. links: names, addresses.

    A bond keeps the members that another file defines: netplan merges definitions of the same name.
    """
    import yaml

    network: dict[str, object] = {"version": 2}
    for kind in ("ethernets", "bonds"):
        found = {
            name: {"mtu": 9000, "dhcp4": False, "addresses": [f"{address}/24"]}
            for name, address in links
            if name.startswith("bond") == (kind == "bonds")
        }
        network |= {kind: found} if found else {}
    return yaml.safe_dump({"network": network}, sort_keys=False)
