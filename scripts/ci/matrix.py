"""Prints the build matrix: the images of all recipes, of named recipes, or of those that differ from another revision.

One job builds all images on one base: they share layers, so that each is made once, NCCL among them. An image differs
when its plan (layer keys, configuration, base) or its checks differ. A recipe with a hermetic base is built on that
base, any other recipe on its own base. A recipe whose own base is not pinned is omitted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import REPOSITORY, CommandFailed, builder, set_outputs


def main() -> int:
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__)
    parser.add_argument("--project", type=Path, default=REPOSITORY, help="a checkout; default: the one of this program")
    parser.add_argument(
        "--canary", default="nemotron-omni", help="the recipe to build when code changes and no plan does"
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--all", action="store_true")
    choice.add_argument("--recipe", action="append", metavar="NAME")
    choice.add_argument("--against", metavar="REVISION", help="only images that differ from this revision")
    arguments = parser.parse_args()
    project = arguments.project.resolve()
    try:
        found = targets(project)
        if arguments.recipe:
            if unknown := sorted(set(arguments.recipe) - found.keys()):
                print(f"matrix: not a recipe, or its base is not pinned: {', '.join(unknown)}", file=sys.stderr)
                return 2
            found = {name: found[name] for name in dict.fromkeys(arguments.recipe)}
        elif arguments.against:
            found = affected(project, found, arguments.against, arguments.canary)
        matrix = {"include": groups(project, found)}
    except CommandFailed as error:
        return error.code
    set_outputs(matrix=matrix, count=len(found))
    print(json.dumps(matrix, indent=2))
    return 0


def targets(root: Path) -> dict[str, str]:
    """The recipes of the checkout that can be built, each with its base."""
    families = {base["name"]: base["family"] for base in json.loads(builder("list", "bases", "--json", root=root))}
    found = {}
    for recipe in json.loads(builder("list", "--json", root=root)):
        if not (root / "recipes" / f"{recipe['name']}.yaml").exists():
            continue  # A shipped recipe, which every project can build.
        own = recipe["base"]
        if any(families.get(name) == "hermetic" for name in (own, *recipe["compatible"])):
            found[recipe["name"]] = "hermetic"
        elif recipe["pinned"]:
            found[recipe["name"]] = own
        else:
            print(f"{recipe['name']}: omitted, base {own} is not pinned", file=sys.stderr)
    return found


def groups(root: Path, found: dict[str, str]) -> list[dict[str, str]]:
    """The targets by the base that their plans have: its name, the value for --base, and the recipes in one text."""
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        names = list(workers.map(lambda item: planned_base(root, *item), found.items()))
    grouped: dict[tuple[str, str], list[str]] = {}
    for (recipe, base), name in zip(found.items(), names, strict=True):
        grouped.setdefault((name, base), []).append(recipe)
    return [{"group": name, "base": base, "recipes": " ".join(each)} for (name, base), each in grouped.items()]


def planned_base(root: Path, recipe: str, base: str) -> str:
    """The name of the base of a plan. Raises CommandFailed."""
    name = json.loads(builder("plan", "--recipe", recipe, "--base", base, "--json", root=root))["base"]["name"]
    assert isinstance(name, str)
    return name


def affected(root: Path, found: dict[str, str], revision: str, canary: str) -> dict[str, str]:
    """The targets whose image or checks differ from those of the revision."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as workers:
        before = Path(folder)
        known = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
        if subprocess.run(known, stdout=subprocess.DEVNULL, check=False).returncode:
            print(f"matrix: {revision} is not a commit of this checkout", file=sys.stderr)
            raise CommandFailed(2)
        archive = subprocess.Popen(["git", "-C", str(root), "archive", revision], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
        if archive.wait():
            raise CommandFailed(2)
        new, old = (signatures(tree, found, workers) for tree in (root, before))
        if missing := [name for name in found if name not in new]:
            print(f"matrix: no plan for {', '.join(missing)}", file=sys.stderr)
            raise CommandFailed(3)
        changed = {name: base for name, base in found.items() if new[name] != old.get(name)}
    if not changed and _code_changed(root, revision):
        # A repository with only recipes has no canary; its workflow names another commit of this one.
        return {canary: found[canary]} if canary in found else found
    return changed


def signatures(root: Path, found: dict[str, str], workers: ThreadPoolExecutor) -> dict[str, Any]:
    """For each recipe, the values that determine its image and its checks. Recipes without a plan are omitted."""

    def plan(item: tuple[str, str]) -> Any:
        try:
            return json.loads(builder("plan", "--recipe", item[0], "--base", item[1], "--json", root=root))
        except CommandFailed:
            return None

    def checks(name: str) -> Any:
        try:
            return json.loads(builder("show", name, "--json", root=root)).get("checks", [])
        except CommandFailed:
            return None

    plans = {name: document for name, document in zip(found, workers.map(plan, found.items()), strict=True) if document}
    parts = {
        name: {name, document["base"]["name"], *(layer["layer"] for layer in document["layers"])}
        for name, document in plans.items()
    }
    shown = sorted(set().union(*parts.values()))
    checked = dict(zip(shown, workers.map(checks, shown), strict=True))
    return {name: (document, {part: checked[part] for part in parts[name]}) for name, document in plans.items()}


def _code_changed(root: Path, revision: str) -> bool:
    paths = ("builder", "scripts", ".github")
    command = ["git", "-C", str(root), "diff", "--quiet", revision, "--", *paths]
    return subprocess.run(command, check=False).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
