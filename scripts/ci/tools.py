"""Locks the tools of this repository: resolves pyproject.toml into scripts/*requirements.txt.

Without an option, resolves only the files that do not match pyproject.toml, and keeps each pin that is still allowed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import REPOSITORY

from builder.atomic import staged
from builder.errors import BuilderError, InvalidError, PinError
from builder.model.canonical import fingerprint

UPDATE = "scripts/ci/run tools"
Row = dict[str, str | None]


@dataclass(frozen=True)
class Requirements:
    """A file of pins for the project's dependencies and for some dependency groups of pyproject.toml.

    title: the file's first line. groups: names of dependency groups. within: the file whose versions constrain it.
    """

    file: str
    title: str
    groups: tuple[str, ...]
    within: str | None = None


RUN = "scripts/requirements.txt"
FILES = (
    Requirements(
        RUN,
        f"# What `builder` is built and runs with, resolved from pyproject.toml by `{UPDATE}`.",
        ("build",),
    ),
    Requirements(
        "scripts/dev-requirements.txt",
        "# What the tests run with: the versions of requirements.txt, and the group dev of pyproject.toml.",
        ("build", "dev"),
        within=RUN,
    ),
)
_OPTIONS = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="only compare with pyproject.toml; use no network")
    action.add_argument("--update", action="store_true", help="resolve every package to its newest version")
    parser.add_argument("--json", action="store_true", help="print changes and failures as JSON")
    parser.add_argument("--project", type=Path, default=REPOSITORY, help="a checkout; default: this one")
    arguments = parser.parse_args()
    root = arguments.project.resolve()
    changes: list[Row] = []
    failure: BuilderError | None = None
    try:
        stale = {} if arguments.update else stale_files(root)
        if arguments.check and stale:
            raise PinError(
                "the locked tools do not match pyproject.toml",
                id="tools-stale",
                cause="; ".join(f"{file} {why}" for file, why in stale.items()),
                next=UPDATE,
            )
        if arguments.update or stale:
            changes = resolve(root, upgrade=arguments.update)
    except BuilderError as error:
        print(f"tools: {error}", file=sys.stderr)
        failure = error
    if arguments.json:
        failed = [{"kind": "tools", "name": "tools", "what": failure.what}] if failure else []
        print(json.dumps({"changes": changes, "failed": failed}))
    else:
        for row in changes:
            print(f"{row['name']}: {row['item']} {row['old'] or '-'} -> {row['new'] or '-'}")
    return int(failure.code) if failure else 0


def stale_files(root: Path) -> dict[str, str]:
    """The files that do not match pyproject.toml or their seal, each with the reason. Raises InvalidError."""
    project = _project(root)
    parts = {item.file: _parts(root / item.file) for item in FILES}
    bodies = {file: body for file, (_, body) in parts.items()}
    found = {}
    for item in FILES:
        if not (root / item.file).is_file():
            found[item.file] = "is missing"
        elif parts[item.file][0] != _seal(project, item, bodies):
            found[item.file] = "was resolved from another pyproject.toml, or edited since"
    return found


def resolve(root: Path, *, upgrade: bool) -> list[Row]:
    """Resolve all files, then write all changed files or none. Returns the changes.

    upgrade: use the newest versions; otherwise keep each pin that is still allowed. Raises UsageError when uv is
    missing, PinError when a file cannot be resolved.
    """
    from builder.inputs.hosts import wheel_indexes
    from builder.lock.wheels import uv_compile

    project = _project(root)
    index = wheel_indexes()[0]
    old = {item.file: _parts(root / item.file)[1] for item in FILES}
    new: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="builder-tools-") as name:
        folder = Path(name)
        for item in FILES:
            # uv keeps the pins that it finds in its output file.
            output = folder / item.file.replace("/", "-")
            output.write_text(old[item.file])
            words = [*_OPTIONS, *(["--upgrade"] if upgrade else [])]
            words.append(str(root / "pyproject.toml"))
            words += [word for group in item.groups for word in ("--group", group)]
            words += ["--constraints", str(folder / item.within.replace("/", "-"))] if item.within else []
            words += ["--output-file", str(output)]
            uv_compile(words, root, index, what=item.file, advice="correct pyproject.toml")
            new[item.file] = output.read_text()
    texts = {
        root / item.file: f"{item.title}\n# seal: {_seal(project, item, new)}\n{new[item.file]}".encode()
        for item in FILES
    }
    changed = {path: data for path, data in texts.items() if not path.is_file() or path.read_bytes() != data}
    with staged(changed) as put:
        for path in changed:
            put(path)
    return [row for item in FILES for row in _changes(item.file, old[item.file], new[item.file])]


def _project(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidError(f"cannot be read: {error}", id="tools-project-unreadable", where=str(path)) from None


def _seal(project: dict[str, Any], item: Requirements, bodies: Mapping[str, str]) -> str:
    """The hash of the requests, the constraining file and the pins."""
    groups = project.get("dependency-groups", {})
    requested = [groups.get(group) for group in item.groups]
    requested.append(project.get("project", {}).get("dependencies"))
    within = bodies[item.within] if item.within else None
    return fingerprint([requested, within, bodies[item.file]])


def _parts(path: Path) -> tuple[str | None, str]:
    """The seal in the second line of a file, and the text after it. Raises InvalidError."""
    try:
        text = path.read_text("utf-8") if path.is_file() else ""
    except (OSError, ValueError) as error:
        raise InvalidError(f"cannot be read: {error}", id="tools-file-unreadable", where=str(path)) from None
    match = re.match(r"(?:#(?! seal:).*\n)?(?:# seal: (.*)\n)?", text)
    assert match is not None
    return match[1], text[match.end() :]


def _changes(file: str, old: str, new: str) -> list[Row]:
    before, after = _pins(old), _pins(new)
    return [
        {
            "kind": "tools",
            "name": file,
            "item": name,
            "old": _versions(before.get(name)),
            "new": _versions(after.get(name)),
        }
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _pins(body: str) -> dict[str, list[str]]:
    """The entries by package name; a package can have several, with different environment markers."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", body.strip()):
        found.setdefault(entry.partition("==")[0], []).append(entry)
    return found


def _versions(entries: list[str] | None) -> str | None:
    return ", ".join(re.findall(r"(?m)^[a-z0-9._-]+==([^\s;\\]+)", "\n".join(entries))) if entries else None


if __name__ == "__main__":
    sys.exit(main())
