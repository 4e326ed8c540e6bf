"""The archive for `docker load`: names, the two manifests, and blobs that are listed once."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from builder.digest import Digest
from builder.errors import UsageError
from builder.oci.dockerarchive import write_archive
from builder.oci.manifest import OCI_MANIFEST
from tests.support.errors import fails

CONFIG = b'{"os":"linux"}'
LAYERS = {Digest.of(data): data for data in (b"first" * 9000, b"second")}


def manifest(*layers: Digest) -> bytes:
    rows = [{"mediaType": "x", "digest": digest, "size": len(LAYERS[digest])} for digest in layers]
    config = {"mediaType": "c", "digest": Digest.of(CONFIG), "size": len(CONFIG)}
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": rows}
    return json.dumps(document).encode()


def write(name: str, document: bytes) -> list[tuple[str, bytes]]:
    out = io.BytesIO()
    write_archive(out, name, document, CONFIG, lambda layer: iter((LAYERS[layer.digest][:3], LAYERS[layer.digest][3:])))
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


def test_archive_is_an_oci_layout_with_docker_manifest() -> None:
    first, second = LAYERS
    document = manifest(first, second, first)
    members = write("tiny:1", document)
    files = dict(members)
    assert len(members) == len(files) == 7
    assert all(Digest.of(data).path == name for name, data in files.items() if name.startswith("blobs/"))
    assert json.loads(files["manifest.json"]) == [
        {
            "Config": Digest.of(CONFIG).path,
            "RepoTags": ["docker.io/library/tiny:1"],
            "Layers": [first.path, second.path, first.path],
        }
    ]
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert (entry["digest"], entry["size"]) == (Digest.of(document), len(document))


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("tiny", "docker.io/library/tiny:latest"),
        ("team/tiny:2", "docker.io/team/tiny:2"),
        ("localhost:5000/tiny:2", "localhost:5000/tiny:2"),
    ],
)
def test_names_are_written_in_full_as_docker_keeps_them(name: str, full: str) -> None:
    (entry,) = json.loads(dict(write(name, manifest()))["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == full


def test_invalid_name() -> None:
    with fails(UsageError, "reference-invalid"):
        write("Not A Name", manifest())
