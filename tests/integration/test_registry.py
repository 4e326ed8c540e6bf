"""The registry client against Debian's docker-registry, with skopeo as the second opinion."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import PinError
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig, RegistryEntry
from tests.support.errors import fails
from tests.support.http_registry import digest_of, entry, image_manifest, index
from tests.support.registry import is_installed

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed"),
]


@pytest.fixture
def registry() -> Registry:
    return Registry(config=RegistriesConfig(), credentials=Credentials())


LAYER = gzip.compress(bytes(1 << 20), mtime=0)
CONFIG = json.dumps(
    {
        "os": "linux",
        "architecture": "arm64",
        "rootfs": {"type": "layers", "diff_ids": [digest_of(bytes(1 << 20))]},
    }
).encode()
MANIFEST = image_manifest(CONFIG, LAYER)


def pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 100):
        yield data[start : start + 100]


def push(registry: Registry, target: Reference) -> str:
    for blob in (LAYER, CONFIG):
        registry.upload(target, digest_of(blob), len(blob), lambda blob=blob: pieces(blob))  # type: ignore[misc]
    return registry.put_manifest(target, MANIFEST, OCI_MANIFEST)


def test_push_then_read(host: str, registry: Registry) -> None:
    target = Reference.parse(f"{host}/team/app:1")
    assert not registry.has_blob(target, digest_of(LAYER))
    digest = push(registry, target)
    assert digest == digest_of(MANIFEST)
    assert registry.has_blob(target, digest_of(LAYER))
    assert registry.tags(target) == ["1"]
    found, top = registry.platform_manifest(target)
    assert (found.data, top) == (MANIFEST, None)
    assert registry.config(target, found) == CONFIG
    assert b"".join(registry.blob(target, digest_of(LAYER), len(LAYER))) == LAYER


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_reads_the_same(host: str, registry: Registry, tmp_path: Path) -> None:
    digest = push(registry, Reference.parse(f"{host}/team/seen:1"))
    command = ["skopeo", "--override-arch", "arm64", "inspect", "--tls-verify=false", f"docker://{host}/team/seen:1"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)
    assert told["Digest"] == digest
    assert told["Architecture"] == "arm64"
    assert told["Layers"] == [digest_of(LAYER)]


def test_mount_from_another_repository(host: str, registry: Registry) -> None:
    push(registry, Reference.parse(f"{host}/team/base:1"))
    target = Reference.parse(f"{host}/team/derived:1")
    assert registry.mount(target, digest_of(LAYER), "team/base")
    assert registry.has_blob(target, digest_of(LAYER))
    assert not registry.mount(target, digest_of(b"nowhere"), "team/base")
    assert not registry.mount(target, digest_of(CONFIG), "team/absent")


def test_an_index_and_a_mirror(host: str, registry: Registry) -> None:
    target = Reference.parse(f"{host}/mirrored/team/app:2")
    digest = push(registry, target)
    top = registry.put_manifest(target, index({**entry(digest, "linux/arm64/v8"), "size": len(MANIFEST)}), OCI_INDEX)
    config = RegistriesConfig({"nvcr.io": RegistryEntry(mirror=(f"{host}/mirrored",))})
    through = Registry(config=config, credentials=Credentials())
    found, at = through.platform_manifest(Reference.parse(f"nvcr.io/team/app:2@{top}"))
    assert (found.digest, at) == (digest, top)


def test_absent(host: str, registry: Registry) -> None:
    for text in ("team/app:absent", f"team/app@{digest_of(b'absent')}", "nobody/nothing:1"):
        with fails(PinError, "registry-content-missing"):
            registry.manifest(Reference.parse(f"{host}/{text}"))


def test_a_wrong_blob_is_not_stored(host: str, registry: Registry) -> None:
    target = Reference.parse(f"{host}/team/wrong:1")
    with pytest.raises(PinError):
        registry.upload(target, digest_of(b"right"), 5, lambda: iter([b"wrong"]))
    assert not registry.has_blob(target, digest_of(b"right"))
