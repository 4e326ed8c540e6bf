"""Parses pip, uv and apt configuration into addresses of package indexes and Debian archives. Also deb822, redaction.

The lock holds paths and hashes only. The functions here take text and return addresses; `hosts.py` reads the files.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_NUMBERED_SUITES = ("stable", "oldstable", "oldoldstable", "testing", "unstable", "sid")
_KNOWN_SUITES = ("bullseye", "bookworm", "trixie", "forky", "duke")


def redact(url: str) -> str:
    """The address without its credentials (the text before the @) and its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid address"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def without_logins(text: str) -> str:
    """The output of a program, without the credentials of the addresses in it."""
    return re.sub(r"//[^/\s@]+@", "//", text)


def wheel_indexes(environ: Mapping[str, str], uv_files: Iterable[str], pip_files: Iterable[str]) -> tuple[str, ...]:
    """The configured package indexes, the default one first; empty when nothing is configured.

    uv's settings come before pip's, and the environment before files. uv_files, pip_files: the texts of configuration
    files, in order of precedence. Indexes that are not reached through http (file:, git:) are left out. A configured
    default index replaces the built-in one; extra indexes do not, so the result starts with "" when only extra indexes
    are configured.
    """
    default: list[str] = []
    extra: list[str] = []
    default += [environ.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")]
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        # uv allows NAME=URL here.
        extra += [re.sub(r"^[A-Za-z0-9._-]+=(?=https?:)", "", word) for word in environ.get(name, "").split()]
    for text in uv_files:
        found = _uv_indexes(text)
        default += found[0]
        extra += found[1]
    for text in pip_files:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(text)
        except configparser.Error:
            continue
        for section in ("install", "global"):
            default.append(parser.get(section, "index-url", fallback=""))
            extra += parser.get(section, "extra-index-url", fallback="").split()
    first = next((url for url in default if _is_http(url)), "")
    found_extra = [url for url in dict.fromkeys(extra) if _is_http(url) and url != first]
    return (first, *found_extra) if first or found_extra else ()


def _uv_indexes(text: str) -> tuple[list[str], list[str]]:
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):  # not only TOMLDecodeError: a number may be too long
        return [], []
    default: list[str] = []
    extra: list[str] = []
    for table in (data, data.get("pip", {})):
        if not isinstance(table, dict):
            continue
        for index in _tables(table.get("index")):
            (default if index.get("default") else extra).append(str(index.get("url", "")))
        default.append(str(table.get("index-url", "")))
        more = table.get("extra-index-url", [])
        extra += [str(url) for url in (more if isinstance(more, list) else [more])]
    return default, extra


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    yield from (item for item in (value if isinstance(value, list) else []) if isinstance(item, dict))


def roots_of_targets(text: str) -> tuple[str, ...]:
    """Debian's archive roots in the output of `apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)'`.

    The main archive comes before the security archive.
    """
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    debian = [(label != "Debian", uri) for origin, label, uri in rows if origin == "Debian"]
    return _roots(uri for _, uri in sorted(debian, key=lambda pair: pair[0]))


def roots_of_sources(text: str, suites: Iterable[str] = _KNOWN_SUITES) -> tuple[str, ...]:
    """Archive roots in an apt sources file (deb822 or one-line format) that serve the component main of a Debian suite.

    For machines without package lists, where apt knows no origin.
    """
    known = {*suites, *_NUMBERED_SUITES}

    def is_debian(suite: str, components: list[str]) -> bool:
        base = re.sub(r"(-updates|-security|/updates|-backports)$", "", suite)
        return base in known and "main" in components

    found: list[str] = []
    for line in text.splitlines():
        match = re.match(r"^\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", line)
        if match and is_debian(match[2], match[3].split()):
            found.append(match[1])
    for stanza in deb822(text):
        words = {key.lower(): value.split() for key, value in stanza.items()}
        if "no" in words.get("enabled", []) or "deb" not in words.get("types", []):
            continue
        if any(is_debian(suite, words.get("components", [])) for suite in words.get("suites", [])):
            found += words.get("uris", [])
    return _roots(found)


def roots_of_template(text: str) -> tuple[str, ...]:
    """Archive roots in python3-apt's distribution template (`Debian.info`): the base addresses of the plain suites."""
    found = []
    for stanza in deb822(text):
        if stanza.get("Suite", "") in ("{series}", *_KNOWN_SUITES):
            found.append(stanza.get("BaseURI", ""))
    return _roots(found)


def deb822(text: str) -> Iterator[dict[str, str]]:
    """The stanzas of a Debian control file. The first of a repeated field counts."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t"):
                if name:
                    fields[name] += "\n" + line.strip()
                continue
            key, colon, value = line.partition(":")
            if colon:
                name = key if key not in fields else ""
                fields.setdefault(key, value.strip())
        if fields:
            yield fields


def _roots(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(url.rstrip("/") for url in urls if _is_http(url)))


def _is_http(url: str) -> bool:
    try:
        urlsplit(url)
    except ValueError:
        return False
    return url.startswith(("http://", "https://"))
