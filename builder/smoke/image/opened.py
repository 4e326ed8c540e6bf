"""An image in an OCI layout, or in any folder with blobs/sha256: manifest, configuration, and where its layers are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from builder.errors import InvalidError, NetworkError, UsageError
from builder.jsontext import parse_json
from builder.model.reference import is_digest
from builder.oci.manifest import MANIFEST_LIMIT, Manifest, parse_manifest, sha256


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
class OpenedImage:
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


def open_image(layout: Path, digest: str | None = None) -> OpenedImage:
    """Read an image's manifest and configuration.

    digest: of a manifest or an index; None takes the only image in the layout's index.json. Of an index, the
    linux/arm64 image is taken. Raises UsageError when the folder is no layout, InvalidError when there is no such
    image, or a blob is damaged or makes no sense.
    """
    if not (layout / "index.json").exists() and digest is None:
        raise UsageError(
            "is no OCI layout",
            where=str(layout),
            cause="it has no index.json",
            next="name a folder that `builder build --output oci:DIR` or `skopeo copy … oci:DIR` wrote",
        )
    if digest is None:
        digest = _one(layout, _manifest(layout / "index.json"))
    manifest = _manifest(blob_path(layout, digest), digest)
    if manifest.is_index:
        digest = _one(layout, manifest)
        manifest = _manifest(blob_path(layout, digest), digest)
    if manifest.is_index:
        raise InvalidError(f"{digest} is not an image manifest", where=str(layout))
    named = manifest.json["config"]["digest"]
    config = read_config(_read(blob_path(layout, named), named), str(blob_path(layout, named)))
    layers = tuple(
        LayerBlob(item["digest"], item["size"], blob_path(layout, item["digest"])) for item in manifest.json["layers"]
    )
    return OpenedImage(digest, manifest.json, config, layers)


def read_config(data: bytes, where: str) -> dict[str, Any]:
    """An image's configuration, its known members of the kinds that the OCI gives them. Raises InvalidError."""
    from pydantic import ValidationError

    from builder.oci.assemble import SomeConfig

    try:
        found = parse_json(data)
        SomeConfig.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise InvalidError(f"the configuration makes no sense: {place}: {first['msg']}", where=where) from None
    except ValueError as error:
        raise InvalidError(f"the configuration is not JSON: {error}", where=where) from None
    assert isinstance(found, dict)
    return found


def blob_path(layout: Path, digest: str) -> Path:
    """Where a layout keeps a blob. Raises InvalidError when the digest is none."""
    if not is_digest(digest):
        raise InvalidError(f"not a digest: {digest!a}", where=str(layout))
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


def _one(layout: Path, index: Manifest) -> str:
    found = index.json.get("manifests") or []
    if len(found) > 1:
        wanted = {"os": "linux", "architecture": "arm64"}
        found = [item for item in found if wanted.items() <= (item.get("platform") or {}).items()]
    if len(found) != 1:
        raise InvalidError(
            f"{len(found)} images to choose from, expected one", where=str(layout), next="name the digest of the image"
        )
    return str(found[0]["digest"])


def _manifest(path: Path, digest: str | None = None) -> Manifest:
    data = _read(path, digest)
    try:
        return parse_manifest(data)
    except NetworkError as error:
        raise InvalidError("neither a manifest nor an index", where=str(path), cause=error.cause) from None


def _read(path: Path, digest: str | None) -> bytes:
    """The bytes of a small file. What the folder holds is not trusted: it may be a pipe, or without end."""
    try:
        if not path.is_file():
            raise InvalidError(f"{digest or path.name} is not there, or not a file", where=str(path))
        with path.open("rb") as file:
            data = file.read(MANIFEST_LIMIT + 1)
    except OSError as error:
        raise InvalidError(f"cannot read: {error.strerror}", where=str(path)) from None
    if len(data) > MANIFEST_LIMIT:
        raise InvalidError(f"longer than {MANIFEST_LIMIT} bytes", where=str(path))
    if digest and sha256(data) != digest:
        raise InvalidError(f"{digest} is damaged", where=str(path))
    return data
