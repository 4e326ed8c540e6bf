"""Finding credentials by their well-known formats, in files, variables, labels and histories.

A real credential differs from code about credentials: a token has its exact length and enough different characters, a
private key has base64 content. A message names the kind of credential, never its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from builder.model.common import is_secret

_END = rb"(?![A-Za-z0-9_-])"
_TOKENS: tuple[tuple[str, bytes, bytes], ...] = (
    # what it is, a word that is in every one of them, its shape
    ("a Hugging Face token", b"hf_", rb"(?<![A-Za-z0-9_-])hf_[A-Za-z0-9]{34}" + _END),
    ("a GitHub token", b"ghp_", rb"(?<![A-Za-z0-9_-])ghp_[A-Za-z0-9]{36}" + _END),
    ("a GitHub token", b"gho_", rb"(?<![A-Za-z0-9_-])gho_[A-Za-z0-9]{36}" + _END),
    ("a GitHub token", b"ghs_", rb"(?<![A-Za-z0-9_-])ghs_[A-Za-z0-9]{36}" + _END),
    ("a GitHub token", b"github_pat_", rb"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}" + _END),
    ("a GitLab token", b"glpat-", rb"(?<![A-Za-z0-9_-])glpat-[A-Za-z0-9_-]{20}(?![A-Za-z0-9])"),
    ("an NVIDIA API key", b"nvapi-", rb"(?<![A-Za-z0-9_-])nvapi-[A-Za-z0-9_-]{64}" + _END),
    ("an AWS access key", b"AKIA", rb"(?<![A-Za-z0-9/+=_-])AKIA[A-Z2-7]{16}(?![A-Za-z0-9/+=_-])"),
    ("a Docker Hub token", b"dckr_", rb"(?<![A-Za-z0-9_-])dckr_[po]at_[A-Za-z0-9_-]{27,36}" + _END),
    ("a PyPI token", b"pypi-AgE", rb"pypi-AgE[A-Za-z0-9_-]{80,}"),
    ("an npm token", b"npm_", rb"(?<![A-Za-z0-9_-])npm_[A-Za-z0-9]{36}" + _END),
    ("a Google API key", b"AIza", rb"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}" + _END),
    ("an OpenAI key", b"T3BlbkFJ", rb"sk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    ("an Anthropic key", b"sk-ant-", rb"sk-ant-[a-z]+[0-9]+-[A-Za-z0-9_-]{80,}"),
)
_COMPILED = tuple((what, word, re.compile(shape)) for what, word, shape in _TOKENS)

# The label, a line break (real, or written as \n in a string), perhaps headers, then two lines' worth of base64.
_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n|\\r|[\"'+])*"
    rb"(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash)[^\n]*\n\s*)*"
    rb"(?:[A-Za-z0-9+/=](?:\s|\\n|\\r|[\"'+])*?){100}"
)
_URL = re.compile(rb"[a-z][a-z0-9+.-]*://[^\s/:@\"'<>]*:([^\s/@\"'<>]+)@")
_PLACEHOLDER = re.compile(rb"example|xxxx|your|dummy|placeholder|0{8}|1234567890|abcdefgh", re.IGNORECASE)

_NAMES: tuple[tuple[re.Pattern[str], str, re.Pattern[bytes]], ...] = (
    # the end of a path, what it holds, what is in it when it holds one
    (re.compile(r"(^|/)\.?docker/config\.json$|(^|/)\.dockercfg$|(^|/)containers/auth\.json$"), "a registry login",
     re.compile(rb'"(?:auth|identitytoken|registrytoken|password)"\s*:\s*"[^"]+"')),
    (re.compile(r"(^|/)[._]netrc$|(^|/)apt/auth\.conf(\.d/.*)?$"), "a password",
     re.compile(rb"\bpassword\s+\S+")),
    (re.compile(r"(^|/)\.?(pip\.conf|pip\.ini|uv\.toml|pydistutils\.cfg|condarc)$|(^|/)sources\.list(\.d/.*)?$"),
     "a password in an address", _URL),
    (re.compile(r"(^|/)\.pypirc$"), "a password", re.compile(rb"(?m)^\s*password\s*[=:]\s*\S+")),
    (re.compile(r"(^|/)\.?npmrc$"), "an npm login", re.compile(rb"_(?:authToken|auth|password)\s*=\s*[^\s$]")),
    (re.compile(r"(^|/)\.git-credentials$"), "a password in an address", _URL),
    (re.compile(r"(^|/)\.aws/credentials$"), "AWS credentials", re.compile(rb"aws_secret_access_key\s*=\s*\S+")),
    (re.compile(r"(^|/)\.?huggingface/(token|stored_tokens)$"), "a Hugging Face token", re.compile(rb"\S")),
    (re.compile(r"(^|/)\.ngc/config$"), "an NGC key", re.compile(rb"apikey\s*=\s*\S+")),
    (re.compile(r"(^|/)\.kube/config$"), "a cluster login", re.compile(rb"\b(?:token|client-key-data|password):\s*\S")),
    (re.compile(r"(^|/)\.config/gh/hosts\.yml$"), "a GitHub token", re.compile(rb"oauth_token:\s*\S")),
    (re.compile(r"(^|/)\.env$"), "a secret variable",
     re.compile(rb"(?m)^(?:export\s+)?[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|API_KEY)[A-Z0-9_]*=[\"']?[^\s\"'$]{8,}")),
)  # fmt: skip

_LAST = re.compile(
    r"(?:^|/)(?:config\.json|\.dockercfg|auth\.json|[._]netrc|auth\.conf|\.?pip\.conf|\.?pip\.ini|\.?uv\.toml"
    r"|\.?pydistutils\.cfg|\.?condarc|sources\.list|\.pypirc|\.?npmrc|\.git-credentials|credentials|token"
    r"|stored_tokens|config|hosts\.yml|\.env|[^/]*\.(?:list|sources|conf))\Z"
)
"""The last parts of these names: one cheap test skips most paths."""


def suspicious_name(path: str) -> bool:
    """Whether files of this name usually contain credentials."""
    return _LAST.search(path[-40:]) is not None and any(name.search(path) for name, _, _ in _NAMES)


def find_secrets(path: str, data: bytes) -> Iterator[str]:
    """The kinds of secrets in a file. path: in the image, without leading slash."""
    yield from _shapes(data)
    for name, what, content in _NAMES if suspicious_name(path) else ():
        if name.search(path) and (match := content.search(data)) and not _PLACEHOLDER.search(match[0]):
            yield what


def find_in_variable(name: str, value: str) -> Iterator[str]:
    """The kinds of secrets in an environment variable or a label."""
    data = value.encode("utf-8", "surrogateescape")
    found = list(_shapes(data))
    if _URL.search(data):
        found.append("a password in an address")
    if not found and len(value) >= 8 and is_secret(name) and not value.startswith(("/", "$")):
        found.append("a value of a variable for secrets")
    yield from found


def find_in_text(text: str) -> Iterator[str]:
    """The kinds of secrets in a line of the history or in a command."""
    data = text.encode("utf-8", "surrogateescape")
    yield from _shapes(data)
    if (match := _URL.search(data)) and not match[1].startswith(b"$"):
        yield "a password in an address"
    for word in re.findall(r"([A-Za-z_][A-Za-z0-9_]*)=([^\s\"']{8,})", text):
        if is_secret(word[0]) and not word[1].startswith(("/", "$")):
            yield f"a value of {word[0]}"


def _shapes(data: bytes) -> Iterator[str]:
    for what, word, shape in _COMPILED:
        # Searching for a word is ten times faster than for a pattern.
        if word in data and any(_is_random(match[0]) for match in shape.finditer(data)):
            yield what
    if b"PRIVATE KEY" in data and any(not _PLACEHOLDER.search(match[0]) for match in _KEY.finditer(data)):
        yield "a private key"


def _is_random(token: bytes) -> bool:
    return len(set(token)) >= 12 and not _PLACEHOLDER.search(token)
