"""The file that the dynamic loader of an image chooses for a library, by glibc's rules."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from builder.smoke.elf.dynamic import Dynamic, read_dynamic
from builder.smoke.elf.object import AARCH64, reader
from builder.smoke.image.tree import LONGEST_PATH, LONGEST_PATTERN, ImageTree, PathNotFound

DEFAULT_FOLDERS = ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib")
_MOST_FOLDERS, _MOST_FILES, _MOST_ORIGINS = 256, 100, 16
_LONGEST_CONF, _LONGEST_CACHE, _OVERLAP = 1 << 20, 16 << 20, 4
_CACHE_MAGIC, _OLD_MAGIC = b"glibc-ld.so.cache1.1", b"ld.so-1.7.0"


@dataclass(frozen=True)
class LibraryMatch:
    """The chosen file. path: as the loader opens it. real: with symlinks followed. why: the rule that found it."""

    path: str
    real: str
    why: str


@dataclass
class Loader:
    """The dynamic loader of an image. env: the environment of processes (LD_LIBRARY_PATH, LD_PRELOAD)."""

    tree: ImageTree
    env: Mapping[str, str] = field(default_factory=dict)
    _folders: list[str] | None = None
    _search: dict[tuple[str, tuple[str, ...]], list[str]] = field(default_factory=dict)

    def dynamic(self, path: str) -> Dynamic:
        """The dynamic section of a file of the image. Raises PathNotFound, ValueError."""
        seen = self.tree.stat(path).object
        if seen is None:
            with self.tree.open(path) as file:
                return read_dynamic(reader(file))
        if seen.dynamic is None:
            raise ValueError(f"{path}: {seen.problem}")
        return seen.dynamic

    def find(self, name: str, by: str, parents: Sequence[str] = ()) -> LibraryMatch:
        """The file for the library `name`, which the object `by` needs. parents: who loaded `by`, nearest first.

        Raises PathNotFound when no rule finds one.
        """
        for path in self._preloads:
            # A preloaded object with that name is already in memory.
            if path.rpartition("/")[2] == name and (found := self._at(path, "LD_PRELOAD")):
                return found
        for path, why in self.candidates(name, by, parents):
            if found := self._at(path, why):
                return found
        raise PathNotFound(name, f" where the loader looks for what {by} needs")

    def candidates(self, name: str, by: str, parents: Sequence[str] = ()) -> list[tuple[str, str]]:
        """The paths that the loader tries, in order, each with its rule."""
        if "/" in name:
            return [(name, "the name is a path")]
        asking = self.dynamic(by)
        places: list[tuple[str, str]] = []
        if not asking.runpath:
            for path in (by, *parents):
                dynamic = asking if path == by else self.dynamic(path)
                places += [(folder, f"DT_RPATH of {path}") for folder in self._expanded(path, dynamic.rpath)]
        places += [(folder, "LD_LIBRARY_PATH") for folder in self._library_path]
        places += [(folder, f"DT_RUNPATH of {by}") for folder in self._expanded(by, asking.runpath)]
        found = [(f"{folder.rstrip('/')}/{name}", why) for folder, why in places]
        found += [(path, "ld.so.cache") for path in self.cached(name)]
        # NVIDIA's container runtime runs ldconfig when a container starts, which adds the folders of ld.so.conf.
        found += [(f"{folder.rstrip('/')}/{name}", "ld.so.conf") for folder in self.configured()]
        found += [(f"{folder}/{name}", "default folder") for folder in DEFAULT_FOLDERS]
        return found

    @cached_property
    def _preloads(self) -> list[str]:
        return self.env.get("LD_PRELOAD", "").replace(":", " ").split(None, _MOST_FOLDERS)[:_MOST_FOLDERS]

    @cached_property
    def _library_path(self) -> list[str]:
        named = self.env.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":", _MOST_FOLDERS)[:_MOST_FOLDERS]
        return [folder for folder in named if folder]

    def _expanded(self, path: str, folders: tuple[str, ...]) -> list[str]:
        """The folders of DT_RPATH or DT_RUNPATH of a library, which are the same each time."""
        if (path, folders) not in self._search:
            short = (folder for folder in folders if folder.count("$") <= _MOST_ORIGINS)
            named = [_expand(folder, path) for folder in short]
            self._search[path, folders] = [each for each in named if each.startswith("/") and len(each) <= LONGEST_PATH]
        return self._search[path, folders]

    def cached(self, name: str) -> list[str]:
        """The paths of a library in the image's ld.so.cache."""
        return [*self.cache.get(name, ())]

    @cached_property
    def cache(self) -> dict[str, dict[str, None]]:
        """The image's ld.so.cache: paths by the name of a library. Raises ValueError for overlapping texts."""
        data = self._whole("/etc/ld.so.cache", _LONGEST_CACHE)
        start = _table_of(data)
        if not data.startswith(_CACHE_MAGIC, start) or len(data) < start + 48:
            if data.startswith(_OLD_MAGIC):
                raise ValueError("/etc/ld.so.cache has the format before glibc 2.2 alone, which is not read")
            return {}
        (count,) = struct.unpack_from("<I", data, start + 20)
        found: dict[str, dict[str, None]] = {}
        left = _OVERLAP * len(data)
        for number in range(count):
            offset = start + 48 + 24 * number
            if offset + 24 > len(data):
                break
            _, key, value = struct.unpack_from("<III", data, offset)
            name, path = _text(data, start + key), _text(data, start + value)
            left -= len(name) + len(path)
            if left < 0:
                raise ValueError("/etc/ld.so.cache names one text again and again, which ldconfig does not write")
            found.setdefault(name, {})[path] = None
        return found

    def configured(self) -> list[str]:
        """The folders in ld.so.conf and the files that it includes."""
        if self._folders is None:
            self._folders = self._conf("/etc/ld.so.conf", set())
        return self._folders

    def named_in(self, path: str) -> list[str]:
        """The folders in one file of ld.so.conf.d."""
        return self._conf(path, set())

    def _conf(self, path: str, seen: set[str]) -> list[str]:
        if path in seen:
            return []
        seen.add(path)
        folders: list[str] = []
        # As ldconfig reads it: bytes, in lines that end with a line feed alone.
        for raw in self._whole(path, _LONGEST_CONF).decode("utf-8", "surrogateescape").split("\n"):
            line = raw.partition("\0")[0].partition("#")[0].strip(" \t\r\v\f")
            if line.startswith(("include ", "include\t")):
                for pattern in line.split()[1:]:
                    folders += self._included(pattern, path, seen)
            elif line.startswith("/"):
                # Some versions of ldconfig take `=TYPE` behind a folder for its type.
                folders += dict.fromkeys([line, line.partition("=")[0].rstrip()])
        if len(folders) > _MOST_FOLDERS:
            raise ValueError(f"{path} names more than {_MOST_FOLDERS} folders")
        return folders

    def _included(self, pattern: str, path: str, seen: set[str]) -> list[str]:
        """The folders in the files that `include` names in a file. Raises ValueError for what is not followed."""
        if pattern in seen:
            return []
        seen.add(pattern)
        if len(seen) > _MOST_FILES or len(pattern) > LONGEST_PATTERN or set("[\\") & set(pattern):
            raise ValueError(f"{path} includes {pattern[:100]!r}, which is not followed: the name or too many files")
        absolute = pattern if pattern.startswith("/") else f"{path.rpartition('/')[0]}/{pattern}"
        return [folder for include in self.tree.match(absolute) for folder in self._conf(f"/{include}", seen)]

    def _whole(self, path: str, most: int) -> bytes:
        """A file that decides where the loader looks; b"" when there is none. Raises ValueError when it is too long."""
        if not self.tree.exists(path) or self.tree.stat(path).kind != "file":
            return b""
        try:
            data = self.tree.read(path, most + 1)
        except PathNotFound as error:
            raise ValueError(str(error)) from error
        if len(data) > most:
            raise ValueError(f"{path} is too long: {most} bytes are read")
        return data

    def _at(self, path: str, why: str) -> LibraryMatch | None:
        try:
            entry = self.tree.stat(path)
        except PathNotFound:
            return None
        # The loader skips libraries of other machines.
        if entry.kind != "file" or entry.machine != AARCH64:
            return None
        return LibraryMatch(path, f"/{self.tree.resolve(path)}", why)


def _table_of(cache: bytes) -> int:
    """The place of the table in an ld.so.cache: behind one of the format before glibc 2.2, if that is there, too."""
    if not cache.startswith(_OLD_MAGIC) or len(cache) < 16:
        return 0
    (count,) = struct.unpack_from("<I", cache, 12)
    return int(-(-(16 + 12 * count) // 8) * 8)


def _expand(folder: str, path: str) -> str:
    origin = path.rpartition("/")[0]
    for name, value in (("ORIGIN", origin), ("LIB", "lib"), ("PLATFORM", "aarch64")):
        folder = folder.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return folder


def _text(data: bytes, start: int) -> str:
    return data[start : max(start, data.find(b"\0", start, start + 4096))].decode("utf-8", "surrogateescape")
