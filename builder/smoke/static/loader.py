"""Which file of an image the dynamic loader takes for a library, by glibc's rules."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from builder.smoke.elf.dynamic import Dynamic, read_dynamic
from builder.smoke.elf.object import AARCH64, reader
from builder.smoke.image.tree import ImageTree, PathNotFound

DEFAULT_FOLDERS = ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib")
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


@dataclass(frozen=True)
class LibraryMatch:
    """path: as the loader opens it. real: with every link followed. why: the rule that found it."""

    path: str
    real: str
    why: str


@dataclass
class Loader:
    """The loader of an image. env: what processes start with (LD_LIBRARY_PATH, LD_PRELOAD)."""

    tree: ImageTree
    env: Mapping[str, str] = field(default_factory=dict)
    _cache: dict[str, list[str]] | None = None
    _folders: list[str] | None = None

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
        """Where `name`, needed by the object `by`, is taken from. parents: who loaded `by`, nearest first.

        Raises PathNotFound when it is nowhere.
        """
        for path in self.env.get("LD_PRELOAD", "").replace(":", " ").split():
            # A preloaded object with that name is there already; the loader looks no further.
            if path.rpartition("/")[2] == name and (found := self._at(path, "LD_PRELOAD")):
                return found
        for path, why in self.candidates(name, by, parents):
            if found := self._at(path, why):
                return found
        raise PathNotFound(name, f" where the loader looks for what {by} needs")

    def candidates(self, name: str, by: str, parents: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Every path the loader would try, in order, each with the rule it comes from."""
        if "/" in name:
            return [(name, "the name is a path")]
        asking = self.dynamic(by)
        places: list[tuple[str, str]] = []
        if not asking.runpath:
            for path in (by, *parents):
                dynamic = asking if path == by else self.dynamic(path)
                places += [(_expand(folder, path), f"DT_RPATH of {path}") for folder in dynamic.rpath]
        for folder in self.env.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
            if folder:
                places.append((folder, "LD_LIBRARY_PATH"))
        places += [(_expand(folder, by), f"DT_RUNPATH of {by}") for folder in asking.runpath]
        found = [(f"{folder.rstrip('/')}/{name}", why) for folder, why in places]
        found += [(path, "ld.so.cache") for path in self.cached(name)]
        # NVIDIA's container runtime runs ldconfig when a container starts: what ld.so.conf names is in the cache then.
        found += [(f"{folder.rstrip('/')}/{name}", "ld.so.conf") for folder in self.configured()]
        found += [(f"{folder}/{name}", "default folder") for folder in DEFAULT_FOLDERS]
        return found

    def cached(self, name: str) -> list[str]:
        """What the image's ld.so.cache says for a name."""
        if self._cache is None:
            self._cache = self._read_cache()
        return self._cache.get(name, [])

    def _read_cache(self) -> dict[str, list[str]]:
        try:
            data = self.tree.read("/etc/ld.so.cache", 16 << 20)
        except PathNotFound:
            return {}
        start = data.find(_CACHE_MAGIC)
        if start < 0 or len(data) < start + 48:
            return {}
        (count,) = struct.unpack_from("<I", data, start + 20)
        found: dict[str, list[str]] = {}
        for number in range(count):
            offset = start + 48 + 24 * number
            if offset + 24 > len(data):
                break
            _, key, value = struct.unpack_from("<III", data, offset)
            found.setdefault(_text(data, start + key), []).append(_text(data, start + value))
        return found

    def configured(self) -> list[str]:
        """The folders that ld.so.conf names, includes followed."""
        if self._folders is None:
            self._folders = self._conf("/etc/ld.so.conf", 0)
        return self._folders

    def _conf(self, path: str, depth: int) -> list[str]:
        try:
            text = self.tree.read(path).decode(errors="replace")
        except PathNotFound:
            return []
        folders: list[str] = []
        for line in text.splitlines():
            line = line.partition("#")[0].strip()
            if line.startswith("include") and depth < 5:
                for pattern in line.split()[1:]:
                    absolute = pattern if pattern.startswith("/") else f"{path.rpartition('/')[0]}/{pattern}"
                    for include in self.tree.match(absolute):
                        folders += self._conf(f"/{include}", depth + 1)
            elif line.startswith("/"):
                folders.append(line)
        return folders

    def _at(self, path: str, why: str) -> LibraryMatch | None:
        try:
            entry = self.tree.stat(path)
        except PathNotFound:
            return None
        # The loader passes over a library of another machine.
        if entry.kind != "file" or entry.machine != AARCH64:
            return None
        return LibraryMatch(path, f"/{self.tree.resolve(path)}", why)


def _expand(folder: str, path: str) -> str:
    origin = path.rpartition("/")[0]
    for name, value in (("ORIGIN", origin), ("LIB", "lib"), ("PLATFORM", "aarch64")):
        folder = folder.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return folder


def _text(data: bytes, start: int) -> str:
    return data[start : data.find(b"\0", start)].decode(errors="replace")
