"""The paths of one layer, and its whiteouts (OCI image specification, "Layer Filesystem Changeset")."""

from __future__ import annotations

from typing import Literal

from builder.errors import InvalidError

Change = Literal["adds", "removes", "empties"]

_OPAQUE = ".wh..wh..opq"


class LayerPaths:
    """Refuses a layer whose files depend on the order of its members, or on how an engine stores layers.

    overlayfs has one file for a path and its whiteout, other drivers apply one after the other; some programs follow a
    link of the same layer, others replace it.
    """

    def __init__(self, where: str) -> None:
        """where: the layer's name in errors."""
        self._where = where
        self._folders: set[str] = set()
        self._others: set[str] = set()
        self._parents: set[str] = set()

    def add(self, path: str, *, folder: bool) -> tuple[Change, str]:
        """What a member does, and to which path; "empties" removes everything that lower layers have in a folder.

        folder: whether the member is a folder. Raises InvalidError.
        """
        parent, _, name = path.rpartition("/")
        if name == _OPAQUE:
            self._below(path)
            return "empties", parent
        if name.startswith(".wh."):
            removed = f"{parent}/{name[4:]}".lstrip("/")
            if name[4:] in ("", ".", "..") or name.startswith(".wh..wh."):
                raise self._ambiguous(path, "is not the name of a whiteout")
            self._take(removed)
            return "removes", removed
        if not folder:
            self._take(path)
        elif path in self._others:
            raise self._ambiguous(path, "is in the layer twice")
        else:
            self._below(path)
            self._folders.add(path)
        return "adds", path

    def _take(self, path: str) -> None:
        if path in self._others or path in self._folders:
            raise self._ambiguous(path, "is in the layer twice")
        if path in self._parents:
            raise self._ambiguous(path, "is no folder, but the layer has members below it")
        self._below(path)
        self._others.add(path)

    def _below(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        while parent and parent not in self._parents:
            if parent in self._others:
                raise self._ambiguous(parent, "is no folder, but the layer has members below it")
            self._parents.add(parent)
            parent = parent.rpartition("/")[0]

    def _ambiguous(self, path: str, what: str) -> InvalidError:
        return InvalidError(
            f"/{path} {what}",
            id="layer-ambiguous",
            where=self._where,
            cause="container engines unpack such a layer to different files",
            next="build the image again with docker, buildah or builder",
        )
