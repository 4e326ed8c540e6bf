"""The description of a `files` layer: what `builder.unpack.tree.entries` reads, as a schema.

`builder.unpack` runs without other packages inside a build stage, so it checks paths and contents, not types.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from builder.model.common import Boolean, FileName, ImagePath, Line, RelativePath, Sha256, Strict


class _Exact(Strict):
    model_config = ConfigDict(strict=True)


class SpecDeb(_Exact):
    """A Debian package, by its file among the inputs."""

    file: FileName
    sha256: Sha256


class SpecWheel(SpecDeb):
    """A wheel; strip: only its files below this path, which are placed below `into`."""

    strip: Line | None = None
    into: Line | None = None


class SpecScheme(_Exact):
    """Where wheels are installed, and the interpreter of their scripts."""

    site: RelativePath
    interpreter: ImagePath


class SpecPatch(_Exact):
    """Files of a source archive that are laid over an installed wheel; folder: the source's folder with the package."""

    wheel: SpecDeb
    source: SpecDeb
    folder: Line
    files: Annotated[tuple[RelativePath, ...], Field(min_length=1, max_length=1000)]


class SpecFile(_Exact):
    """A file, link or folder of the layer's own."""

    path: RelativePath
    link: Line | None = None
    directory: Boolean = False
    content: str | None = None
    mode: Annotated[str, StringConstraints(pattern=r"^0[0-7]{3,4}$")] | None = None


class Spec(_Exact):
    """A whole description. shared: paths that several wheels hold."""

    root: Boolean
    debs: tuple[SpecDeb, ...]
    wheels: tuple[SpecWheel, ...]
    scheme: SpecScheme | None
    files: tuple[SpecFile, ...]
    shared: Annotated[tuple[Line, ...], Field(max_length=100_000)]
    patches: Annotated[tuple[SpecPatch, ...], Field(max_length=100)] = ()
