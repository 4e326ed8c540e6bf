"""The documents name files, sections, commands and options that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builder.cli.app import COMMANDS, load_command

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GITHUB = sorted(path for path in ROOT.glob(".github/**/*") if path.is_file())
TEXTS = [*PAGES, *GITHUB, ROOT / ".pre-commit-config.yaml"]

_PATH = re.compile(r"(?<![\w./…-])(?:builder|tests|scripts|docs|\.github)/[\w./*-]*\w[\w*]*")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|(?m:^ {4}.*$)|`[^`\n]*`", re.DOTALL)
_COMMAND = re.compile(r"(?m)(?:^ *|`|\$\()builder ([a-z]+)((?: +[^\s`|;#)]+)*)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def sections(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def options(name: str) -> set[str]:
    """The options of a command."""
    command: Any = load_command(name)
    return {"--help", *(option for item in command.params for option in (*item.opts, *item.secondary_opts))}


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_every_path_exists(page: Path) -> None:
    missing = []
    for path in set(_PATH.findall(page.read_text("utf-8"))):
        # NAME and the like stand for any name.
        pattern = re.sub(r"\b[A-Z][A-Z0-9_]+\b", "*", path.rstrip("/"))
        if not any(ROOT.glob(pattern)):
            missing.append(path)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_has_a_target(page: Path) -> None:
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path) if path else page
        assert other.exists(), target
        assert not anchor or anchor in sections(other), target


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_every_documented_option_exists(page: Path) -> None:
    code = "\n".join(_CODE.findall(page.read_text("utf-8"))).replace("\\\n", " ")
    for name, rest in _COMMAND.findall(code):
        assert name in COMMANDS, f"builder {name}"
        for option in re.findall(r"(?<!\S)(--[a-z-]+|-[a-z](?!\S))", rest):
            assert option in options(name), f"builder {name} {option}"
