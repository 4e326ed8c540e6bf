"""Hooks of mkdocs: pages at the top of the repository, pages of modules, and the links between all pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
TOP = {"README.md": "index.md", **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}}
# What other programs may want to import, by the table in docs/architecture.md.
ROOMS = (
    "errors",
    "digest",
    "model",
    "project",
    "plan",
    "produce",
    "oci",
    "store",
    "registry",
    "attest",
    "verify",
    "smoke",
)
_LINK = re.compile(r"(?<!!)(\[[^\]]*\])\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not below docs/."""
    for source, target in TOP.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    rooms = [room for room in ROOMS if (ROOT / "builder" / room).is_dir() or (ROOT / f"builder/{room}.py").is_file()]
    for room in rooms:
        files.append(File.generated(config, f"api/{room}.md", content=room_page(room)))
    listed = "".join(f"* [`builder.{room}`]({room}.md): {summary(module_file(room))}\n" for room in rooms)
    files.append(File.generated(config, "api/index.md", content=f"# Modules\n\n{listed}"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between documents as the site has them; a link to a file that is no document becomes its path."""
    place = page.file.src_uri
    source = next((name for name, target in TOP.items() if target == place), f"docs/{place}")
    return _LINK.sub(lambda found: _link(found, source, place), markdown)


def _link(found: re.Match[str], source: str, place: str) -> str:
    text, target, anchor = found[1], found[2], found[3] or ""
    path = normpath(f"{source.rpartition('/')[0]}/{target}".lstrip("/"))
    inside = TOP.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if inside is None:
        return f"{text[1:-1]} (`{path}`)" if (ROOT / path).exists() else found[0]
    return f"{text}({relpath(inside, place.rpartition('/')[0] or '.')}{anchor})"


def room_page(room: str) -> str:
    """The page of a room: every module, by its docstrings."""
    lines = [f"# builder.{room}", "", summary(module_file(room)), ""]
    return "\n".join([*lines, *(f"::: {name}\n" for name in modules(room))])


def modules(room: str) -> Iterator[str]:
    """The modules of a room: those of the room's own folder."""
    folder = ROOT / "builder" / room
    if not folder.is_dir():
        yield f"builder.{room}"
        return
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("__"):
            yield f"builder.{room}.{path.stem}"


def module_file(room: str) -> Path:
    """The file whose docstring says what a room is for."""
    folder = ROOT / "builder" / room
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def summary(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
