"""What a static check gets (Context), and what it declares to read (Reads)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.tree import ImageTree


@dataclass(frozen=True)
class Context:
    """The image under test. ours: digests of the layers that were built here, None when that is not known."""

    tree: ImageTree
    ours: Collection[str] | None = None

    @property
    def image(self) -> OpenedImage:
        """The manifest and configuration."""
        return self.tree.image

    def name(self, layer: int) -> str:
        """The name of a layer: the id under which it was built, else its number."""
        return self.image.names[layer] or f"layer {layer}"

    def is_ours(self, layer: int) -> bool:
        """Whether a layer, counted from 0, was built here; every layer counts as ours when that is not known."""
        return self.ours is None or self.image.layers[layer].digest in self.ours


def _no_files(image: OpenedImage, args: Mapping[str, Any]) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Reads:
    """What a kind of static check reads.

    layers: none, those built here, or all. keeps: patterns of the files whose content it reads, given the image and
    the check's arguments. scan: what to extract from files while their layer is read. one_path: whether it reads
    only what its argument `path` leads to.
    """

    layers: Literal["none", "ours", "all"] = "all"
    keeps: Callable[[OpenedImage, Mapping[str, Any]], Iterable[str]] = _no_files
    scan: ScanOptions = ScanOptions()  # noqa: RUF009 (a frozen value)
    one_path: bool = False
