"""Assembles an image: config, manifest and digest from the plan, its layers and the base. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from builder.digest import Digest
from builder.errors import NetworkError
from builder.jsontext import first_problem
from builder.model.canonical import canonical
from builder.model.plan import Plan, Variable
from builder.oci.document import parse_document
from builder.oci.manifest import OCI_MANIFEST, Manifest, parse_manifest
from builder.store.records import LayerRecord

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"

_OCI_LAYERS = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
}


class _Settings(BaseModel):
    Env: list[str] | None = None
    Labels: dict[str, str] | None = None
    Entrypoint: list[str] | None = None
    Cmd: list[str] | None = None
    WorkingDir: str | None = None
    User: str | None = None
    Volumes: dict[str, Any] | None = None
    ExposedPorts: dict[str, Any] | None = None


class _RootFs(BaseModel):
    diff_ids: list[Digest]


class _BaseConfig(BaseModel):
    """The members of a base's config that this module reads; others are allowed."""

    rootfs: _RootFs
    config: _Settings | None = None
    history: list[dict[str, Any]] | None = None
    variant: str | None = None


class SomeConfig(_BaseConfig):
    """The same for an image that is tested only: rootfs may be absent, and a check reports that."""

    rootfs: _RootFs | None = None  # type: ignore[assignment]


@dataclass(frozen=True)
class BaseImage:
    """A registry base: its reference by digest, its manifest and its parsed config."""

    reference: str
    manifest: Manifest
    config: Mapping[str, Any]


@dataclass(frozen=True)
class ImageLayer:
    """A layer; size in bytes. of_base: whether the blob is in the base's registry; else it is in the store."""

    digest: Digest
    size: int
    media_type: str
    diff_id: Digest
    of_base: bool
    id: str = ""


@dataclass(frozen=True)
class Image:
    """An assembled image: the exact bytes of config and manifest, their digests, and the layers."""

    digest: Digest
    manifest: bytes
    config: bytes
    config_digest: Digest
    layers: tuple[ImageLayer, ...]
    base: BaseImage | None

    @property
    def config_json(self) -> dict[str, Any]:
        """The configuration."""
        parsed: dict[str, Any] = json.loads(self.config)
        return parsed

    @property
    def size(self) -> int:
        """The size of all compressed layers, in bytes."""
        return sum(layer.size for layer in self.layers)


def assemble(plan: Plan, records: Mapping[str, LayerRecord], base: BaseImage | None) -> Image:
    """The image of a plan. records: by layer id, the record of every layer with files.

    Raises NetworkError for a base that cannot be extended.
    """
    layers = [*(_base_layers(base) if base else [])]
    for layer in plan.layers:
        if layer.producer != "config":
            record = records[layer.id]
            layers.append(
                ImageLayer(record.digest, record.size, record.media_type, record.diff_id, of_base=False, id=layer.id)
            )
    config = canonical(config_of(plan, [layer.diff_id for layer in layers], base))
    annotations = {name: value for name, value in plan.labels if name.startswith("org.opencontainers.image.")}
    manifest = canonical(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": CONFIG_TYPE, "digest": Digest.of(config), "size": len(config)},
            "layers": [{"mediaType": item.media_type, "digest": item.digest, "size": item.size} for item in layers],
            "annotations": annotations,
        }
    )
    return Image(Digest.of(manifest), manifest, config, Digest.of(config), tuple(layers), base)


def parse_base(reference: str, manifest: bytes, config: bytes) -> BaseImage:
    """A base from the manifest and config of its registry. Raises NetworkError when they are malformed."""
    parsed = parse_manifest(manifest, where=reference)
    if parsed.is_index:
        raise NetworkError("the base's manifest is an index", id="base-manifest-index", where=reference)
    try:
        found = parse_document(config)
    except ValueError as error:
        raise NetworkError(
            f"the base's config is malformed: {error}", id="base-config-malformed", where=reference
        ) from None
    try:
        _BaseConfig.model_validate(found)
        return BaseImage(reference, parsed, found)
    except ValidationError as error:
        raise NetworkError(
            f"the base's config is malformed: {first_problem(error)}", id="base-config-malformed", where=reference
        ) from None


def _base_layers(base: BaseImage) -> list[ImageLayer]:
    diff_ids = base.config["rootfs"]["diff_ids"]
    descriptors = base.manifest.json["layers"]
    if len(diff_ids) != len(descriptors):
        raise NetworkError(
            "the base's manifest and config name different numbers of layers",
            id="base-layers-mismatch",
            where=base.reference,
        )
    layers = []
    for descriptor, diff_id in zip(descriptors, diff_ids, strict=True):
        digest, media_type = Digest(descriptor["digest"]), descriptor["mediaType"]
        if "foreign" in media_type or descriptor.get("urls"):
            raise NetworkError(
                "a layer of the base is not in its registry (foreign layer)",
                id="base-layer-foreign",
                where=base.reference,
            )
        layers.append(
            ImageLayer(
                digest, descriptor["size"], _OCI_LAYERS.get(media_type, media_type), Digest(diff_id), of_base=True
            )
        )
    return layers


def environment(existing: Sequence[str], variables: Sequence[Variable]) -> list[str]:
    """NAME=VALUE strings: `existing` in their order. A variable replaces its old value, or comes last."""
    values = dict(item.partition("=")[::2] for item in existing)
    for item in variables:
        before = values.get(item.name, "")
        values[item.name] = f"{item.value}:{before}" if item.prepend and before else item.value
    return [f"{name}={value}" for name, value in values.items()]


def config_of(plan: Plan, diff_ids: Sequence[Digest | None], base: BaseImage | None) -> dict[str, Any]:
    """The configuration of a plan's image. diff_ids: of all layers; a test has None for a layer that it cannot know."""
    inherited: dict[str, Any] = dict(base.config) if base else {}
    settings: dict[str, Any] = dict(inherited.get("config") or {})
    settings["Env"] = environment(settings.get("Env") or [], plan.env)
    settings["Labels"] = {**(settings.get("Labels") or {}), **dict(plan.labels)}
    settings.setdefault("WorkingDir", "/")
    if plan.entrypoint is not None:
        settings["Entrypoint"] = list(plan.entrypoint)
    if plan.command:
        settings["Cmd"] = list(plan.command)
    # Image names a parent of the base in docker's classic builder. OnBuild is for images on the base, as this one.
    for name in ("Image", "OnBuild"):
        settings.pop(name, None)
    os_name, architecture = plan.platform.split("/")[:2]
    config: dict[str, Any] = {
        "architecture": architecture,
        "os": os_name,
        "created": plan.created,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
        "history": [*(inherited.get("history") or []), *_history(plan)],
    }
    if inherited.get("variant"):
        config["variant"] = inherited["variant"]
    return config


def _history(plan: Plan) -> list[dict[str, Any]]:
    lines = []
    for layer in plan.layers:
        line: dict[str, Any] = {"created": plan.created, "created_by": f"builder: {layer.id}", "comment": layer.title}
        if layer.producer == "config":
            line["empty_layer"] = True
        lines.append(line)
    return lines
