"""References to images in registries: parses what users write into one canonical form."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from builder.digest import Digest, is_digest
from builder.errors import UsageError

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:]{{2,39}}\])(?::([0-9]{{1,5}}))?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

DOCKER_HUB = "docker.io"
HUB_NAMES = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")


def is_registry(text: str) -> bool:
    """Whether `text` is HOST or HOST:PORT, lower case."""
    found = _REGISTRY.fullmatch(text)
    return found is not None and len(text) <= 255 and (found[1] is None or 0 < int(found[1]) < 65536)


def is_host(first: str) -> bool:
    """Whether the first part of a name is a registry for Docker: it has a dot, colon or bracket, or is localhost."""
    return any(mark in first for mark in ".:[") or first.lower() == "localhost"


def is_repository(text: str) -> bool:
    """Whether `text` is a repository's path, without its registry."""
    return len(text) <= 255 and _REPOSITORY.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    """Whether `text` is a tag."""
    return _TAG.fullmatch(text) is not None


@dataclass(frozen=True)
class Reference:
    """An image in a registry. Invalid parts raise UsageError in the constructor."""

    registry: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    def __post_init__(self) -> None:
        if not is_registry(self.registry):
            raise _invalid(self.registry, "the registry is not HOST or HOST:PORT")
        if not is_repository(self.repository):
            raise _invalid(self.repository, "a repository is lower-case letters, digits and single . _ - between them")
        if self.tag is not None and not is_tag(self.tag):
            raise _invalid(self.tag, "a tag is up to 128 letters, digits, . _ or -")

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse `[REGISTRY/]REPOSITORY[:TAG][@DIGEST]`; without a registry it is Docker Hub, as for docker."""
        if not text or len(text) > 1024:
            raise _invalid(text, "it is empty or longer than 1024 characters")
        if text.startswith("oci:"):
            raise _invalid(text, "oci:DIR is a folder, and a registry has this image")
        name, at, digest = text.partition("@")
        first, slash, rest = name.partition("/")
        if slash and is_host(first):
            registry, name = first.lower(), rest
        else:
            registry = DOCKER_HUB
        repository, colon, tag = name.partition(":")
        if registry in HUB_NAMES:
            registry = DOCKER_HUB
        if registry == DOCKER_HUB and repository and "/" not in repository:
            repository = f"library/{repository}"
        try:
            found = cls(registry, repository, tag if colon else None)
        except UsageError as error:
            if "://" in text:
                raise _invalid(text, "it is a URL") from None
            raise error.replaced(what=_invalid(text, "").what) from None
        if not at:
            return found
        if not is_digest(digest):
            raise _invalid(text, "a digest is sha256: and 64 hexadecimal digits")
        return found.at(Digest(digest))

    @property
    def selector(self) -> str:
        """The part that selects the manifest: the digest, else the tag, else `latest`."""
        return self.digest or self.tag or "latest"

    def at(self, digest: Digest) -> Reference:
        """The same image, pinned to `digest`."""
        return replace(self, digest=digest)

    def pinned(self, digest: Digest) -> str:
        """REGISTRY/REPOSITORY@DIGEST: an image by its digest alone."""
        return f"{self.registry}/{self.repository}@{digest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag is not None else ""
        digest = f"@{self.digest}" if self.digest is not None else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def _invalid(text: str, cause: str) -> UsageError:
    # A login that was put before the registry is not repeated.
    shown = re.sub("^[^/@]*:[^/@]*@(?=.*/)", "…@", text)
    return UsageError(
        f"not an image reference: {shown[:200]!a}",
        id="reference-invalid",
        cause=cause,
        next="write REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST",
    )
