"""SBOMs of inventories: validators accept them, they are deterministic, and they say what is in the image."""

from __future__ import annotations

import email
import json
from dataclasses import replace

import pytest

from builder.attest import cyclonedx, spdx
from builder.attest.inventory import Found, Inventory, Part, deb_part, inventory, python_part
from builder.attest.licences import debian_licences, known, python_licences
from builder.digest import Digest
from builder.model.canonical import canonical
from tests.support.statements import problems

FORMAT = "Format: https://example.org/copyright-format/1.0/\n"
IMAGE = Digest.of(b"image")
COMMIT = "2" * 40
NCCL = Part("source", "nccl", "2.0", "pkg:github/nvidia/nccl@v2.0", (), "nccl.tar.gz", "1" * 64, "NVIDIA/nccl", COMMIT)


def deb(name: str, version: str, *licences: str) -> Part:
    return deb_part({"Package": name, "Version": version, "Architecture": "arm64"}, "debian", licences)


PARTS = (
    deb("libc6", "1:2.41-12+deb13u2", "LGPL-2.1-only"),
    deb("g++", "4:14", "GPL-3.0-or-later", "odd (name)"),
    python_part("Foo.Bar_baz", "1.0+cu130", ("MIT OR Apache-2.0",)),
    python_part("plain", "1", ("Some words of its own",)),
    NCCL,
)
TOOLS = (python_part("nvidia-cuda-nvcc", "13.0"), PARTS[0])
WHOLE = Inventory(IMAGE, "omni", "2026-01-02T03:04:05Z", PARTS, TOOLS, (NCCL.purl,))
OF_BASE = inventory(IMAGE, "omni", "2026-01-02T03:04:05Z", Found(PARTS, ("host/team/vllm", Digest.of(b"base"))), None)


@pytest.mark.parametrize(
    "subject", [WHOLE, OF_BASE, replace(WHOLE, parts=PARTS[:1], compiled=())], ids=["whole", "base", "small"]
)
@pytest.mark.parametrize("kind", [cyclonedx, spdx], ids=["cyclonedx", "spdx"])
def test_a_document_is_valid_and_lists_the_parts(kind: object, subject: Inventory) -> None:
    make = cyclonedx.cyclonedx if kind is cyclonedx else spdx.spdx
    document = make(subject)
    assert problems(document) == []
    assert canonical(make(subject)) == canonical(document)
    listed = (cyclonedx if kind is cyclonedx else spdx).listed(json.loads(canonical(document)))
    assert listed == {part.purl: part.sha256 for part in subject.parts}
    assert ("were not read" in canonical(document).decode()) == (subject is OF_BASE)


def test_the_toolchain_is_not_in_the_image() -> None:
    document = cyclonedx.cyclonedx(WHOLE)
    (tools,) = (item for item in document["components"] if item["name"] == "toolchain")
    assert tools["scope"] == "excluded" and len(tools["components"]) == 2
    depends = {item["ref"]: item.get("dependsOn") for item in document["dependencies"]}
    assert depends[NCCL.purl] == ["toolchain"]
    assert next(item for item in document["components"] if item["name"] == "nccl")["pedigree"] == {
        "commits": [{"uid": "2" * 40}]
    }
    found = spdx.spdx(WHOLE)
    builds = [item for item in found["relationships"] if item["relationshipType"] == "BUILD_DEPENDENCY_OF"]
    assert len(builds) == 2 and len({item["spdxElementId"] for item in builds}) == 2
    assert any(
        item["downloadLocation"] == f"git+https://github.com/NVIDIA/nccl@{'2' * 40}" for item in found["packages"]
    )


def test_purls() -> None:
    assert [part.purl for part in PARTS[:3]] == [
        "pkg:deb/debian/libc6@1:2.41-12%2Bdeb13u2?arch=arm64",
        "pkg:deb/debian/g%2B%2B@4:14?arch=arm64",
        "pkg:pypi/foo-bar-baz@1.0%2Bcu130",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("License: GPL-2+\n", ()),
        (f"{FORMAT}License: GPL-2+\n text\n", ("GPL-2.0-or-later",)),
        (f"{FORMAT}\nLicense: Expat\n\nLicense: LGPL-2.1\nLicense: MIT\n", ("LGPL-2.1-only", "MIT")),
        (f"{FORMAT}License: public-domain\nLicense: GPL-2+ or Artistic\n", ("GPL-2+ or Artistic", "public-domain")),
        (f"{FORMAT}License: {'x' * 81}\n", ()),
    ],
)
def test_licences_of_debian(text: str, expected: tuple[str, ...]) -> None:
    assert debian_licences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("License-Expression: apache-2.0 or MIT\nLicense: no\n", ("Apache-2.0 OR MIT",)),
        ("License: BSD 3-Clause\n", ("BSD 3-Clause",)),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", ("MIT",)),
        ("Classifier: License :: OSI Approved\nClassifier: Programming Language :: C\n", ()),
        ("License: A long\n        text\nClassifier: License :: OSI Approved :: BSD License\n", ("BSD License",)),
        ("", ()),
    ],
)
def test_licences_of_python(text: str, expected: tuple[str, ...]) -> None:
    assert python_licences(email.message_from_string(text)) == expected


@pytest.mark.parametrize(
    "text", ["", "and", "MIT (", "(" * 60 + "MIT", "LicenseRef-x", "MIT WITH nothing", "BSD", "\x00"]
)
def test_what_is_no_licence_of_spdx(text: str) -> None:
    assert known(text) is None
