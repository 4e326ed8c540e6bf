"""Compares an image with a rebuilt one, layer by layer. Pure, but for the blobs that it has to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from builder.digest import Digest
from builder.oci.assemble import Image
from builder.smoke.image.opened import LayerBlob, OpenedImage
from builder.verify.blame import cause_of_layer
from builder.verify.files import differing_files, read_layer

Outcome = Literal["identical", "content identical", "differs", "not compared"]
"""content identical: the unpacked layer is the same, and its compressed blob is not."""
_FILES = 20


@dataclass(frozen=True)
class Compared:
    """A part of the image: a layer of ours by its id, `base layer N`, `config` or `manifest`.

    expected, got: digests of the blob; None when there is none. detail: in what it differs, or why it was not compared.
    files: the first files of a layer that differ, one line each. cause: the first differing file, its section, and the
    likely cause.
    """

    part: str
    outcome: Outcome
    expected: Digest | None = None
    got: Digest | None = None
    detail: str = ""
    files: tuple[str, ...] = ()
    cause: str = ""


def compare_layers(
    image: OpenedImage, base: Sequence[Digest], ours: Sequence[str], rebuilt: Mapping[str, LayerBlob]
) -> Iterator[Compared]:
    """The layers, from the lowest. base: the digests of the pinned base's layers. ours: the ids of the plan's layers.

    rebuilt: those that were built, by id; the others are `not compared`.
    """
    blobs: list[LayerBlob | None] = [*image.layers]
    blobs += [None] * (len(base) + len(ours) - len(blobs))
    for number, pinned in enumerate(base, 1):
        blob = blobs.pop(0)
        expected = blob.digest if blob is not None else None
        outcome: Outcome = "identical" if expected == pinned else "differs"
        detail = "" if expected == pinned else "it is not the layer of the pinned base"
        yield Compared(f"base layer {number}", outcome, expected, pinned, detail)
    for name in ours:
        blob = blobs.pop(0)
        if blob is None:
            yield Compared(name, "differs", None, None, "the image does not have this layer")
        elif name not in rebuilt:
            yield Compared(name, "not compared", blob.digest, None, "it was not asked for")
        else:
            yield _layer(name, blob, rebuilt[name])
    for blob in blobs:
        if blob is not None:
            yield Compared(f"layer {blob.digest.short}", "differs", blob.digest, None, "the plan has no such layer")


def _layer(name: str, blob: LayerBlob, rebuilt: LayerBlob) -> Compared:
    if blob.digest == rebuilt.digest:
        return Compared(name, "identical", blob.digest, rebuilt.digest)
    # Read, and not taken from the configuration, which may say anything.
    theirs = read_layer(blob)
    if theirs.diff_id == rebuilt.diff_id:
        return Compared(name, "content identical", blob.digest, rebuilt.digest, "the compressed blob differs")
    ours = read_layer(rebuilt)
    count = len(theirs.entries.keys() | ours.entries.keys())
    files = list(differing_files(theirs, ours))
    if files:
        detail = f"{len(files)} of {count} files and folders differ"
    else:
        detail = "only the order of files, or other fields of the archive, differ"
    cause = cause_of_layer(theirs, ours, files)
    lines = tuple(map(str, files[:_FILES]))
    return Compared(name, "differs", blob.digest, rebuilt.digest, detail, lines, cause)


def compare_image(image: OpenedImage, rebuilt: Image, layers: Sequence[Compared]) -> Iterator[Compared]:
    """The configuration and the manifest. layers: the outcomes of all layers, whose blobs the manifest names."""
    same = image.config_digest == rebuilt.config_digest
    detail = "" if same else f"in {', '.join(changed_settings(image.config, rebuilt.config_json)) or 'its spelling'}"
    yield Compared("config", "identical" if same else "differs", image.config_digest, rebuilt.config_digest, detail)
    outcome: Outcome = "differs"
    if image.digest == rebuilt.digest:
        outcome = "identical"
    elif same and all(item.outcome != "differs" for item in layers):
        outcome = "content identical"
    yield Compared("manifest", outcome, image.digest, rebuilt.digest)


def changed_settings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The members of two configurations that differ, those of `config` by name: `config.Env VLLM_USE_V1`, `created`."""
    found = [name for name in _names(ours, theirs) if name != "config" and ours.get(name) != theirs.get(name)]
    first, second = ours.get("config") or {}, theirs.get("config") or {}
    for name in _names(first, second):
        old, new = first.get(name), second.get(name)
        if old == new:
            continue
        if name == "Env":
            variables = dict.fromkeys(item.partition("=")[0] for item in {*(old or ())} ^ {*(new or ())})
            found += [f"config.Env {variable}" for variable in sorted(variables)] or ["config.Env"]
        elif isinstance(old, dict) and isinstance(new, dict):
            found += [f"config.{name} {key}" for key in _names(old, new) if old.get(key) != new.get(key)]
        else:
            found.append(f"config.{name}")
    return found


def _names(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return sorted({*first, *second})
