"""The paths of one layer, and its whiteouts (OCI image specification, "Layer Filesystem Changeset")."""

from __future__ import annotations

from typing import Literal

from builder.errors import InvalidError

Change = Literal["adds", "removes", "empties"]

_OPAQUE = ".wh..wh..opq"
_FOLDER = 200
"""Bytes in memory of a folder besides its path."""


class LayerPaths:
    """Refuses a layer whose files depend on the order of its members, or on how an engine stores layers.

    overlayfs has one file for a path and its whiteout; other drivers apply one after the other. Some programs follow a
    link of the same layer, others replace it.
    """

    def __init__(self, where: str) -> None:
        """where: the layer's name in errors."""
        self.memory = 0
        """Bytes, estimated, of the folders that members lie in: each of a deep path is a path of its own."""
        self._where = where
        self._seen: set[str] = set()
        self._others: set[str] = set()
        self._parents: set[str] = set()

    def add(self, path: str, *, folder: bool) -> tuple[Change, str]:
        """What a member does, and to which path; "empties" removes everything that lower layers have in a folder.

        folder: whether the member is a folder. Raises InvalidError.
        """
        parent, _, name = path.rpartition("/")
        if "/.wh." in f"/{parent}":
            raise self._ambiguous(path, "is in a folder that has the name of a whiteout")
        if name == _OPAQUE:
            if parent in self._parents:
                # buildah then removes folders of this layer too, if the layer has no member for them.
                raise self._ambiguous(path, "comes after members of its folder")
            self._below(path)
            return "empties", parent
        if name.startswith(".wh."):
            removed = f"{parent}/{name[4:]}".lstrip("/")
            if name[4:] in ("", ".", "..") or name.startswith(".wh..wh."):
                raise self._ambiguous(path, "is not the name of a whiteout")
            self._take(removed, folder=False)
            return "removes", removed
        self._take(path, folder)
        return "adds", path

    def _take(self, path: str, folder: bool) -> None:
        if path in self._seen:
            raise self._ambiguous(path, "is in the layer twice")
        self._seen.add(path)
        self._below(path)
        if folder:
            return
        if path in self._parents:
            raise self._ambiguous(path, "is no folder, but the layer has members below it")
        self._others.add(path)

    def _below(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        while path and parent not in self._parents:
            if parent in self._others:
                raise self._ambiguous(parent, "is no folder, but the layer has members below it")
            self._parents.add(parent)
            self.memory += _FOLDER + 2 * len(parent)
            path, parent = parent, parent.rpartition("/")[0]

    def _ambiguous(self, path: str, what: str) -> InvalidError:
        return ambiguous(f"/{path} {what}", self._where)


def ambiguous(what: str, where: str) -> InvalidError:
    """The error of a layer that container engines unpack to different files. where: the layer's name."""
    return InvalidError(
        f"{what}: container engines differ in what they make of this",
        id="layer-ambiguous",
        where=where,
        cause="what is checked here may not be what runs",
        next="build the image again with docker, buildah or builder",
    )
