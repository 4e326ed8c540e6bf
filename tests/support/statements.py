"""Independent readers of what is attached to an image: cosign, oras, and validators of SBOMs; and keys to sign with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jsonschema import Draft7Validator
from referencing import Registry, Resource
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

CLIENTS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "builder-dev" / "clients" / "usr" / "bin"
"""Where scripts/test unpacks them."""


def client(name: str) -> str | None:
    """The path of cosign or oras, None when this machine has none."""
    return shutil.which(name) or shutil.which(CLIENTS / name)


def new_key(folder: Path, name: str, password: str | None = None) -> tuple[Path, Path]:
    """A new key: the files of its private and of its public part."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def run(name: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a client; its settings are in an empty home."""
    program = client(name)
    assert program is not None
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "COSIGN_PASSWORD": "",
    }
    return subprocess.run([program, *words], capture_output=True, text=True, env=environ, timeout=60, check=False)


def cosign(verb: str, image: str, public: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`cosign verify` and its like, with a key and without the public log of signatures."""
    options = ("--key", str(public), "--insecure-ignore-tlog", "--allow-insecure-registry", *words)
    return run("cosign", verb, *options, image, home=public.parent)


@cache
def _cyclonedx() -> Draft7Validator:
    """The official schema, from the copy in cyclonedx-python-lib."""
    folder = files("cyclonedx.schema") / "_res"
    names = ("bom-1.6", "spdx", "jsf-0.82")
    texts = {name: (folder / f"{name}.SNAPSHOT.schema.json").read_text() for name in names}
    schemas = {
        f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json": json.loads(text) for name, text in texts.items()
    }
    registry: Registry[Any] = Registry().with_resources(
        (address, Resource.from_contents(schema)) for address, schema in schemas.items()
    )
    return Draft7Validator(schemas["http://cyclonedx.org/schema/bom-1.6.SNAPSHOT.schema.json"], registry=registry)


def problems(document: Mapping[str, Any]) -> list[str]:
    """What a validator says about an SBOM: CycloneDX's schema, or the tools of SPDX."""
    if document.get("bomFormat") == "CycloneDX":
        assert document["specVersion"] == "1.6"
        return [f"{error.json_path}: {error.message[:200]}" for error in _cyclonedx().iter_errors(document)]
    parsed = JsonLikeDictParser().parse(dict(document))
    return [message.validation_message for message in validate_full_spdx_document(parsed, "SPDX-2.3")]
