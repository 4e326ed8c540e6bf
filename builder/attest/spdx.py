"""An inventory as SPDX 2.3 JSON (https://spdx.github.io/spdx-spec/v2.3/). Pure and deterministic."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from builder import __version__
from builder.attest.inventory import Inventory, Part
from builder.attest.licences import known

MEDIA_TYPE = "application/spdx+json"
_NONE = "NOASSERTION"
_PURPOSES = {"base": "CONTAINER", "source": "SOURCE"}


def spdx(inventory: Inventory) -> dict[str, Any]:
    """The document. Its namespace follows from the image's digest, and its time is the image's.

    Packages of the toolchain are BUILD_DEPENDENCY_OF each part that was compiled.
    """
    image = "SPDXRef-image"
    packages = [_image(inventory, image), *(_package(part) for part in inventory.parts)]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", image)]
    relations += [(image, "CONTAINS", _id(part)) for part in inventory.parts]
    compiled = [part for part in inventory.parts if part.purl in inventory.compiled]
    for part in inventory.toolchain:
        packages.append(_package(part, "toolchain-"))
        relations += [(_id(part, "toolchain-"), "BUILD_DEPENDENCY_OF", _id(made)) for made in compiled]
    licences = {name for part in (*inventory.parts, *inventory.toolchain) for name in part.licences}
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": inventory.title,
        "documentNamespace": f"urn:builder:sbom:{inventory.image}",
        "creationInfo": {"created": inventory.created, "creators": [f"Tool: builder-{__version__}"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relations
        ],
        "hasExtractedLicensingInfos": _extracted(licences),
    }


def listed(document: Any) -> dict[str, str]:
    """The purls of what anybody's document says the image contains, and their SHA-256 ("": none).

    Raises ValueError when it is not such a document.
    """
    found = {}
    try:
        if not document["spdxVersion"].startswith("SPDX-2."):
            raise ValueError("it is not SPDX 2")
        contained = {
            row["relatedSpdxElement"] for row in document["relationships"] if row["relationshipType"] == "CONTAINS"
        }
        for item in document["packages"]:
            sums = {row["algorithm"]: row["checksumValue"] for row in item.get("checksums", ())}
            for row in item.get("externalRefs", ()) if item["SPDXID"] in contained else ():
                if row["referenceType"] == "purl":
                    found[str(row["referenceLocator"])] = str(sums.get("SHA256", ""))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("it lacks members of SPDX") from None
    return found


def _image(inventory: Inventory, ref: str) -> dict[str, Any]:
    found = {
        "SPDXID": ref,
        "name": inventory.title,
        "versionInfo": inventory.image,
        "downloadLocation": _NONE,
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{"algorithm": "SHA256", "checksumValue": inventory.image.hex}],
        "licenseConcluded": _NONE,
        "licenseDeclared": _NONE,
        "copyrightText": _NONE,
    }
    return found if inventory.complete else found | {"comment": "The layers of the base were not read."}


def _package(part: Part, prefix: str = "") -> dict[str, Any]:
    location = f"git+https://github.com/{part.repository}@{part.commit}" if part.repository and part.commit else _NONE
    found: dict[str, Any] = {
        "SPDXID": _id(part, prefix),
        "name": part.name,
        "versionInfo": part.version,
        "downloadLocation": location,
        "filesAnalyzed": False,
        "primaryPackagePurpose": _PURPOSES.get(part.kind, "LIBRARY"),
        "licenseConcluded": _NONE,
        "licenseDeclared": _declared(part.licences),
        "copyrightText": _NONE,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}
        ],
    }
    if part.file:
        found["packageFileName"] = part.file
    if part.sha256:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": part.sha256}]
    if part.commit:
        found["sourceInfo"] = f"git commit {part.commit}"
    return found


def _id(part: Part, prefix: str = "") -> str:
    """An identifier that only this purl has: letters, digits, dots and hyphens."""
    return f"SPDXRef-{prefix}{part.kind}-{_letters(part.name)}-{hashlib.sha256(part.purl.encode()).hexdigest()[:12]}"


def _declared(names: Sequence[str]) -> str:
    """All of the licences, as one expression."""
    terms = [known(name) or _reference(name) for name in names]
    if len(terms) < 2:
        return terms[0] if terms else _NONE
    return " AND ".join(f"({term})" if " OR " in term or " AND " in term else term for term in terms)


def _extracted(names: Iterable[str]) -> list[dict[str, str]]:
    """Names that are not of SPDX: the image has their texts."""
    return [
        {
            "licenseId": _reference(name),
            "name": name,
            "extractedText": f"The package names its licence: {name}",
        }
        for name in sorted(set(names))
        if not known(name)
    ]


def _reference(name: str) -> str:
    return f"LicenseRef-{_letters(name)}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _letters(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60]
