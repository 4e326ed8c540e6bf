"""Opening an image in an OCI layout or a store: its manifest, its configuration and the places of its layers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from builder.digest import Digest
from builder.errors import InvalidError, NetworkError, UsageError
from builder.jsontext import first_problem
from builder.oci.assemble import SomeConfig
from builder.oci.document import parse_document
from builder.oci.manifest import MANIFEST_LIMIT, Manifest, choose_platform, parse_manifest
from builder.regular import NotRegularError, open_regular, read_regular
from builder.text import is_plain_line

_MOST_LAYERS = 1000
"""Engines mount 127 at most, which a check tells; more than these are not read."""


@dataclass(frozen=True)
class LayerBlob:
    """A layer of a manifest. size: of the blob, in bytes. path: may not exist, as for the layers of a remote base.

    remote: opens the blob as a stream, for an image in a registry. diff_id: of the unpacked blob, when a record of the
    store has it; else it is computed from the blob.
    """

    digest: Digest
    size: int
    path: Path
    remote: Callable[[], BinaryIO] | None = None
    diff_id: Digest | None = None
    media_type: str = ""

    @property
    def present(self) -> bool:
        """Whether the whole blob can be read."""
        return self.remote is not None or (self.path.is_file() and self.path.stat().st_size == self.size)

    @property
    def wrong_size(self) -> bool:
        """Whether the blob is a file of another size than in the manifest."""
        return self.remote is None and self.path.is_file() and self.path.stat().st_size != self.size

    def open(self) -> BinaryIO:
        """The blob as a stream."""
        return self.remote() if self.remote is not None else open_regular(self.path, follow=True)


@dataclass(frozen=True)
class OpenedImage:
    """An image of one platform. digest is the manifest's. Raises InvalidError when it has more than 1000 layers."""

    digest: Digest
    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: tuple[LayerBlob, ...]

    def __post_init__(self) -> None:
        if len(self.layers) > _MOST_LAYERS:
            raise InvalidError(
                f"the image has {len(self.layers)} layers", id="image-layers-too-many", where=self.digest
            )

    def knowing(self, diff_ids: Mapping[Digest, Digest]) -> OpenedImage:
        """The same image; diff_ids: of layers, by the digest of their blob, from records of the store."""
        layers = (replace(blob, diff_id=diff_ids.get(blob.digest)) for blob in self.layers)
        return replace(self, layers=tuple(layers))

    @property
    def diff_ids(self) -> list[str]:
        """The diff_ids in the configuration, one for each layer if it is right."""
        return (self.config.get("rootfs") or {}).get("diff_ids") or []

    @property
    def config_digest(self) -> Digest:
        """The digest of the configuration, by which docker's classic image store knows an image."""
        return Digest(self.manifest["config"]["digest"])

    @property
    def settings(self) -> dict[str, Any]:
        """The `config` member of the configuration: Env, Entrypoint, Cmd, Labels, User, WorkingDir."""
        return self.config.get("config") or {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each layer, from the history: the layer's id for those that builder made, else "".

        All are "" when the history does not have one line for each layer.
        """
        lines = [line for line in self.config.get("history") or () if not line.get("empty_layer")]
        if len(lines) != len(self.layers):
            return ("",) * len(self.layers)
        texts = [str(line.get("created_by") or "") for line in lines]
        names = (text.removeprefix("builder: ") if text.startswith("builder: ") else "" for text in texts)
        # What a stranger wrote makes no line of its own in a message.
        return tuple(name if is_plain_line(name) else "" for name in names)

    @cached_property
    def env(self) -> dict[str, str]:
        """The environment that a container starts with."""
        return dict(item.split("=", 1) for item in self.settings.get("Env") or () if "=" in item)


def open_image(layout: Path, digest: Digest | None = None) -> OpenedImage:
    """Read an image's manifest and configuration.

    digest: of a manifest or an index; None: the only image in the layout's index.json. Of an index, the linux/arm64
    image is opened. Raises UsageError when the folder is not a layout, PinError when the index has no image for this
    platform or several, InvalidError when a blob is missing or damaged.
    """
    if not (layout / "index.json").exists() and digest is None:
        raise UsageError(
            "not an OCI layout",
            id="layout-missing",
            where=str(layout),
            cause="there is no index.json",
            next="name a folder that `builder build --output oci:DIR` or `skopeo copy … oci:DIR` wrote",
        )
    if digest is None:
        digest = _one(layout, _manifest(layout / "index.json"))
    manifest = _manifest(blob_path(layout, digest), digest)
    if manifest.is_index:
        digest = _one(layout, manifest)
        manifest = _manifest(blob_path(layout, digest), digest)
    if manifest.is_index:
        raise InvalidError(f"{digest} is not an image manifest", id="manifest-not-image", where=str(layout))
    named = manifest.config.digest
    config = read_config(_read(blob_path(layout, named), named), str(blob_path(layout, named)))
    layers = tuple(
        LayerBlob(item.digest, item.size, blob_path(layout, item.digest), media_type=item.media_type)
        for item in manifest.layers
    )
    return OpenedImage(digest, manifest.json, config, layers)


def read_config(data: bytes, where: str) -> dict[str, Any]:
    """An image's configuration; its known members have the types of the OCI specification. Raises InvalidError."""
    from pydantic import ValidationError

    try:
        found = parse_document(data)
        SomeConfig.model_validate(found)
    except ValidationError as error:
        raise InvalidError(f"invalid configuration: {first_problem(error)}", id="config-invalid", where=where) from None
    except ValueError as error:
        raise InvalidError(f"the configuration cannot be read: {error}", id="config-not-json", where=where) from None
    assert isinstance(found, dict)
    return found


def blob_path(layout: Path, digest: Digest) -> Path:
    """The path of a blob in a layout."""
    return layout / digest.path


def _one(layout: Path, index: Manifest) -> Digest:
    found = index.json.get("manifests") or []
    # Some programs write the only image of a layout without its platform.
    return Digest(found[0]["digest"]) if len(found) == 1 else choose_platform(index, "linux/arm64", str(layout))


def _manifest(path: Path, digest: Digest | None = None) -> Manifest:
    data = _read(path, digest)
    try:
        return parse_manifest(data)
    except NetworkError as error:
        raise InvalidError(
            "neither a manifest nor an index",
            id="manifest-invalid",
            where=str(path),
            cause=error.cause,
            next="copy the image to the folder again",
        ) from None


def _read(path: Path, digest: Digest | None) -> bytes:
    """The bytes of a small file. The folder is not trusted: the path may be a pipe or an endless device."""
    try:
        data = read_regular(path, MANIFEST_LIMIT, follow=True)
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        raise InvalidError(f"there is no file {digest or path.name}", id="blob-missing", where=str(path)) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            what = f"longer than {MANIFEST_LIMIT} bytes"
            raise InvalidError(what, id="manifest-too-large", where=str(path)) from None
        raise InvalidError(f"cannot be read: {error.strerror}", id="blob-unreadable", where=str(path)) from None
    if digest and Digest.of(data) != digest:
        raise InvalidError(f"{digest} is damaged", id="blob-damaged", where=str(path))
    return data
