"""An image in an OCI layout, or in any folder with blobs/sha256: manifest, configuration, and where its layers are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from builder.errors import InvalidError

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


@dataclass(frozen=True)
class LayerBlob:
    """A layer as the manifest names it. size is of the blob, in bytes; path may not exist (a base left remote).

    remote: streams the blob from where it is, for a layer of an image in a registry.
    """

    digest: str
    size: int
    path: Path
    remote: Callable[[], BinaryIO] | None = None

    @property
    def present(self) -> bool:
        """Whether the whole blob can be read."""
        return self.remote is not None or (self.path.is_file() and self.path.stat().st_size == self.size)

    @property
    def cut(self) -> bool:
        """Whether there is a file of another size than the manifest says."""
        return self.remote is None and self.path.is_file() and self.path.stat().st_size != self.size

    def open(self) -> BinaryIO:
        """The blob as a stream."""
        return self.remote() if self.remote is not None else self.path.open("rb", buffering=0)


@dataclass(frozen=True)
class Image:
    """An image of one platform. digest is the manifest's."""

    digest: str
    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: tuple[LayerBlob, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """The `config` member of the configuration: Env, Entrypoint, Cmd, Labels, User, WorkingDir."""
        return self.config.get("config") or {}

    @property
    def names(self) -> tuple[str, ...]:
        """What each layer is called, by the history: the layer's id for those that builder made, else "".

        A history that does not fit the layers names none.
        """
        lines = [line for line in self.config.get("history") or () if not line.get("empty_layer")]
        if len(lines) != len(self.layers):
            return ("",) * len(self.layers)
        said = [str(line.get("created_by") or "") for line in lines]
        return tuple(text.removeprefix("builder: ") if text.startswith("builder: ") else "" for text in said)

    @property
    def env(self) -> dict[str, str]:
        """The environment that a container starts with."""
        return dict(item.split("=", 1) for item in self.settings.get("Env") or () if "=" in item)


def open_image(layout: Path, digest: str | None = None) -> Image:
    """Read an image's manifest and configuration.

    digest: of a manifest or an index; None takes the only image in the layout's index.json. Of an index, the
    linux/arm64 image is taken. Raises InvalidError when there is no such image or a blob is damaged.
    """
    if digest is None:
        index = _json((layout / "index.json"), None)
        digest = _one(layout, index)
    manifest = _blob(layout, digest)
    if "manifests" in manifest or manifest.get("mediaType") in _INDEXES:
        digest = _one(layout, manifest)
        manifest = _blob(layout, digest)
    try:
        config = _blob(layout, manifest["config"]["digest"])
        layers = tuple(
            LayerBlob(item["digest"], int(item["size"]), blob_path(layout, item["digest"]))
            for item in manifest["layers"]
        )
    except (KeyError, TypeError) as error:
        raise InvalidError(f"{digest} is not an image manifest", where=str(layout)) from error
    return Image(digest, manifest, config, layers)


def blob_path(layout: Path, digest: str) -> Path:
    """Where a layout keeps a blob. Raises InvalidError when the digest is none."""
    algorithm, _, value = digest.partition(":")
    if not (algorithm.isalnum() and value.isalnum()):
        raise InvalidError(f"not a digest: {digest}", where=str(layout))
    return layout / "blobs" / algorithm / value


def _one(layout: Path, index: dict[str, Any]) -> str:
    found = [item for item in index.get("manifests") or () if isinstance(item, dict)]
    if len(found) > 1:
        wanted = {"os": "linux", "architecture": "arm64"}
        found = [item for item in found if wanted.items() <= (item.get("platform") or {}).items()]
    if len(found) != 1:
        raise InvalidError(
            f"{len(found)} images to choose from, expected one", where=str(layout), next="name the digest of the image"
        )
    return str(found[0]["digest"])


def _blob(layout: Path, digest: str) -> dict[str, Any]:
    return _json(blob_path(layout, digest), digest)


def _json(path: Path, digest: str | None) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        value = json.loads(data)
    except FileNotFoundError:
        raise InvalidError(f"{digest or 'index.json'} is not there", where=str(path)) from None
    except ValueError as error:
        raise InvalidError("not JSON", where=str(path)) from error
    if digest and f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise InvalidError(f"{digest} is damaged", where=str(path))
    if not isinstance(value, dict):
        raise InvalidError("not a JSON object", where=str(path))
    return value
