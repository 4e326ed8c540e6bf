"""Field types of all models: names, versions, paths, lines, secrets."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

from builder.text import is_plain_line

T = TypeVar("T")


class Strict(BaseModel):
    """A frozen value that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _no_control_characters(text: str) -> str:
    if not is_plain_line(text):
        raise ValueError("must be one line without control characters")
    return text


_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY|CREDENTIALS?)$", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret, which must not be in a file or an image."""
    return _SECRET.search(name.replace("-", "_")) is not None


def _without_secrets(values: dict[str, T]) -> dict[str, T]:
    for name, value in values.items():
        # A path is the location of a secret, not its value.
        if is_secret(name) and isinstance(value, str) and not value.startswith("/"):
            raise ValueError(f"{name} is a secret: name its variable (as HF_TOKEN) under run.secrets, without a value")
    return values


def _is_host_path(path: str) -> str:
    if not path.startswith(("/", "~/")) or ":" in path:
        raise ValueError("must begin with / or ~/ and have no colon")
    return path


def _is_relative(path: str) -> str:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("must be a relative path without empty, '.' or '..' parts")
    return path


def _is_time(text: str) -> str:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise ValueError("is not a valid time") from None
    return text


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""A recipe, base, layer, parameter set or lock section: valid in a file name, a tag and a Dockerfile stage."""

ParameterName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Flag = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
"""A command-line option of vLLM without its leading dashes."""

NoSecrets = AfterValidator(_without_secrets)
"""For mappings of variables or options: none may hold the value of a secret."""

LabelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,127}$")]
Line = Annotated[str, StringConstraints(max_length=4096), AfterValidator(_no_control_characters)]
"""Text of one line: the only kind of text that may reach an image's configuration."""

HostPath = Annotated[Line, AfterValidator(_is_host_path)]
"""A path on the machine that runs a container; ~ is the home folder of the user who runs it."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~:_-]{0,127}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~%_-]{0,254}$")]
ImagePath = Annotated[
    str, StringConstraints(pattern=r"^/[^\x00-\x1f\x7f]*$", max_length=4096), AfterValidator(_no_control_characters)
]
RelativePath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    AfterValidator(_no_control_characters),
    AfterValidator(_is_relative),
]
Timestamp = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_is_time)]
"""UTC, seconds, RFC 3339."""

Boolean = Annotated[bool, Field(strict=True)]
"""true or false; words and numbers are refused."""

Scalar = bool | int | FiniteFloat | Line
