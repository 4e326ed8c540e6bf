"""Single members of a wheel on the package index, without the rest of it: a zip file read by ranges."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import requests
from pypi_simple import PyPISimple

from builder.inputs.hosts import wheel_indexes
from tests.support.cache import TESTS_CACHE


class Remote(io.RawIOBase):
    """A file behind a URL whose server answers ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._session, self._position = url, requests.Session(), 0
        self._size = int(self._get("bytes=-1").headers["Content-Range"].rpartition("/")[2])

    def _get(self, wanted: str) -> requests.Response:
        answer = self._session.get(self._url, headers={"Range": wanted}, timeout=60)
        answer.raise_for_status()
        if answer.status_code != 206:
            raise OSError("the server sends whole files only")
        return answer

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        data = self._get(f"bytes={self._position}-{end - 1}").content
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


class RemoteWheel:
    """Members of one wheel; each is downloaded once per machine and kept below the cache of the tests."""

    def __init__(self, name: str, version: str, words: tuple[str, ...]) -> None:
        self._wanted = name, version, words
        self._folder = TESTS_CACHE / "members" / "-".join([name, version, *(word.strip("-") for word in words)])

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        name, version, words = self._wanted
        with PyPISimple(wheel_indexes()[0]) as client:
            found = [
                package.url
                for package in client.get_project_page(name).packages
                if package.package_type == "wheel"
                and package.version == version
                and all(word in package.filename for word in words)
            ]
        if not found:
            raise LookupError(f"the index has no wheel of {name} {version} with {' and '.join(words)} in its name")
        return zipfile.ZipFile(io.BufferedReader(Remote(found[0]), 1 << 20))

    def namelist(self) -> list[str]:
        """The paths of all members."""
        kept = self._kept("names.json", lambda: json.dumps(self._archive.namelist()).encode())
        names: list[str] = json.loads(kept)
        return names

    def read(self, member: str) -> bytes:
        """The content of one member."""
        return self._kept(f"content/{member}", lambda: self._archive.read(member))

    def _kept(self, name: str, fetch: Callable[[], bytes]) -> bytes:
        path = self._folder / name
        if path.is_file():
            return path.read_bytes()
        data = fetch()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(data)
        part.replace(path)
        return data


@cache
def wheel(name: str, version: str, *words: str) -> RemoteWheel:
    """The wheel of that version whose file name has all these words."""
    return RemoteWheel(name, version, words)
