"""Resolves the lock anew and writes the change: FOLDER/lock.patch and, for people, FOLDER/table.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common import REPOSITORY, Failed, builder, set_outputs, summarize

PATHS = ("recipes/locks", "recipes/bases")
TOOLS = "scripts/*requirements.txt"
Answer = dict[str, list[dict[str, Any]]]
# Characters: GitHub takes 65536 in a pull request.
CHANGES, FAILED = 45_000, 15_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="lock", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to resolve; default: everything")
    parser.add_argument("--project", type=Path, default=REPOSITORY, help="a checkout; default: this one")
    arguments = parser.parse_args()
    project = arguments.project.resolve()
    found, code = resolved(project, "--update", *arguments.names)
    loose: Answer = {"changes": [], "failed": []}
    if not arguments.names:
        # Bases that are not pinned yet: many of their tags cannot be had, which is no news.
        loose, _ = resolved(project, "bases")
    try:
        builder("lock", "--check", root=project)
    except Failed as error:
        code = code or error.code
    patch = difference(project)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "lock.patch").write_bytes(patch)
    text = table([*found["changes"], *loose["changes"]], found["failed"])
    (arguments.folder / "table.md").write_text(text + "\n", "utf-8")
    summarize(text)
    set_outputs(changed=bool(patch))
    # What could be resolved is proposed; what could not stands in the table of that proposal.
    return 0 if patch and found["changes"] else code


def resolved(project: Path, *words: str) -> tuple[Answer, int]:
    """What `builder lock` says it changed and could not resolve, and its exit code."""
    try:
        return json.loads(builder("lock", *words, "--keep-going", "--json", root=project)), 0
    except Failed as error:
        try:
            return json.loads(error.output), error.code
        except ValueError:
            return {"changes": [], "failed": []}, error.code


def difference(project: Path) -> bytes:
    """What differs from the commit, as a patch; new files too."""
    git = ("git", "-C", str(project))
    paths = [path for path in PATHS if (project / path).is_dir()]
    subprocess.run([*git, "add", "--intent-to-add", "--", *paths], check=True)
    return subprocess.run([*git, "diff", "--binary", "--", *paths, TOOLS], stdout=subprocess.PIPE, check=True).stdout


def table(changes: list[dict[str, Any]], failed: list[dict[str, Any]]) -> str:
    """The changes for people, and what could not be resolved; an item whose version stays has another file."""
    if not changes and not failed:
        return "Nothing changed."
    lines = ["| name | item | old | new |", "|---|---|---|---|"] if changes else []
    lines += rows([[change[key] or "-" for key in ("name", "item", "old", "new")] for change in changes], CHANGES)
    if failed:
        lines += ["", "Could not be resolved, and stays as it was:", "", "| name | why |", "|---|---|"]
        lines += rows([[problem["name"], problem["what"][:500]] for problem in failed], FAILED)
    return "\n".join(lines).strip()


def rows(table: list[list[str]], room: int) -> Iterator[str]:
    """The lines of a table as far as there is room for their characters, and how many are left out."""
    for number, cells in enumerate(table):
        line = row(cells)
        room -= len(line) + 1
        if room < 0:
            yield f"\n… and {len(table) - number} more."
            return
        yield line


def row(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
