"""The SBOMs of nemotron-omni against dpkg and Python, which read the image's files by themselves."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.e2e.building import WHAT, Build, builder
from tests.support.statements import problems

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def installed(first: Build, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return independent(first.store, first.digest, tmp_path_factory.mktemp("metadata"))


def independent(store: Path, image: str, folder: Path) -> set[str]:
    """`deb NAME VERSION ARCHITECTURE` and `python NAME VERSION` of what is installed, as dpkg and Python see it."""
    manifest = json.loads(blob(store, image).read_text())
    for layer in manifest["layers"]:
        with (
            blob(store, layer["digest"]).open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as raw,
            tarfile.open(fileobj=io.BufferedReader(raw, 1 << 20), mode="r|") as tar,
        ):
            for member in tar:
                name = member.name
                if member.isfile() and (name == "var/lib/dpkg/status" or name.endswith("/METADATA")):
                    data = tar.extractfile(member)
                    assert data is not None
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(data.read())
    shown = "deb ${Package} ${Version} ${Architecture}\n"
    words = ["dpkg-query", f"--admindir={folder}/var/lib/dpkg", "--show", f"--showformat={shown}"]
    found = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())
    paths = {str(path) for name in ("dist-packages", "site-packages") for path in folder.rglob(name)}
    for item in distributions(path=sorted(paths)):
        found.add(f"python {item.metadata['Name'].lower().replace('_', '-').replace('.', '-')} {item.version}")
    return found


def blob(store: Path, digest: str) -> Path:
    return store.joinpath("blobs", *digest.split(":"))


def purls(document: dict[str, Any]) -> list[str]:
    """The packages in the image that a document lists."""
    if "components" in document:
        return [item["purl"] for item in document["components"] if item.get("scope") != "excluded"]
    inside = {row["relatedSpdxElement"] for row in document["relationships"] if row["relationshipType"] == "CONTAINS"}
    refs = [ref for item in document["packages"] if item["SPDXID"] in inside for ref in item["externalRefs"]]
    return [ref["referenceLocator"] for ref in refs]


def named(purl: str) -> str:
    """A purl in the words of `independent`."""
    kind, _, rest = purl.removeprefix("pkg:").partition("/")
    rest, _, qualifiers = rest.partition("?")
    name, _, version = rest.replace("%2B", "+").replace("%3A", ":").replace("%7E", "~").rpartition("@")
    if kind == "deb":
        return f"deb {name.removeprefix('debian/')} {version} {qualifiers.removeprefix('arch=')}"
    return f"{ {'pypi': 'python'}.get(kind, kind) } {name} {version}"


def check(text: str, installed: set[str]) -> None:
    """An SBOM is valid, and lists what is installed, the compiled sources and the unpacked wheels."""
    document = json.loads(text)
    assert problems(document) == []
    listed = [named(purl) for purl in purls(document)]
    assert len(listed) == len(set(listed))
    others = {name for name in listed if not name.startswith(("deb ", "python "))}
    assert set(listed) - others == installed
    assert len(installed) > 300
    assert {name.partition("@")[0] for name in others} >= {"github nvidia/nccl v2.29.7-1"}
    assert all(name.startswith(("github ", "generic nvidia-cuda-")) for name in others)


@pytest.mark.parametrize("format", ["cyclonedx", "spdx"])
def test_it_lists_what_is_installed_and_nothing_else(first: Build, installed: set[str], format: str) -> None:
    done = builder("sbom", *WHAT, "--format", format, store=first.store)
    assert done.returncode == 0, done.stderr
    check(done.stdout, installed)
    assert builder("sbom", *WHAT, "--format", format, store=first.store).stdout == done.stdout
