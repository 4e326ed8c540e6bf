"""Base and Pin: the pinned image below our layers, or the hermetic base, which is built from layers."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from builder.digest import Digest
from builder.errors import UsageError
from builder.model.check import Check
from builder.model.common import EnvName, ImagePath, Line, Name, NoSecrets, RelativePath, Sha256, Strict, Version
from builder.model.recipe import LayerUse
from builder.model.reference import Reference

Family = Literal["ngc", "vllm-openai", "hermetic", "community"]


def _is_complete(text: str) -> str:
    try:
        found = str(Reference.parse(text))
    except UsageError as error:
        raise ValueError(f"{error.what}: {error.cause}") from None
    if found != text:
        raise ValueError(f"must be the complete reference: {found}")
    return text


class Pin(Strict):
    """The digests of a registry image. `manifest` is the linux/arm64 one; without it the base is unpinned.

    seal: a hash over image and digests by `builder lock` (`builder.lock.seal`); None when they were set by hand.
    """

    image: Annotated[
        str,
        Field(pattern=r"^[a-z0-9.:\[\]-]+/[a-z0-9._/-]+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"),
        AfterValidator(_is_complete),
    ]
    """registry/repository:tag; the registry is never left out."""
    index: Digest | None = None
    manifest: Digest | None = None
    confidence: Literal["high", "medium", "low", "none"] = "none"
    evidence: tuple[Line, ...] = ()
    seal: Sha256 | None = None

    @model_validator(mode="after")
    def _two_digests(self) -> Pin:
        if self.manifest is not None and self.manifest == self.index:
            raise ValueError("index and manifest have the same digest: an index is no linux/arm64 manifest")
        return self


class Stack(Strict):
    """What a hermetic base is made of; its facts and layers follow from the locked sections (`builder.derive`).

    root, wheels: sections of the lock. platform: of the wheels. groups: layers with these distributions, as far as the
    section has them; other large wheels get a layer each. shared: files that several wheels contain, with the names of
    their distributions; the file of the first one stays. leave_out: distributions that are not installed, each with its
    reason.
    """

    root: Name
    wheels: Name
    platform: Name = "aarch64-manylinux_2_39"
    groups: dict[Name, tuple[Name, ...]] = {}
    shared: dict[RelativePath, tuple[Name, ...]] = {}
    leave_out: dict[Name, Line] = {}


class Base(Strict):
    """A base and the facts about it that layers use.

    site: where the image's Python finds distributions. nccl: how its torch finds libnccl (`wheel`: DT_RPATH to the
    NCCL wheel; `system`: the loader's search path). entrypoint: `vllm-serve` when the image's ENTRYPOINT already is
    `vllm serve`, `pass-through` when the command must start with it, `environment` when its entrypoint builds the
    command from variables, `replaced` when `vllm serve` must replace it. An unknown fact is left out.
    """

    name: Name
    family: Family
    title: Line
    vllm: Version | None = None
    python: Annotated[str, Field(pattern=r"^3\.\d+$")] | None = None
    site: ImagePath | None = None
    nccl: Literal["wheel", "system"] | None = None
    triton: Version | None = None
    torch: Version | None = None
    cuda: Version | None = None
    glibc: Version | None = None
    driver: Line | None = None
    entrypoint: Literal["vllm-serve", "pass-through", "environment", "replaced"]
    pin: Pin | None = None
    aliases: tuple[Name, ...] = ()
    stack: Stack | None = None
    """hermetic only: instead of `layers` and the facts that follow from the lock."""
    layers: tuple[LayerUse, ...] = ()
    """hermetic only: the layers of the base itself, the root first."""
    env: Annotated[dict[EnvName, Line], NoSecrets] = {}
    path: tuple[ImagePath, ...] = ()
    """hermetic only: the image's PATH."""
    checks: tuple[Check, ...] = ()
    notes: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _python_fits(self) -> Base:
        named = re.search(r"/python(3\.\d+)/", self.site or "")
        if named and self.python and named[1] != self.python:
            raise ValueError(f"python is {self.python}, but site belongs to {named[1]}")
        return self

    @model_validator(mode="after")
    def _family_fits(self) -> Base:
        if self.family == "hermetic":
            if self.pin is not None:
                raise ValueError("a hermetic base has no registry pin")
            if not self.layers and self.stack is None:
                raise ValueError("a hermetic base needs a stack, or layers")
        else:
            if self.pin is None:
                raise ValueError(f"a base of family {self.family} needs a pin")
            if self.layers or self.path or self.env or self.stack is not None:
                raise ValueError("only a hermetic base has a stack, layers, path or env of its own")
        return self
