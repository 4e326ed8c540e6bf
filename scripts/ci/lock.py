"""Resolves the lock anew and writes the change: FOLDER/lock.patch and, for people, FOLDER/table.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from common import REPOSITORY, Failed, builder, set_outputs, summarize

PATHS = ("recipes/locks", "recipes/bases")
# GitHub takes 65536 characters in a pull request.
ROWS = 600


def main() -> int:
    parser = argparse.ArgumentParser(prog="lock", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="SECTION")
    parser.add_argument("--project", type=Path, default=REPOSITORY, help="a checkout; default: this one")
    arguments = parser.parse_args()
    project = arguments.project.resolve()
    try:
        changes = json.loads(builder("lock", "--update", "--json", *arguments.names, root=project))
        builder("lock", "--check", root=project)
    except Failed as error:
        return error.code
    patch = difference(project)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "lock.patch").write_bytes(patch)
    text = table(changes)
    (arguments.folder / "table.md").write_text(text + "\n", "utf-8")
    summarize(text)
    set_outputs(changed=bool(patch))
    return 0


def difference(project: Path) -> bytes:
    """What differs from the commit, as a patch; new files too."""
    git = ("git", "-C", str(project))
    paths = [path for path in PATHS if (project / path).is_dir()]
    subprocess.run([*git, "add", "--intent-to-add", "--", *paths], check=True)
    return subprocess.run([*git, "diff", "--binary", "--", *paths], stdout=subprocess.PIPE, check=True).stdout


def table(changes: list[dict[str, str | None]]) -> str:
    """The changes for people; a package whose version stays has another file."""
    if not changes:
        return "Nothing changed."
    lines = ["| section | package | old | new |", "|---|---|---|---|"]
    for change in changes[:ROWS]:
        cells = (str(change[key] or "-") for key in ("section", "package", "old", "new"))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    if len(changes) > ROWS:
        lines.append(f"\n… and {len(changes) - ROWS} more.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
