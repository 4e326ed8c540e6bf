"""What is installed in an image, as dpkg and Python read it from the files of its layers; and the SBOMs beside that."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import zstandard

from tests.support.statements import problems


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


def check(document: dict[str, Any], installed: set[str]) -> set[str]:
    """An SBOM is valid, and lists what is installed and nothing else of Debian and Python. Returns what else it lists:
    compiled sources, unpacked wheels."""
    assert problems(document) == []
    listed = [named(purl) for purl in purls(document)]
    assert len(listed) == len(set(listed))
    others = {name for name in listed if not name.startswith(("deb ", "python "))}
    assert len(installed) > 50
    assert set(listed) - others == installed
    return others
