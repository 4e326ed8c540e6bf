"""What a static check gets (Context), and what it declares to read (Reads)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.tree import ImageTree

Result = TypeVar("Result")
MOST_FOLDERS = 64
"""Folders of PATH that are read; a check fails for more."""


@dataclass(frozen=True)
class Context:
    """The image under test. base: how many of its lowest layers are a base's, by that base's own manifest.

    settings: the `config` member of that base's configuration; None when it is not known. All layers above them count
    as ours, whatever the history says: a layer on top of ours cannot be the base's.
    """

    tree: ImageTree
    base: int = 0
    settings: Mapping[str, Any] | None = None
    _kept: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, read: Callable[[], Result]) -> Result:
        """The result of `read`, which is called once: for what several checks need. name: what it is."""
        if name not in self._kept:
            self._kept[name] = read()
        found: Result = self._kept[name]
        return found

    @property
    def image(self) -> OpenedImage:
        """The manifest and configuration."""
        return self.tree.image

    @property
    def own_env(self) -> Mapping[str, str]:
        """The variables that are not the base's; none on a base whose variables are not known."""
        if not self.base:
            return self.image.env
        if self.settings is None:
            return {}
        words = set(self.settings.get("Env") or ())
        return {name: value for name, value in self.image.env.items() if f"{name}={value}" not in words}

    @property
    def base_env(self) -> Mapping[str, str]:
        """The variables of the base; none when they are not known."""
        return variables_of(self.settings)

    @property
    def own_fields(self) -> list[str]:
        """The fields of the settings with a value that is not the base's; as `own_env`."""
        if self.base and self.settings is None:
            return []
        below = self.settings or {}
        return sorted(name for name, value in self.image.settings.items() if value and value != below.get(name))

    @property
    def path(self) -> list[str]:
        """The folders of PATH, as far as they are read."""
        return self.image.env.get("PATH", "").split(":", MOST_FOLDERS)[:MOST_FOLDERS]

    @property
    def program_folders(self) -> frozenset[str]:
        """The folders that PATH leads to, as paths of the tree."""
        tree = self.tree
        return self.once("folders", lambda: frozenset(tree.resolve(each) for each in self.path if tree.exists(each)))

    def name(self, layer: int) -> str:
        """The name of a layer: the id under which it was built, else its number."""
        return self.image.names[layer] or f"layer {layer}"

    def is_ours(self, layer: int) -> bool:
        """Whether a layer, counted from 0, is not the base's."""
        return layer >= self.base

    @property
    def unread(self) -> int:
        """How many of our layers were not read."""
        absent = {blob.digest for blob in self.tree.absent}
        return sum(blob.digest in absent for blob in self.image.layers[self.base :])


def variables_of(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """The variables in the `config` member of a configuration."""
    words = (settings or {}).get("Env") or ()
    return {name: value for name, _, value in (word.partition("=") for word in words)}


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
