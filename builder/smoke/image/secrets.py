"""Finding credentials by their well-known formats, in files, variables, labels and histories.

A real credential differs from code about credentials: a token has its exact length and enough different characters, a
private key has base64 content. A message names the kind of credential, never its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from builder.model.common import is_secret
from builder.pattern import compiled

_WORD = rb"A-Za-z0-9_-"


def _alone(shape: bytes, before: bytes = _WORD, after: bytes = _WORD) -> bytes:
    """A shape with none of these characters before and after it. RE2 has no look-around: the neighbours are matched."""
    return rb"(?:\A|[^" + before + rb"])(" + shape + rb")(?:[^" + after + rb"]|\z)"


_KEY_CHARACTERS = rb"A-Za-z0-9/+=_-"
_TOKENS: tuple[tuple[str, bytes, bytes], ...] = (
    # what it is, a word that is in every one of them, its shape
    ("a Hugging Face token", b"hf_", _alone(rb"hf_[A-Za-z0-9]{34}")),
    ("a GitHub token", b"ghp_", _alone(rb"ghp_[A-Za-z0-9]{36}")),
    ("a GitHub token", b"gho_", _alone(rb"gho_[A-Za-z0-9]{36}")),
    ("a GitHub token", b"ghs_", _alone(rb"ghs_[A-Za-z0-9]{36}")),
    ("a GitHub token", b"github_pat_", rb"(github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})(?:[^A-Za-z0-9_-]|\z)"),
    ("a GitLab token", b"glpat-", _alone(rb"glpat-[A-Za-z0-9_-]{20}", after=rb"A-Za-z0-9")),
    ("an NVIDIA API key", b"nvapi-", _alone(rb"nvapi-[A-Za-z0-9_-]{64}")),
    ("an AWS access key", b"AKIA", _alone(rb"AKIA[A-Z2-7]{16}", _KEY_CHARACTERS, _KEY_CHARACTERS)),
    ("a Docker Hub token", b"dckr_", _alone(rb"dckr_[po]at_[A-Za-z0-9_-]{27,36}")),
    ("a PyPI token", b"pypi-AgE", rb"(pypi-AgE[A-Za-z0-9_-]{80})"),
    ("an npm token", b"npm_", _alone(rb"npm_[A-Za-z0-9]{36}")),
    ("a Google API key", b"AIza", _alone(rb"AIza[A-Za-z0-9_-]{35}")),
    ("an OpenAI key", b"T3BlbkFJ", rb"(sk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,200}T3BlbkFJ[A-Za-z0-9_-]{20})"),
    ("an Anthropic key", b"sk-ant-", rb"(sk-ant-[a-z]+[0-9]+-[A-Za-z0-9_-]{80})"),
)
_ANY = b"|".join([b"PRIVATE KEY", *dict.fromkeys(re.escape(word) for _, word, _ in _TOKENS)])
"""One pass that rules most files out."""
_MOST = 1000
"""Candidates of one kind in one piece of a file; with more of them it counts as a secret, unread."""

# The label of a private key. Its content follows after a line break (real, or written as \n in a string), perhaps
# after headers: at least two lines of base64.
_KEY = rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_KEY_WINDOW = 2048
_KEY_HEADER = re.compile(rb"\s*(?:Proc-Type|DEK-Info|Version|Comment|Hash)[^\n]*\n")
_KEY_CONTENT = re.compile(rb"[A-Za-z0-9+/=\s\"']*")
_URL = rb"[a-z][a-z0-9+.-]*://[^\s/:@\"'<>]*:([^\s/@\"'<>]+)@"
_ASSIGNED = rb"([A-Za-z_][A-Za-z0-9_]*)=([^\s\"']{8,})"
_PLACEHOLDER = re.compile(rb"example|xxxx|your|dummy|placeholder|0{8}|1234567890|abcdefgh", re.IGNORECASE)

_NAMES: tuple[tuple[re.Pattern[str], str, bytes], ...] = (
    # the end of a path, what it holds, what is in it when it holds one
    (re.compile(r"(^|/)\.?docker/config\.json$|(^|/)\.dockercfg$|(^|/)containers/auth\.json$"), "a registry login",
     rb'"(?:auth|identitytoken|registrytoken|password)"\s*:\s*"[^"]+"'),
    (re.compile(r"(?s)(^|/)[._]netrc$|(^|/)apt/auth\.conf(\.d/.*)?\Z"), "a password", rb"\bpassword\s+\S+"),
    (re.compile(r"(?s)(^|/)\.?(pip\.conf|pip\.ini|uv\.toml|pydistutils\.cfg|condarc)$|(^|/)sources\.list(\.d/.*)?\Z"),
     "a password in an address", _URL),
    (re.compile(r"(^|/)\.pypirc$"), "a password", rb"(?m)^\s*password\s*[=:]\s*\S+"),
    (re.compile(r"(^|/)\.?npmrc$"), "an npm login", rb"_(?:authToken|auth|password)\s*=\s*[^\s$]"),
    (re.compile(r"(^|/)\.git-credentials$"), "a password in an address", _URL),
    (re.compile(r"(^|/)\.aws/credentials$"), "AWS credentials", rb"aws_secret_access_key\s*=\s*\S+"),
    (re.compile(r"(^|/)\.?huggingface/(token|stored_tokens)$"), "a Hugging Face token", rb"\S"),
    (re.compile(r"(^|/)\.ngc/config$"), "an NGC key", rb"apikey\s*=\s*\S+"),
    (re.compile(r"(^|/)\.kube/config$"), "a cluster login", rb"\b(?:token|client-key-data|password):\s*\S"),
    (re.compile(r"(^|/)\.config/gh/hosts\.yml$"), "a GitHub token", rb"oauth_token:\s*\S"),
    (re.compile(r"(^|/)\.env$"), "a secret variable",
     rb"(?m)^(?:export\s+)?[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|API_KEY)[A-Z0-9_]*=[\"']?[^\s\"'$]{8,}"),
)  # fmt: skip

_LAST = re.compile(
    r"(?:^|/)(?:config\.json|\.dockercfg|auth\.json|[._]netrc|auth\.conf|\.?pip\.conf|\.?pip\.ini|\.?uv\.toml"
    r"|\.?pydistutils\.cfg|\.?condarc|sources\.list|\.pypirc|\.?npmrc|\.git-credentials|credentials|token"
    r"|stored_tokens|config|hosts\.yml|\.env|[^/]*\.(?:list|sources|conf))\Z"
)
"""The last parts of these names: one cheap test skips most paths."""


def suspicious_name(path: str) -> bool:
    """Whether files of this name usually contain credentials."""
    likely = _LAST.search(path[-40:]) is not None or "/auth.conf.d/" in path  # apt reads names without a suffix there
    return likely and any(name.search(path) for name, _, _ in _NAMES)


def find_secrets(path: str, data: bytes) -> Iterator[str]:
    """The kinds of secrets in a file. path: in the image, without leading slash."""
    yield from find_shapes(data)
    for name, what, content in _NAMES if suspicious_name(path) else ():
        if name.search(path) and _any(content, data, lambda match: not _PLACEHOLDER.search(match[0])):
            yield what


def find_in_variable(name: str, value: str) -> Iterator[str]:
    """The kinds of secrets in an environment variable or a label."""
    data = value.encode("utf-8", "surrogateescape")
    found = list(find_shapes(data))
    if b"://" in data and compiled(_URL).search(data):
        found.append("a password in an address")
    if not found and len(value) >= 8 and is_secret(name) and not value.startswith(("/", "$")):
        found.append("a value of a variable for secrets")
    yield from found


def find_in_text(text: str) -> Iterator[str]:
    """The kinds of secrets in a line of the history or in a command."""
    data = text.encode("utf-8", "surrogateescape")
    yield from find_shapes(data)
    if b"://" in data and _any(_URL, data, lambda match: not match[1].startswith(b"$")):
        yield "a password in an address"
    for match in compiled(_ASSIGNED).finditer(data) if b"=" in data else ():
        name = match[1].decode()
        if is_secret(name) and not match[2].startswith((b"/", b"$")):
            yield f"a value of {name[:80]}"


def find_shapes(data: bytes) -> Iterator[str]:
    """The kinds of tokens and keys in any bytes."""
    if not compiled(_ANY).search(data):
        return
    for what, word, shape in _TOKENS:
        if word in data and _any(shape, data, lambda match: _is_random(match[1])):
            yield what
    if b"PRIVATE KEY" in data and _any(_KEY, data, lambda match: _is_key(match[0], data, match.end())):
        yield "a private key"


def _any(shape: bytes, data: bytes, accept: Callable[[re.Match[bytes]], bool]) -> bool:
    matches = enumerate(compiled(shape).finditer(data))
    return any(number == _MOST or accept(match) for number, match in matches)


def _is_key(label: bytes, data: bytes, start: int) -> bool:
    """Whether base64 content follows the label of a private key."""
    window = data[start : start + _KEY_WINDOW].replace(b"\\r", b"").replace(b"\\n", b"\n").lstrip(b"\"' \t\r\n+")
    while match := _KEY_HEADER.match(window):
        window = window[match.end() :]
    found = _KEY_CONTENT.match(window)
    content = found[0] if found else b""
    return len(content.translate(None, b" \t\r\n\v\f\"'")) >= 100 and not _PLACEHOLDER.search(label + content)


def _is_random(token: bytes) -> bool:
    return len(set(token)) >= 12 and not _PLACEHOLDER.search(token)
