"""An inventory as CycloneDX 1.6 JSON (https://cyclonedx.org/docs/1.6/json/). Pure and deterministic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from builder import __version__
from builder.attest.inventory import Inventory, Part
from builder.attest.licences import known

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

MEDIA_TYPE = "application/vnd.cyclonedx+json"
_HOW = "builder:kind"
"""A property: the kind of a part, where the type of its component does not tell it."""


def cyclonedx(inventory: Inventory) -> dict[str, Any]:
    """The document. Its serial number follows from the image's digest, and its time is the image's.

    The toolchain is one component with the scope `excluded`: it made a part of the image and is not in it.
    """
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    image = Component(
        type=ComponentType.CONTAINER, name=inventory.title, version=inventory.image, bom_ref=inventory.image
    )
    components = [_component(part) for part in inventory.parts]
    dependencies = {part.purl: component for part, component in zip(inventory.parts, components, strict=True)}
    if inventory.toolchain:
        toolchain = Component(
            type=ComponentType.APPLICATION,
            name="toolchain",
            bom_ref="toolchain",
            scope=ComponentScope.EXCLUDED,
            components=[_component(part, excluded=True) for part in inventory.toolchain],
        )
        components.append(toolchain)
    tool = Component(type=ComponentType.APPLICATION, name="builder", version=__version__, bom_ref="builder")
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, inventory.image),
        metadata=BomMetaData(
            component=image,
            timestamp=datetime.fromisoformat(inventory.created),
            properties=_incomplete(inventory, Property),
        ),
        components=components,
    )
    bom.metadata.tools.components.add(tool)
    bom.register_dependency(image, [dependencies[part.purl] for part in inventory.parts])
    for purl in inventory.compiled:
        if inventory.toolchain and purl in dependencies:
            bom.register_dependency(dependencies[purl], [toolchain])
    found: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return found


def listed(document: Any) -> dict[str, str]:
    """The purls of anybody's document, without those of the toolchain, and their SHA-256 ("": none).

    Raises ValueError when it is not such a document.
    """
    found = {}
    try:
        if document["bomFormat"] != "CycloneDX":
            raise ValueError("it is not CycloneDX")
        for item in document["components"]:
            if item.get("scope") != "excluded":
                hashes = {row["alg"]: row["content"] for row in item.get("hashes", ())}
                found[str(item["purl"])] = str(hashes.get("SHA-256", ""))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("it lacks members of CycloneDX") from None
    return found


def _component(part: Part, *, excluded: bool = False) -> Component:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
    from cyclonedx.model.component import Commit, Component, ComponentScope, ComponentType, Pedigree
    from packageurl import PackageURL

    properties = [Property(name=_HOW, value=part.kind)]
    if part.file:
        properties.append(Property(name="builder:file", value=part.file))
    pedigree = Pedigree(commits=[Commit(uid=part.commit)]) if part.commit else None
    address = XsUri(f"https://github.com/{part.repository}")
    return Component(
        type=ComponentType.CONTAINER if part.kind == "base" else ComponentType.LIBRARY,
        name=part.name,
        version=part.version,
        # The same package can be in the image and in the toolchain.
        bom_ref=f"toolchain/{part.purl}" if excluded else part.purl,
        scope=ComponentScope.EXCLUDED if excluded else None,
        purl=PackageURL.from_string(part.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else (),
        licenses=_licences(part.licences),
        properties=properties,
        pedigree=pedigree,
        external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=address)] if part.repository else (),
    )


def _licences(names: Sequence[str]) -> list[Any]:
    """One expression, or several licences by id or name: a document cannot hold both."""
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement, LicenseExpression
    from cyclonedx.spdx import is_supported_id

    declared = LicenseAcknowledgement.DECLARED
    if len(names) == 1 and known(names[0]) and not is_supported_id(names[0]):
        return [LicenseExpression(names[0], acknowledgement=declared)]
    return [
        DisjunctiveLicense(id=name, acknowledgement=declared)
        if is_supported_id(name)
        else DisjunctiveLicense(name=name, acknowledgement=declared)
        for name in names
    ]


def _incomplete(inventory: Inventory, kind: Any) -> list[Any]:
    """What a reader must know when a base was not read: the list of its packages is not here."""
    return [] if inventory.complete else [kind(name="builder:incomplete", value="the layers of the base were not read")]
