"""Builds the wheel and the sdist of a tag twice, under different conditions, and compares them.

Writes the files, SHA256SUMS and notes.md (the tag's section of CHANGELOG.md) to FOLDER. Exit codes: 2 when the tag
names no version or no commit of main; 3 when its commit has another version or no section in CHANGELOG.md; 8 when two
builds differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import REPOSITORY
from packaging.version import InvalidVersion, Version

from builder.errors import BuilderError, DiffersError, InvalidError, UsageError

NAMES = ("gb10_builder-{}.tar.gz", "gb10_builder-{}-py3-none-any.whl")
# What may differ between the machines of two releases; the second build also has another folder.
CONDITIONS = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tag", metavar="TAG", help="for example v0.2.0")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="an empty or new folder")
    parser.add_argument("--branch", default="", metavar="REF", help="the tag must be a commit of this branch")
    parser.add_argument("--project", type=Path, default=REPOSITORY, help="a checkout; default: this one")
    arguments = parser.parse_args()
    try:
        release(arguments.project.resolve(), arguments.tag, arguments.folder.resolve(), arguments.branch)
    except BuilderError as error:
        print(f"release: {error}", file=sys.stderr)
        return int(error.code)
    return 0


def release(project: Path, tag: str, folder: Path, branch: str = "") -> None:
    """Build the files of a tag. branch: the branch that must contain the tag; empty for any. Raises BuilderError."""
    version = version_of(tag)
    commit = commit_of(project, tag, branch)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("the folder is not empty", id="release-folder", where=str(folder))
    with tempfile.TemporaryDirectory(prefix="builder-release-") as name:
        trees = [Path(name, part) for part in ("one", "another/folder")]
        for tree in trees:
            export(project, commit, tree)
        notes = check(trees[0], version)
        built = [
            build(tree, Path(f"{tree}-dist"), more, umask)
            for tree, more, umask in zip(trees, CONDITIONS, (0o022, 0o077), strict=True)
        ]
        compare(built[0], built[1])
        folder.mkdir(parents=True, exist_ok=True)
        for path in built[0]:
            shutil.copyfile(path, folder / path.name)
    sums = "".join(f"{_hash(folder / path.name)}  {path.name}\n" for path in built[0])
    (folder / "SHA256SUMS").write_text(sums, "utf-8")
    (folder / "notes.md").write_text(notes, "utf-8")
    sys.stdout.write(sums)


def _unpack(archive: Path, folder: Path) -> None:
    """Not by tarfile: Debian 12's Python has no filters."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xf", str(archive), "--no-same-owner", "-C", str(folder)], check=True)


def version_of(tag: str) -> str:
    """The version that a tag names. Raises UsageError."""
    try:
        version = str(Version(tag.removeprefix("v")))
    except InvalidVersion:
        version = ""
    if tag != f"v{version}":
        raise UsageError(f"{tag} is not `v` and a version", id="release-tag", next="use a tag such as v0.2.0")
    return version


def commit_of(project: Path, tag: str, branch: str) -> str:
    """The commit of a tag. Raises UsageError when there is none, or when it is not a commit of the branch."""
    commit = _git(project, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}").strip()
    if not commit:
        raise UsageError(f"there is no tag {tag}", id="release-tag-missing", next=f"git fetch origin tag {tag}")
    command = ["git", "-C", str(project), "merge-base", "--is-ancestor", commit, branch]
    if branch and subprocess.run(command, check=False).returncode:
        raise UsageError(f"{tag} is not a commit of {branch}", id="release-not-on-branch", where=commit)
    return commit


def export(project: Path, commit: str, tree: Path) -> None:
    """Write the files of a commit to a folder. Files that are not committed cannot get into a release."""
    tree.mkdir(parents=True)
    archive = tree.with_name(f"{tree.name}.tar")
    subprocess.run(["git", "-C", str(project), "archive", "--output", str(archive), commit], check=True)
    _unpack(archive, tree)


def check(tree: Path, version: str) -> str:
    """The section of a version in CHANGELOG.md. Raises InvalidError when the tree is not ready for the release."""
    found = re.search(r'(?m)^__version__ = "(.*)"$', (tree / "builder/__init__.py").read_text("utf-8"))
    if found is None or found[1] != version:
        raise InvalidError(
            f"the version is {found[1] if found else 'missing'}, the tag says {version}",
            id="release-version",
            where="builder/__init__.py",
            next="commit the version, then tag that commit",
        )
    heading = rf"(?ms)^## \[?{re.escape(version)}\]?\b[^\n]*\n(.*?)(?=^## |\Z)"
    section = re.search(heading, (tree / "CHANGELOG.md").read_text("utf-8"))
    if section is None or not section[1].strip():
        raise InvalidError(
            f"has no section for {version}",
            id="release-changelog",
            where="CHANGELOG.md",
            next=f"rename `Unreleased` to `{version}` and the date",
        )
    return section[1].strip() + "\n"


def build(tree: Path, folder: Path, environ: dict[str, str], umask: int) -> list[Path]:
    """Build the sdist, and the wheel from the unpacked sdist as pip does. Returns their paths."""
    version = version_in(tree)
    paths = [folder / name.format(version) for name in NAMES]
    hatch(tree, folder, "sdist", environ, umask)
    _unpack(paths[0], tree / "unpacked")
    [source] = (tree / "unpacked").iterdir()
    hatch(source, folder, "wheel", environ, umask)
    return paths


def version_in(tree: Path) -> str:
    """The version of a checked tree."""
    return re.findall(r'(?m)^__version__ = "(.*)"$', (tree / "builder/__init__.py").read_text("utf-8"))[0]


def hatch(tree: Path, folder: Path, target: str, environ: dict[str, str], umask: int) -> None:
    """Run the locked hatchling. A date of this machine has no influence: SOURCE_DATE_EPOCH is not passed on."""
    kept = {name: value for name, value in os.environ.items() if name not in ("SOURCE_DATE_EPOCH", "PYTHONPATH")}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target", target]
    done = subprocess.run(
        command,
        cwd=tree,
        env=kept | environ,
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InvalidError(f"the {target} cannot be built", id="release-build", cause=done.stdout.strip()[-2000:])


def compare(one: list[Path], other: list[Path]) -> None:
    """Raise DiffersError unless the files are equal."""
    if different := [a.name for a, b in zip(one, other, strict=True) if _hash(a) != _hash(b)]:
        raise DiffersError(
            f"two builds differ: {', '.join(different)}",
            id="release-differs",
            cause="a tool of scripts/requirements.txt",
        )


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(project: Path, *arguments: str) -> str:
    command = ["git", "-C", str(project), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
