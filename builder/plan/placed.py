"""Renders the `files` of a layer.yaml: as entries of a layer's description, or as a RUN instruction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from builder.errors import InvalidError
from builder.model.layer import PlacedFile
from builder.model.textfile import decode
from builder.plan.template import Quoted, sh
from builder.plan.use import Scope
from builder.project import LayerSource
from builder.text import HIDDEN
from builder.unpack.entry import UnpackError
from builder.unpack.place import check_place, placed

_MOST = 4 << 20
"""Characters of the files that a layer places itself: a bundle holds them all."""
_HIDDEN = re.compile(rf"[\t\n\ufeff{HIDDEN}]")


def placed_files(items: Sequence[PlacedFile], scope: Scope, source: LayerSource) -> list[dict[str, Any]]:
    """The entries whose condition holds, rendered: path, mode and one of link, directory and content.

    Raises InvalidError.
    """
    made, left = [], _MOST
    for item in items:
        if scope.holds(item.when):
            made.append(_entry(item, scope, source))
            left -= len(made[-1].get("content") or "")
        if left < 0:
            raise InvalidError(
                f"its files have more than {_MOST} characters",
                id="layer-files-too-large",
                where=scope.where,
                cause="large files are inputs, which the lock holds by their hash",
            )
    return made


def _entry(item: PlacedFile, scope: Scope, source: LayerSource) -> dict[str, Any]:
    entry = _content_of(item, scope, source)
    try:
        made = placed(entry)
        if not source.definition.root:
            check_place(made)
    except UnpackError as error:
        raise InvalidError(str(error), id="layer-path-unsafe", where=scope.where) from None
    return {**entry, "path": made.path}


def _content_of(item: PlacedFile, scope: Scope, source: LayerSource) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": scope.text(item.path)}
    if item.link is not None:
        entry["link"] = scope.text(item.link)
    elif item.directory:
        entry["directory"] = True
    elif item.source is not None:
        entry["content"] = _content(item.source, scope, source)
    else:
        entry["content"] = item.content
    if item.mode is not None:
        entry["mode"] = item.mode
    return entry


def _content(name: str, scope: Scope, source: LayerSource) -> str:
    if name not in source.files:
        raise InvalidError(f"{name!r} is not in the layer's folder", id="layer-file-missing", where=scope.where)
    return decode(source.files[name], str(source.folder / name))


def run_instruction(entries: Sequence[Mapping[str, Any]], root: str) -> Quoted:
    """A RUN instruction that makes the entries below `root`; empty when there are none."""
    commands = []
    for item in entries:
        path = sh(f"{root}/{item['path']}")
        folder = sh(f"{root}/{item['path']}".rpartition("/")[0])
        commands.append(f"mkdir -p {path if item.get('directory') else folder}")
        if item.get("link") is not None:
            commands.append(f"ln -s {sh(item['link'])} {path}")
        elif not item.get("directory"):
            commands.append(f"printf {sh(_format(item['content']))} > {path}")
            commands.append(f"chmod {item.get('mode', '0644')} {path}")
    return Quoted("RUN umask 022 && " + " \\\n    && ".join(commands) + "\n" if commands else "")


def _format(text: str) -> str:
    """A format for printf that prints exactly this text."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%")
    escaped = _HIDDEN.sub(lambda found: "".join(f"\\{byte:03o}" for byte in found[0].encode()), escaped)
    # printf would read a format that begins with a dash as an option.
    return f"\\055{escaped[1:]}" if escaped.startswith("-") else escaped
