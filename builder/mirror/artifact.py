"""The OCI artifact of a plan in a mirror: a manifest that lists every input of the plan. No I/O.

A folder is an OCI layout; a registry holds the same artifacts under the same tags. Readers find blobs by digest and do
not need the artifact: it protects the blobs from garbage collection and describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.digest import Digest
from builder.model.canonical import canonical, fingerprint
from builder.model.inputs import Input
from builder.model.plan import Plan
from builder.oci.manifest import OCI_MANIFEST, Descriptor

ARTIFACT = "application/vnd.builder.inputs.v1"
CONTENT = "application/vnd.builder.input.v1"
EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
"""The config of an artifact that needs none (OCI image spec 1.1)."""

_TAG_LENGTH = 128


@dataclass(frozen=True)
class Content:
    """One file of a mirror; size in bytes. kind: deb, wheel, source, base-manifest, base-config or base-layer.

    source: the locked input, where the file is one.
    """

    kind: str
    name: str
    file: str
    digest: Digest
    size: int
    source: Input | None = None


@dataclass(frozen=True)
class Artifact:
    """The inputs of one plan: the tag, the exact bytes of the manifest, and the files that it lists.

    attached: whether it is about an image, and so found through this image and not by its tag.
    """

    tag: str
    manifest: bytes
    contents: tuple[Content, ...]
    attached: bool = False

    @property
    def digest(self) -> Digest:
        """The manifest's digest."""
        return Digest.of(self.manifest)

    @property
    def size(self) -> int:
        """The size of all contents, in bytes."""
        return sum(item.size for item in self.contents)


def locked_contents(plan: Plan) -> list[Content]:
    """Every locked input of a plan's layers; with the toolchains of all build platforms when a layer compiles."""
    inputs = {item.digest: item for layer in (*plan.layers, *plan.used_toolchains) for item in layer.inputs}
    return [Content(item.kind, item.name, item.file, item.digest, item.size, item) for item in inputs.values()]


def base_contents(plan: Plan, manifest: bytes, config: bytes) -> list[Content]:
    """The manifest and config of a plan's registry base."""
    return [
        Content("base-manifest", plan.base, f"{plan.base}.manifest.json", Digest.of(manifest), len(manifest)),
        Content("base-config", plan.base, f"{plan.base}.config.json", Digest.of(config), len(config)),
    ]


def layer_contents(plan: Plan, layers: Iterable[Descriptor]) -> list[Content]:
    """The base's layers, from the descriptors in its manifest."""
    return [
        Content("base-layer", f"{plan.base} {number}", f"{plan.base}.layer-{number}", layer.digest, layer.size)
        for number, layer in enumerate(layers)
    ]


def make_artifact(
    plan: Plan, tag: str, contents: Sequence[Content], subject: Mapping[str, Any] | None = None
) -> Artifact:
    """The artifact of a plan. The same inputs give the same bytes on any machine.

    subject: the descriptor of the image that the artifact is attached to.
    """
    unique = {item.digest: item for item in sorted(contents, key=_order, reverse=True)}
    listed = tuple(sorted(unique.values(), key=_order))
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": ARTIFACT,
        "config": {"mediaType": EMPTY_TYPE, "digest": Digest.of(EMPTY), "size": len(EMPTY)},
        "layers": [
            {
                "mediaType": CONTENT,
                "digest": item.digest,
                "size": item.size,
                "annotations": {
                    "org.opencontainers.image.title": item.file,
                    "org.builder.input.kind": item.kind,
                    "org.builder.input.name": item.name,
                },
            }
            for item in listed
        ],
        "annotations": {"org.builder.recipe": plan.recipe, "org.builder.base": plan.base},
        **({"subject": dict(subject)} if subject is not None else {}),
    }
    return Artifact(tag, canonical(manifest), listed, attached=subject is not None)


def artifact_tag(plan: Plan, variant: Iterable[str] = ()) -> str:
    """RECIPE.BASE, and a hash of `variant`: the profile and `--set` options that change the recipe's own plan."""
    tag = ".".join((plan.recipe, plan.base))
    if words := list(variant):
        tag += "." + fingerprint(words)[:8]
    if len(tag) > _TAG_LENGTH:
        tag = f"{tag[: _TAG_LENGTH - 9]}.{Digest.of(tag.encode()).hex[:8]}"
    return tag


def _order(item: Content) -> tuple[str, str, str]:
    return item.kind, item.file, item.digest
