"""Digest: the type of every digest of a blob, layer, manifest or image."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

_FORM = re.compile(r"sha256:[0-9a-f]{64}")


class Digest(str):
    """`sha256:` and 64 lower-case hexadecimal digits, as the OCI image specification writes a digest.

    A subclass of str, because a digest is a string in JSON, on a command line and in a reference. The constructor
    raises ValueError for other text. No other algorithm is accepted.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Digest:
        if type(text) is cls:
            return text
        if not is_digest(text):
            raise ValueError(f"not a sha256 digest: {text[:100]!a}")
        return super().__new__(cls, text)

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """The digest of some bytes."""
        return cls.from_hex(hashlib.sha256(data).hexdigest())

    @classmethod
    def from_hex(cls, hexadecimal: str) -> Digest:
        """The digest with these 64 hexadecimal digits, as locks, wheels and Debian write a SHA-256."""
        return cls(f"sha256:{hexadecimal}")

    @property
    def hex(self) -> str:
        """The 64 hexadecimal digits."""
        return self[7:]

    @property
    def path(self) -> str:
        """`blobs/sha256/HEX`: where an OCI image layout keeps the blob."""
        return f"blobs/sha256/{self.hex}"

    @property
    def tag(self) -> str:
        """`sha256-HEX`: the digest in a tag (the referrers tag schema of the OCI) or a file name."""
        return f"sha256-{self.hex}"

    @property
    def short(self) -> str:
        """The first 12 hexadecimal digits, for output and tags."""
        return self[7:19]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema

        text = core_schema.str_schema(pattern=rf"^{_FORM.pattern}$")
        return core_schema.no_info_after_validator_function(cls, text)


def is_digest(text: object) -> bool:
    """Whether `text` has the form of a Digest."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None
