"""The static checks of layers: blob digests, sizes and budgets, parent folders, allowed places, covered files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from builder.oci.format import MEDIA_TYPES
from builder.smoke.check import CheckFailed, CheckNotRun, CheckWarned, check_kind
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import allowed_by
from builder.text import first_few
from builder.unpack.root import STATUS_D
from builder.unpack.tree import OF_PACKAGES

_GB = 1_000_000_000
_MB = 1_000_000
_PLACES = ("usr", "opt", "etc", "srv")
"""Folders that are plain folders in every base; builder/oci/layerblob.py refuses other places."""
_TYPES = {kind: how for how, kind in MEDIA_TYPES.items()} | {
    f"application/vnd.docker.image.rootfs.diff.tar{end}": end[1:] or "none" for end in ("", ".gzip", ".zstd")
}
"""How layers of each media type are compressed. Foreign layers have others: engines may fetch them elsewhere."""
_TABLES = (
    "io.github.containers.zstd-chunked.",
    "io.containers.zstd-chunked.",
    "containerd.io/snapshot/",
    "com.amazon.soci.",
)
"""Annotations that make an engine read files by a table of contents: zstd:chunked, eStargz, nydus, overlaybd, SOCI."""


@check_kind("static", "blobs", Reads(scan=ScanOptions(hash=True)))
def blobs(context: Context) -> str:
    """Each layer's blob has the size, digest and media type of the manifest, and unpacked the diff_id of the config.

    None has a table of contents, out of which some engines read other files than are in the blob.
    """
    bad = [f"{blob.digest} has {blob.path.stat().st_size} bytes, not {blob.size}" for blob in _cut(context)]
    bad += _tables(context)
    for layer in context.tree.layers:
        if layer.digest != layer.blob.digest:
            bad.append(f"{layer.blob.digest} hashes to {layer.digest}")
            continue
        name, stated = context.name(layer.number), context.image.diff_ids[layer.number : layer.number + 1]
        if stated and layer.diff_id != stated[0]:
            bad.append(f"{name} unpacks to {layer.diff_id}, not to the diff_id {stated[0]}")
        # Some engines unpack by the media type, others by the first bytes; some leave out a layer of an unknown type.
        kind = layer.blob.media_type
        if kind and _TYPES.get(kind) != layer.compression:
            bad.append(f"{name} is compressed as {layer.compression}, its media type is {kind}")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(context.tree.layers)} layers hash to their digests"


def _tables(context: Context) -> Iterable[str]:
    """Layers that podman (zstd:chunked) or a snapshotter of containerd may unpack by a table of contents."""
    manifest = context.image.manifest
    for number, item in enumerate([*manifest["layers"], manifest]):
        what = context.name(number) if item is not manifest else "the manifest"
        if found := next((name for name in item.get("annotations") or () if name.startswith(_TABLES)), ""):
            yield f"{what} has the annotation {found}: some engines run the files that a table names"
    for layer in context.tree.layers:
        if layer.has_table:
            yield f"{context.name(layer.number)} ends with the place of a table: some engines run the files it names"


def _cut(context: Context) -> Iterable[LayerBlob]:
    return (blob for blob in context.image.layers if blob.wrong_size)


@check_kind("static", "layer-limit", Reads("none"))
def layer_limit(context: Context, *, most: int = 127) -> str:
    """No more layers than container engines can mount (127)."""
    count = len(context.image.layers)
    if count > most:
        raise CheckFailed(f"{count} layers, {most} is the limit")
    return f"{count} layers"


@check_kind("static", "layer-size", Reads("none"))
def layer_size(context: Context, *, most_gb: float = 10.0, warn_gb: float = 5.0) -> str:
    """No layer blob exceeds `most_gb` (10^9 bytes), which registries refuse; a warning above `warn_gb`."""
    sizes = [blob.size for blob in context.image.layers]
    large = [
        f"{context.name(number)} has {size / _GB:.1f} GB" for number, size in enumerate(sizes) if size > warn_gb * _GB
    ]
    if any(size > most_gb * _GB for size in sizes):
        raise CheckFailed(f"{first_few(large)}; {most_gb:g} is the limit")
    if large:
        raise CheckWarned(
            f"{first_few(large)}; many registries and mirrors are slow or refuse blobs above {warn_gb:g} GB"
        )
    return f"{sum(sizes) / _GB:.2f} GB, the largest layer {max(sizes, default=0) / _GB:.2f} GB"


@check_kind("static", "layer-budget", Reads("none"))
def layer_budget(context: Context, *, layer: str, most_mb: float) -> str:
    """The blob of the layer with this id does not exceed `most_mb` (10^6 bytes)."""
    found = [blob.size for blob, name in zip(context.image.layers, context.image.names, strict=True) if name == layer]
    if not found:
        raise CheckFailed(f"the image's history names no layer {layer}")
    if max(found) > most_mb * _MB:
        raise CheckFailed(f"{layer} has {max(found) / _MB:.1f} MB, its budget is {most_mb:g}")
    return f"{max(found) / _MB:.1f} MB of {most_mb:g}"


@check_kind("static", "parents-0755", Reads("ours"))
def parents_0755(context: Context) -> str:
    """Layers contain every parent folder of their files; above the first layer each is 0755 root:root.

    Docker's overlay2 creates a missing parent as 0600, which no user but root can enter.
    """
    bad = []
    for layer in context.tree.layers:
        if not context.is_ours(layer.number):
            continue
        root = layer.root
        # Fedora's root is 0555.
        if root is not None and (root.mode | 0o200, root.uid, root.gid) != (0o755, 0, 0):
            bad.append(f"layer {layer.number} has / as {root.mode:04o} {root.uid}:{root.gid}")
        parents: set[str] = set()
        for path in layer.entries:
            while path := path.rpartition("/")[0]:
                if path in parents:
                    break
                parents.add(path)
        for path in sorted(parents):
            entry = layer.entries.get(path)
            if entry is None:
                bad.append(f"layer {layer.number} lacks /{path}")
            elif entry.kind == "dir" and layer.number > 0 and (entry.mode, entry.uid, entry.gid) != (0o755, 0, 0):
                bad.append(f"layer {layer.number} has /{path} as {entry.mode:04o} {entry.uid}:{entry.gid}")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(context.tree.layers)} layers"


@check_kind("static", "places", Reads("ours"))
def places(context: Context) -> str:
    """Layers above the first have files only below /usr, /opt, /etc and /srv, and no whiteouts.

    A layer of Debian packages, which dpkg's status.d lists, has files below /var/lib and /var/cache too.

    /lib and /bin are symlinks in most bases: a path through a symlink would replace it and hide its target.
    """
    bad = []
    for layer in context.tree.layers:
        if layer.number == 0 or not context.is_ours(layer.number):
            continue
        name = context.name(layer.number)
        also = OF_PACKAGES if any(path.startswith(f"{STATUS_D}/") for path in layer.entries) else ()
        bad += [f"{name} has /{path}" for path in layer.entries if not _is_placed(path, also)]
        bad += [f"{name} removes /{path}" for path in sorted(layer.removed | layer.opaque)]
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(context.tree.layers)} layers"


def _is_placed(path: str, also: Sequence[str]) -> bool:
    inside = path.startswith(tuple(f"{folder}/" for folder in also))
    return inside or path.partition("/")[0] in _PLACES or any(f"{folder}/".startswith(f"{path}/") for folder in also)


@check_kind("static", "nothing-covered", Reads("ours"))
def nothing_covered(
    context: Context, *, replaces: Sequence[str] | None = None, declared: Mapping[str, Sequence[str]] | None = None
) -> str:
    """No layer replaces a file of a lower layer, except the paths (or patterns) in `replaces`, and what it declares.

    Without `replaces`, there is no plan: a program or library may also be replaced by a link to another version of it.
    declared: paths by the name of a layer. The image chooses its names, so that without a plan these are a warning.
    """
    bad: list[str] = []
    named: list[str] = []
    covered = [item for item in context.tree.covered if context.is_ours(item.layer)]
    for item in covered:
        if _renewed(context, item.path) if replaces is None else allowed_by(item.path, replaces):
            continue
        name = context.name(item.layer)
        text = f"{name} covers the {item.was} /{item.path} of {context.name(item.below)}"
        (named if allowed_by(item.path, (declared or {}).get(name, ())) else bad).append(text)
    if bad:
        raise CheckFailed(first_few(bad))
    if context.tree.absent:
        raise CheckNotRun("the base's layers are not on this machine to compare with")
    if named and replaces is None:
        raise CheckWarned(f"only a plan (--recipe) tells whether this is the layer of that name: {first_few(named)}")
    return f"{len(covered)} files replaced, as declared" if covered else "no file of a lower layer is covered"


def _renewed(context: Context, path: str) -> bool:
    """Whether a path is a link to a library of its name, perhaps with a version, or, outside of PATH, to a program of
    its name in PATH."""
    entry = context.tree.get(path)
    try:
        real = context.tree.resolve(path)
    except PathNotFound:
        return False
    name, other = posixpath.basename(path), posixpath.basename(real)
    if entry is None or entry.kind != "symlink" or context.tree.entries[real].machine is None:
        return False
    if ".so" in name:
        return other.startswith(name)
    in_path = context.program_folders
    return other == name and posixpath.dirname(real) in in_path and posixpath.dirname(path) not in in_path
