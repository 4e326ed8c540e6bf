"""Secrets are found by their shapes, and code about secrets is not."""

from __future__ import annotations

import random
import string

import pytest

from builder.smoke.image.secrets import find_in_text, find_in_variable, find_secrets

LETTERS = random.Random(7)


def token(prefix: str, length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    # Made here, so that no scanner takes this file for a leak.
    return prefix + "".join(LETTERS.choice(alphabet) for _ in range(length))


def key(kind: str = "", breaks: str = "\n") -> str:
    lines = [token("", 64) for _ in range(4)]
    return breaks.join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])


FOUND = [
    ("a Hugging Face token", "app.py", f'TOKEN = "{token("hf_", 34)}"'),
    ("a GitHub token", "x.txt", token("ghp_", 36)),
    ("a GitHub token", "x.txt", token("github_pat_", 22) + token("_", 59)),
    ("a GitLab token", "x.txt", token("glpat-", 20)),
    ("an NVIDIA API key", "run.sh", f"export NGC={token('nvapi-', 64)}\n"),
    ("an AWS access key", "x.ini", f"key = {token('AKIA', 16, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567')}"),
    ("a Docker Hub token", "x", token("dckr_pat_", 27)),
    ("a PyPI token", "x", token("pypi-AgEIcHlwaS5vcmc", 90)),
    ("an npm token", "x", token("npm_", 36)),
    ("a Google API key", "x", token("AIza", 35)),
    ("a private key", "id", key("OPENSSH ")),
    ("a private key", "id", key("RSA ")),
    ("a private key", "id", key("")),
    ("a private key", "settings.py", f'KEY = "{key("EC ", chr(92) + "n")}"'),
    ("a private key", "id", key().replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: X,1\n\n", 1)),
    ("a registry login", "root/.docker/config.json", '{"auths": {"nvcr.io": {"auth": "JG9hdXRoOmFiYw=="}}}'),
    ("a password", "root/.netrc", "machine h login me password geheim\n"),
    ("a password", "etc/apt/auth.conf.d/mirror", "machine h login me password geheim\n"),
    (
        "a password",
        "etc/apt/auth.conf.d/a-name-of-more-than-forty-characters-in-all",
        "machine h login me password x\n",
    ),
    ("a password in an address", "etc/pip.conf", "[global]\nindex-url = https://me:geheim@host/simple\n"),
    ("a password in an address", "root/.git-credentials", "https://me:geheim@host\n"),
    ("a password", "root/.pypirc", "[x]\nusername = me\npassword = geheim\n"),
    ("an npm login", "root/.npmrc", "//host/:_authToken=geheim\n"),
    ("AWS credentials", "root/.aws/credentials", "[default]\naws_secret_access_key = geheim\n"),
    ("a Hugging Face token", "root/.cache/huggingface/token", "geheim"),
    ("an NGC key", "root/.ngc/config", "[CURRENT]\napikey = geheim\n"),
    ("a secret variable", "srv/.env", "DB_PASSWORD=geheim-geheim\n"),
]


@pytest.mark.parametrize(("what", "path", "text"), FOUND, ids=[f"{row[0]} in {row[1]}" for row in FOUND])
def test_found(what: str, path: str, text: str) -> None:
    assert list(find_secrets(path, text.encode())) == [what]


INNOCENT = [
    ("x.py", "hf_" + "x" * 34),
    ("x.py", "hf_config_and_some_more_words_of_a_long_name = 1"),
    ("x.py", token("hf_", 20)),
    ("x.py", token("hf_", 60)),
    ("x.py", "AKIAIOSFODNN7EXAMPLE"),
    ("x.py", "nvapi-" + "0" * 64),
    ("x.pem.py", 'if data.startswith(b"-----BEGIN PRIVATE KEY-----"):\n    return "-----END PRIVATE KEY-----"\n'),
    ("x.md", "-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----"),
    ("x.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + token("", 40)),
    ("x.pem", key().replace("PRIVATE KEY", "CERTIFICATE")),
    ("root/.docker/config.json", '{"auths": {}, "credsStore": "pass"}'),
    ("etc/pip.conf", "[global]\nindex-url = https://host/simple\n"),
    ("root/.netrc", "machine h login me\n"),
    ("root/.npmrc", "//host/:_authToken=${TOKEN}\n"),
    ("usr/share/config", "password in a text about nothing"),
]


@pytest.mark.parametrize(("path", "text"), INNOCENT)
def test_not_found(path: str, text: str) -> None:
    assert list(find_secrets(path, text.encode())) == []


def test_variables() -> None:
    assert list(find_in_variable("HF_TOKEN", "something-long")) == ["a value of a variable for secrets"]
    assert list(find_in_variable("ANY", token("hf_", 34))) == ["a Hugging Face token"]
    assert list(find_in_variable("PROXY", "http://me:geheim@proxy:3128")) == ["a password in an address"]
    for name, value in (
        ("HF_TOKEN", ""),
        ("HF_TOKEN_PATH", "/run/secrets/hf"),
        ("GITHUB_TOKEN", "/run/secrets/token"),
        ("TOKENIZERS_PARALLELISM", "false-false"),
        ("MAX_TOKENS", "100000000"),
        ("PROXY", "http://proxy:3128"),
    ):
        assert list(find_in_variable(name, value)) == []


def test_histories() -> None:
    assert list(find_in_text(f"RUN hf auth login --token {token('hf_', 34)}")) == ["a Hugging Face token"]
    assert list(find_in_text("|1 API_KEY=geheim-geheim /bin/sh -c make")) == ["a value of API_KEY"]
    assert list(find_in_text("RUN pip install -i https://me:geheim@host/simple x")) == ["a password in an address"]
    assert list(find_in_text("RUN pip install -i https://me:$PASSWORD@host/simple x && A=b make")) == []
