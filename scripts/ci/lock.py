"""Updates the lock and the locked tools; writes the changes to FOLDER/lock.patch, and as a table to FOLDER/table.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common import REPOSITORY, CommandFailed, builder, set_outputs, summarize

PATHS = ("recipes/locks", "recipes/bases")
TOOLS = "scripts/*requirements.txt"
Answer = dict[str, list[dict[str, Any]]]
# In characters. GitHub allows 65536 in the text of a pull request.
CHANGES, FAILED = 45_000, 15_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="lock", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries to resolve; default: all")
    parser.add_argument("--project", type=Path, default=REPOSITORY, help="a checkout; default: this one")
    arguments = parser.parse_args()
    project = arguments.project.resolve()
    updated, code = resolved(project, "--update", *arguments.names)
    changes, failed = updated["changes"], updated["failed"]
    unpinned: Answer = {"changes": [], "failed": []}
    if not arguments.names:
        # Bases without a pin. Many of their tags no longer exist, so failures are not reported.
        unpinned, _ = resolved(project, "bases")
        tools, tools_code = update_tools(project)
        changes, failed, code = [*changes, *tools["changes"]], [*failed, *tools["failed"]], code or tools_code
    try:
        builder("lock", "--check", root=project)
    except CommandFailed as error:
        code = code or error.code
    patch = difference(project)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "lock.patch").write_bytes(patch)
    text = table([*changes, *unpinned["changes"]], failed)
    (arguments.folder / "table.md").write_text(text + "\n", "utf-8")
    summarize(text)
    set_outputs(changed=bool(patch))
    # The pull request contains the resolved entries; its table also lists the others.
    return 0 if patch and changes else code


def resolved(project: Path, *words: str) -> tuple[Answer, int]:
    """The changes and failures that `builder lock` reports, and its exit code."""
    try:
        return json.loads(builder("lock", *words, "--keep-going", "--json", root=project)), 0
    except CommandFailed as error:
        try:
            return json.loads(error.output), error.code
        except ValueError:
            return {"changes": [], "failed": []}, error.code


def update_tools(project: Path) -> tuple[Answer, int]:
    """The changes and failures of the locked tools, and an exit code."""
    command = [sys.executable, str(REPOSITORY / "scripts/ci/tools.py"), "--update", "--json", "--project", str(project)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(done.stdout), done.returncode
    except ValueError:
        return {"changes": [], "failed": []}, done.returncode or 1


def difference(project: Path) -> bytes:
    """The changes since the commit as a patch, including new files."""
    git = ("git", "-C", str(project))
    paths = [path for path in PATHS if (project / path).is_dir()]
    subprocess.run([*git, "add", "--intent-to-add", "--", *paths], check=True)
    return subprocess.run([*git, "diff", "--binary", "--", *paths, TOOLS], stdout=subprocess.PIPE, check=True).stdout


def table(changes: list[dict[str, Any]], failed: list[dict[str, Any]]) -> str:
    """A table of the changes, and one of the failures. Where old and new version are equal, the file differs."""
    if not changes and not failed:
        return "Nothing changed."
    lines = ["| name | item | old | new |", "|---|---|---|---|"] if changes else []
    lines += rows([[change[key] or "-" for key in ("name", "item", "old", "new")] for change in changes], CHANGES)
    if failed:
        lines += ["", "Not resolved, unchanged:", "", "| name | why |", "|---|---|"]
        lines += rows([[problem["name"], problem["what"][:500]] for problem in failed], FAILED)
    return "\n".join(lines).strip()


def rows(table: list[list[str]], room: int) -> Iterator[str]:
    """The lines of a table that fit into `room` characters, then the number of omitted lines."""
    for number, cells in enumerate(table):
        line = row(cells)
        room -= len(line) + 1
        if room < 0:
            yield f"\n… and {len(table) - number} more."
            return
        yield line


def row(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
