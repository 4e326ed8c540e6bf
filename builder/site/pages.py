"""Renders pages to HTML and writes the folder: an index and a page for each image, which need no server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from builder.atomic import staged
from builder.errors import UsageError
from builder.site.facts import TIERS, Page, shared
from builder.text import printable

_HERE = Path(__file__).parent
_MARK = b'<meta name="generator" content="builder site">'
_HEAD = 400
"""Bytes of a page in which the mark is."""
_CHANGES = 150
"""Changes that a page lists."""
_MARKS = {"yes": "✓", "no": "✗", "unknown": "?"}
_RESULTS = {"pass": "yes", "warn": "unknown", "not-run": "unknown", "fail": "no"}


def render(pages: Sequence[Page], size: Callable[[int], str]) -> dict[str, str]:
    """The files of a site by path. size: a number of bytes as text. Pure."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
    )
    environment.filters["size"] = size
    common: dict[str, Any] = {
        "style": (_HERE / "style.css").read_text("utf-8"),
        "script": (_HERE / "search.js").read_text("utf-8"),
        "tiers": TIERS,
        "marks": _MARKS,
        "results": _RESULTS,
        "most": _CHANGES,
    }
    names = file_names(pages)
    files = {"index.html": environment.get_template("index.html.j2").render(pages=pages, names=names, **common)}
    found = shared(pages)
    template = environment.get_template("image.html.j2")
    of = {
        id(page): (f"{page.recipe} on {page.base}", name.partition("/")[2])
        for page, name in zip(pages, names, strict=True)
    }
    for page, name in zip(pages, names, strict=True):
        others = {
            layer.digest: [of[id(other)] for other in found[layer.digest] if other is not page] for layer in page.layers
        }
        files[name] = template.render(page=page, others=others, **common)
    return files


def file_names(pages: Sequence[Page]) -> list[str]:
    """The paths of pages: from recipe and base, with the digest where two have the same."""
    plain = [re.sub(r"[^a-z0-9.]+|\.{2,}", "-", f"{page.recipe}-{page.base}".lower())[:120] for page in pages]
    return [
        f"images/{name}{'' if plain.count(name) == 1 else f'-{number}-{page.digest.short}'}.html"
        for number, (name, page) in enumerate(zip(plain, pages, strict=True), 1)
    ]


def write_site(folder: Path, files: Mapping[str, str]) -> None:
    """Write a site into a new or empty folder, or over an older site. Raises UsageError."""
    try:
        old = _own(folder)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        with staged({folder / name: text.encode() for name, text in files.items()}) as put:
            for name in files:
                put(folder / name)
        for path in old - {folder / name for name in files}:
            path.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write: {error.strerror}",
            id="site-not-writable",
            where=str(folder),
            next="name a folder that you can write",
        ) from None


def _own(folder: Path) -> set[Path]:
    """The pages of an older site. Raises UsageError for a folder with anything else in the place of one."""
    if not folder.exists() or not any(folder.iterdir()):
        return set()
    pages = {folder / "index.html", *(folder / "images").glob("*.html")}
    for path in sorted({*pages, folder / "images"}):
        # A link would lead the pages, and the removal of old ones, to another folder.
        if path.is_symlink() or (path in pages and not (path.is_file() and _is_page(path))):
            raise UsageError(
                f"{path.relative_to(folder)} is no page of a site",
                id="site-folder-foreign",
                where=str(folder),
                next="name a new or empty folder",
            )
    return pages


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return _MARK in file.read(_HEAD)
