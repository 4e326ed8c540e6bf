"""A package index with dates, from wheels made in Python."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from tests.support.http_server import Server, body
from tests.support.wheels import wheel

_TYPE = "application/vnd.pypi.simple.v1+json"


@dataclass
class Index:
    """Projects with their files. ranges: whether the server sends parts of files."""

    server: Server
    ranges: bool = True
    files: dict[str, list[dict[str, object]]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address of the index."""
        return f"{self.server.address}/simple/"

    def add(
        self,
        name: str,
        version: str,
        *requires: str,
        uploaded: str | None = "2026-01-02T00:00:00Z",
        tag: str = "py3-none-any",
        files: dict[str, bytes | str] | None = None,
    ) -> None:
        """Publish a wheel. uploaded: None for an index without dates."""
        stem = name.replace("-", "_")
        data = wheel(name, {f"{stem}/__init__.py": name, **(files or {})}, version=version, requires=requires)
        self._publish(name, f"{stem}-{version}-{tag}.whl", data, uploaded)

    def add_sdist(self, name: str, version: str, data: bytes) -> None:
        """Publish a source distribution."""
        self._publish(name, f"{name}-{version}.tar.gz", data, "2026-01-02T00:00:00Z")

    def _publish(self, name: str, file: str, data: bytes, uploaded: str | None) -> None:
        entry: dict[str, object] = {
            "filename": file,
            "url": f"/files/{file}",
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
            "size": len(data),
        }
        if uploaded:
            entry["upload-time"] = uploaded
        self.files.setdefault(name, []).append(entry)
        page = {"meta": {"api-version": "1.1"}, "name": name, "files": self.files[name]}
        self.server.on(f"/simple/{name}/", body(json.dumps(page).encode(), content_type=_TYPE))
        self.server.on(f"/files/{file}", body(data, ranges=self.ranges))
