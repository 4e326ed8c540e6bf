"""The small image in a registry, with signed statements."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from builder.attest.envelope import MEDIA_TYPE
from builder.digest import Digest
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attach, attached, read_attached
from tests.support.cli import Cli, CommandResult
from tests.support.statements import new_key

RECIPE = ("--recipe", "tiny")


class Signed:
    """The small image in a registry, pushed with a key."""

    def __init__(self, cli: Cli, host: str, name: str) -> None:
        self.cli = cli
        self.registry = Registry(config=RegistriesConfig(), credentials=Credentials())
        self.target = f"{host}/said/{name}:1"
        self.private, self.public = new_key(cli.folder, "own")
        self.other_private, self.other_public = new_key(cli.folder, "other")
        self.digest = self.push("--key", str(self.private))

    def push(self, *words: str) -> Digest:
        assert self.cli("build", *RECIPE).code == 0
        said = self.cli("push", self.target, *RECIPE, *words)
        assert said.code == 0, said.err
        return Digest(said.out.strip().rpartition("@")[2])

    @property
    def pinned(self) -> str:
        return self.target.removesuffix(":1") + f"@{self.digest}"

    def verify(self, *words: str) -> CommandResult:
        """`builder verify REF` where there is no project and nothing is built."""
        empty = self.cli.folder / "empty"
        empty.mkdir(exist_ok=True)
        more = {"BUILDER_PROJECT": str(empty), "BUILDER_STORE": str(self.cli.folder / "stranger")}
        return self.cli("verify", self.target, *words, **more)

    def people(self, public: Path | None = None) -> CommandResult:
        """Only the signatures."""
        return self.verify("--no-rebuild", "--signed-by", str(public or self.public))

    def payloads(self, kind: str) -> list[bytes]:
        """The blobs of the artifacts of a type."""
        place = Reference.parse(self.target)
        found = attached(self.registry, place, self.digest, kind)
        return [read_attached(self.registry, place, item, 1 << 22).payload for item in found]

    def statement(self, kind: str) -> dict[str, Any]:
        """The signed statement of a type."""
        for payload in self.payloads(MEDIA_TYPE):
            found: dict[str, Any] = json.loads(base64.b64decode(json.loads(payload)["dsseEnvelope"]["payload"]))
            if found["predicateType"] == kind:
                return found
        raise AssertionError(kind)

    def forget(self) -> None:
        """Remove all that is attached."""
        nothing = b'{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}'
        place = Reference.parse(self.target)
        self.registry.put_manifest(Reference(place.registry, place.repository, self.digest.tag), nothing, OCI_INDEX)

    def attach(self, payload: bytes, kind: str, subject: Digest | None = None) -> None:
        """Attach a blob to the image."""
        about = {"mediaType": OCI_MANIFEST, "digest": subject or self.digest, "size": 1}
        attach(self.registry, Reference.parse(self.target), about, payload, kind)

    def hashes(self, wheel: str) -> set[str]:
        """The hash of a wheel in the lock."""
        wheels = self.cli.small.files["recipes/locks/tiny-wheels.json"]["wheels"]
        return {item["sha256"] for item in wheels if item["name"] == wheel}
