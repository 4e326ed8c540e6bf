"""Secrets that the static tier finds; see test_smoke_sabotage."""

from __future__ import annotations

import hashlib

from tests.integration.sabotage import Broken, Cases

case = SECRETS = Cases()


def token() -> bytes:
    # Put together here, so that no scanner reports this file.
    return b"hf_" + b"QzWxEcRvTbYnUmIkOlPaSdFgHjKlZx" + b"CvBn"


@case("image-no-secrets", "a Hugging Face token in /opt/app/settings.py (extra)")
def token_in_a_layer(b: Broken) -> None:
    b.add({"opt/app/settings.py": b'TOKEN = "' + token() + b'"\n'})


@case("image-no-secrets nothing-covered", "a Hugging Face token in /opt/app/settings.py (first)")
def token_that_a_later_layer_hides(b: Broken) -> None:
    """A covered file is still in the image; covering it is a fault as well."""
    b.add({"opt/app/settings.py": token()}, "first")
    b.add({"opt/app/settings.py": b"TOKEN = None\n"}, "second")


@case("image-no-secrets", "a private key in /srv/id_rsa")
def private_key(b: Broken) -> None:
    body = "\n".join(hashlib.sha512(bytes([n])).hexdigest()[:64] for n in range(9))
    b.add({"srv/id_rsa": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n".encode()})


@case("image-no-secrets", "a registry login in /srv/.docker/config.json")
def registry_login(b: Broken) -> None:
    b.add({"srv/.docker/config.json": b'{"auths": {"nvcr.io": {"auth": "JG9hdXRoOmFiYw=="}}}'})


@case("image-no-secrets", "a value of a variable for secrets in the variable HF_TOKEN")
def secret_variable(b: Broken) -> None:
    b.env("HF_TOKEN", "something-secret")


@case("image-no-secrets", "in the history")
def secret_in_the_history(b: Broken) -> None:
    b.config["history"][0]["comment"] = "RUN pip install --index-url https://me:geheim@host/simple x"
