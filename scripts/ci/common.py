"""Functions of the programs in this folder: run `builder`, keep records of images, set outputs of a workflow step."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from builder.errors import InvalidError

REPOSITORY = Path(__file__).resolve().parents[2]


class CommandFailed(Exception):
    """A command of `builder` failed and printed its error. code: exit code; output: standard output."""

    def __init__(self, code: int, output: str = "") -> None:
        super().__init__(f"exit code {code}")
        self.code = code
        self.output = output


@dataclass(frozen=True)
class Record:
    """One built image. plan: the hash of its plan. tested: the tiers of which every check ran and none failed.

    reference: the pushed image by digest; None if it is not pushed.
    """

    recipe: str
    base: str
    plan: str
    digest: str
    reference: str | None = None
    tested: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.recipe}.json").write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")


def records(folder: Path) -> list[Record]:
    """All records below a folder, sorted by recipe and base.

    Raises InvalidError for a file that is no record, and for a second record of one image in one artifact, which is a
    folder here: it is no second build.
    """
    found: dict[tuple[str, str, tuple[str, ...]], Record] = {}
    for path in folder.rglob("*.json"):
        record = parsed(path.read_text("utf-8"), str(path))
        place = record.recipe, record.base, path.relative_to(folder).parent.parts[:1]
        if place in found:
            raise InvalidError("is a second record of its image", id="record-twice", where=str(path))
        found[place] = record
    return [found[place] for place in sorted(found)]


def parsed(text: str, where: str) -> Record:
    """A record from JSON. Artifacts are written by machines that run the code of recipes. Raises InvalidError."""
    try:
        record = Record(**json.loads(text))
        texts = [record.recipe, record.base, record.plan, *record.tested]
        texts += [record.reference] if record.reference is not None else []
        whole = all(isinstance(text, str) and re.fullmatch(r"[\w./:@+-]{1,300}", text, re.ASCII) for text in texts)
        # Its digest is compared and signed, and what its reference names gets the tags.
        named = f"/{record.recipe}@{record.digest}"
        whole = whole and (record.reference is None or record.reference.endswith(named))
    except (TypeError, ValueError):
        whole = False
    if not whole or not re.fullmatch(r"[0-9a-f]{64}", record.plan) or not is_digest(record.digest):
        raise InvalidError("is no record of an image", id="record-invalid", where=where, cause="a damaged artifact")
    return record


def is_digest(text: object) -> bool:
    """Whether a text is the digest of a manifest."""
    return isinstance(text, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", text) is not None


def builder(*arguments: str, root: Path | None = None, quiet: bool = False) -> str:
    """The standard output of a command of `builder`. Raises CommandFailed.

    root: the checkout whose code and recipes to use; default: this checkout, in the current folder.
    """
    code = root if root is not None and (root / "builder").is_dir() else REPOSITORY
    environment = os.environ | {"PYTHONPATH": str(code)}
    if root is not None:
        environment["BUILDER_PROJECT"] = str(root)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "builder", *arguments],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise CommandFailed(done.returncode, done.stdout)
    return done.stdout


def canonical_hash(value: Any) -> str:
    """The hash of a value as canonical JSON; for a plan, this is its key."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def on(base: str | None) -> tuple[str, ...]:
    """The command-line option that names a base."""
    return ("--base", base) if base else ()


def set_outputs(**values: object) -> None:
    """Set outputs of the workflow step; outside of a workflow, do nothing."""
    if path := os.environ.get("GITHUB_OUTPUT"):
        with Path(path).open("a", encoding="utf-8") as file:
            for name, value in values.items():
                text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
                assert "\n" not in text
                file.write(f"{name}={text}\n")


def summarize(text: str) -> None:
    """Write a paragraph to the workflow's summary; outside of a workflow, to standard error."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n\n")
    else:
        print(text, file=sys.stderr)
