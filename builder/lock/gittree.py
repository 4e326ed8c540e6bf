"""The git tree that a source archive holds: computed from the archive's files, to be compared with a commit's."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Any

from builder.errors import InvalidError

_FILE_LIMIT = 1 << 30
_DEPTH = 200


def tree_of_archive(path: Path) -> tuple[str, str | None]:
    """The id of the git tree below the archive's one top folder, and the commit that it says it was made from, if any.

    Git's own format (gitformat-pack, "tree object"): modes 100644, 100755 and 120000; folders without files are not in
    a tree. An archive that leaves files of its commit out, or rewrites them (export-ignore, export-subst), gives
    another id than the commit's. Raises InvalidError when it is not such an archive.
    """
    root: dict[str, Any] = {}
    tops: set[str] = set()
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                top, _, name = member.name.rstrip("/").partition("/")
                tops.add(top)
                if not name:
                    if not member.isdir():
                        raise _invalid(path, "a file stands beside its top folder")
                elif not member.isdir():
                    _place(root, name, _entry(archive, member, path), path)
            commit = archive.pax_headers.get("comment")
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise _invalid(path, f"{type(error).__name__}") from None
    if len(tops) != 1:
        raise _invalid(path, "it has not one folder at its top")
    return _tree(root).hex(), commit


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> tuple[str, bytes]:
    """Mode and blob id."""
    if member.issym():
        return "120000", _object("blob", member.linkname.encode("utf-8", "surrogateescape"))
    if not member.isreg() or member.size > _FILE_LIMIT:
        raise _invalid(path, "it holds something that git does not")
    stream = archive.extractfile(member)
    data = stream.read() if stream else b""
    return ("100755" if member.mode & 0o100 else "100644"), _object("blob", data)


def _place(root: dict[str, Any], name: str, entry: tuple[str, bytes], path: Path) -> None:
    *folders, last = name.split("/")
    if len(folders) > _DEPTH or any(part in ("", ".", "..", ".git") for part in (*folders, last)):
        raise _invalid(path, "a path in it is not one that git has")
    for folder in folders:
        root = root.setdefault(folder, {})
        if not isinstance(root, dict):
            raise _invalid(path, "a file in it is a folder too")
    if last in root:
        raise _invalid(path, "a file stands in it twice")
    root[last] = entry


def _tree(folder: dict[str, Any]) -> bytes:
    entries = []
    for name, value in folder.items():
        raw = name.encode("utf-8", "surrogateescape")
        mode, identity = ("40000", _tree(value)) if isinstance(value, dict) else value
        # Git sorts folders as if their names ended with a slash.
        entries.append((raw + b"/" if mode == "40000" else raw, mode.encode() + b" " + raw + b"\0" + identity))
    return _object("tree", b"".join(data for _, data in sorted(entries)))


def _object(kind: str, data: bytes) -> bytes:
    # Git's name for content, not a signature of it: what is trusted is the archive's sha256.
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).digest()


def _invalid(path: Path, cause: str) -> InvalidError:
    return InvalidError("not an archive of a git commit", where=path.name, cause=cause)
