"""Choices: the contents of `builder.toml`, what every command of a project would otherwise repeat as options."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from builder.errors import InvalidError
from builder.model.common import Line, Name, ParameterName, Scalar, Strict
from builder.model.textfile import read_text
from builder.model.yamlfile import build

WebAddress = Annotated[Line, StringConstraints(pattern=r"^https?://[^\s/]+/?\S*$")]
"""The address of a page."""


class Choices(Strict):
    """Defaults of a project for the options of the same names. An option on the command line wins.

    base: for recipes that can be built on it. set: parameters by layer, for recipes that have the layer. registry:
    REGISTRY/NAMESPACE, where `push` puts RECIPE:latest when no reference is given. source: the address of the project's
    repository. licenses: of the images, as an SPDX expression.
    """

    base: Name | None = None
    set: dict[Name, dict[ParameterName, Scalar | tuple[Line, ...]]] = {}
    engine: Literal["auto", "docker", "buildah"] | None = None
    mirror: Line | None = None
    cache: Line | None = None
    registry: Line | None = None
    source: WebAddress | None = None
    licenses: Line | None = None

    def labels(self) -> dict[str, str]:
        """The labels of every image of the project. A registry shows an image beside the repository that it names."""
        labels = {"source": self.source, "licenses": self.licenses}
        return {f"org.opencontainers.image.{name}": value for name, value in labels.items() if value is not None}

    def options(self) -> dict[str, str]:
        """The defaults of options that are about this machine, by the name of the option."""
        names = ("engine", "mirror", "cache")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def sets(self) -> Iterator[tuple[str, str]]:
        """Each layer, and LAYER.PARAMETER=VALUE for each of its parameters."""
        for layer, parameters in self.set.items():
            for name, value in parameters.items():
                yield layer, f"{layer}.{name}={parameter_text(value)}"


def parameter_text(value: Any) -> str:
    """The value of a layer's parameter as `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


_LONGEST, _MOST_DOTS = 1 << 16, 100
"""Characters of a file, and dots of a line: the time of tomllib is quadratic in the parts of a key."""


def load_choices(path: Path) -> Choices:
    """A builder.toml. Raises InvalidError that names file and key."""
    text = read_text(path)
    try:
        if len(text) > _LONGEST or any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
            raise ValueError(f"it is longer than {_LONGEST} characters, or a line has more than {_MOST_DOTS} dots")
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: a number may be too long
        raise InvalidError(f"not valid TOML: {error}", id="toml-invalid", where=str(path)) from None
    return build(data, Choices, where=str(path))
