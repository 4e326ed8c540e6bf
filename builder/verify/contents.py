"""What an image holds, read from its files and its configuration, as `builder.plan.diff` accounts for a plan."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from builder.digest import Digest
from builder.errors import InvalidError, PinError
from builder.jsontext import parse_json
from builder.model.canonical import canonical, fingerprint
from builder.plan.diff import CommitOf, Contents, Fact, Kind, options, variables, with_commit
from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.elf.fatbin import describe
from builder.smoke.image.index import Entry, LayerIndex, read_layers
from builder.smoke.image.merge import merge
from builder.smoke.image.opened import LayerBlob, OpenedImage
from builder.smoke.image.scan import ScanOptions
from builder.smoke.static.python import find_distributions, normal
from builder.store.records import parse_layer, read_record
from builder.store.store import Store
from builder.verify.files import FileDifference, differing_beside, differing_entries
from builder.verify.inventory import DATABASE, installed_packages

_STATUS = re.compile(r"var/lib/dpkg/status\Z|var/lib/dpkg/status\.d/[^/]+\Z")
_MOST_PACKAGES = 20_000
_NCCL_LABEL, _FUNCTIONS_LABEL = "org.builder.nccl.version", "org.builder.nccl.functions"
_LISTED = ("config", "created", "rootfs", "history", "User", "WorkingDir", "Env", "Entrypoint", "Cmd", "Labels")
"""Members of a configuration that are facts of their own, or follow from the layers."""
_EVERYTHING = ScanOptions(elf=True, hash=True, files=True)


Listed = Callable[[Digest], Sequence[str] | None]
"""The paths in a layer, by the digest of its blob; None when they are not known without reading it."""


@dataclass(frozen=True)
class ReadImage:
    """An image whose own layers were read. layers: those, from the lowest. shared: the paths in the others, as far as
    they are known, without those that its own layers delete. packages: the versions of Debian packages, when its own
    layers list them."""

    image: OpenedImage
    layers: tuple[LayerIndex, ...]
    shared: tuple[str, ...]
    packages: Mapping[str, str]

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The files of its own layers, as a container sees them."""
        return merge(self.layers)

    def layer_of(self, path: str) -> LayerIndex:
        """The layer that a file comes from."""
        return next(layer for layer in self.layers if layer.number == self.entries[path].layer)


def read_both(old: OpenedImage, new: OpenedImage, listed: Listed) -> tuple[ReadImage, ReadImage]:
    """Read the layers that only one of two images has. Raises InvalidError, NetworkError, PinError."""
    common = {blob.digest for blob in old.layers} & {blob.digest for blob in new.layers}
    shared = {digest: listed(digest) or () for digest in common}
    return _read(old, shared), _read(new, shared)


def read_versions(image: OpenedImage, listed: Listed) -> ReadImage:
    """Read an image for the versions in it; no file is hashed. A layer whose paths are known is not read.

    Raises InvalidError, NetworkError, PinError.
    """
    known = {blob.digest: listed(blob.digest) for blob in image.layers}
    # The versions of Debian packages are in the content of a file.
    shared = {
        digest: paths for digest, paths in known.items() if paths is not None and not any(map(_STATUS.match, paths))
    }
    return _read(image, shared, ScanOptions(hash=True))


def bytes_to_read(old: OpenedImage, new: OpenedImage) -> int:
    """Bytes of the layers that `read_both` reads."""
    sizes = [{blob.digest: blob.size for blob in image.layers} for image in (old, new)]
    return sum(sum(size for digest, size in one.items() if digest not in other) for one, other in (sizes, sizes[::-1]))


def _read(image: OpenedImage, shared: Mapping[Digest, Sequence[str]], options: ScanOptions = _EVERYTHING) -> ReadImage:
    numbered = enumerate(image.layers)
    # Without its diff_id a layer's files are hashed.
    own = [(number, replace(blob, diff_id=None)) for number, blob in numbered if blob.digest not in shared]
    if absent := next((blob.digest for _, blob in own if not blob.present), None):
        raise PinError("a layer of the image is not on this machine", id="layer-blob-missing", where=absent)
    with tempfile.TemporaryDirectory() as name:
        layers = read_layers(own, _STATUS.pattern, Path(name), options)
        if wrong := next((layer.blob for layer in layers if layer.digest != layer.blob.digest), None):
            # What a registry has under this digest, and an engine runs, is something else.
            raise InvalidError(f"{wrong.digest} is damaged", id="blob-damaged", where=str(wrong.path))
        kept = {path: copy for layer in layers for path, copy in layer.kept.items()}
        packages = dict(_packages([copy for _, copy in sorted(kept.items())]))
    last = {blob.digest: number for number, blob in enumerate(image.layers)}
    left = tuple(
        path
        for digest, paths in shared.items()
        for path in _left(paths, [layer for layer in layers if layer.number > last[digest]])
    )
    return ReadImage(image, tuple(layers), left, packages)


def _left(paths: Sequence[str], above: Sequence[LayerIndex]) -> Sequence[str]:
    """The paths of a layer that those above it do not delete."""
    deleted = {path for layer in above for path in (*layer.removed, *layer.opaque)}
    if not deleted:
        return paths
    return [path for path in paths if deleted.isdisjoint((path, *map(str, PurePosixPath(path).parents)))]


def store_listing(store: Store) -> Listed:
    """The paths in layers that this store has made."""
    records = {}
    for path in (store.root / "layers").glob("*.json"):
        record = parse_layer(path.stem, read_record(path))
        if record is not None:
            records[record.digest] = record.listing

    def listed(digest: Digest) -> Sequence[str] | None:
        try:
            return [str(parse_json(line)[0]) for line in store.read(records[digest]).splitlines()]
        except (KeyError, PinError, OSError, ValueError, TypeError, IndexError):
            return None

    return listed


def _packages(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """The names and versions of the packages in dpkg's status files."""
    count, left = 0, DATABASE
    for path in files:
        with path.open("rb") as file:
            text = file.read(left).decode("utf-8", "replace")
        left -= len(text)
        for fields in installed_packages(text):
            count += 1
            if count > _MOST_PACKAGES:
                return
            yield fields["Package"][:200], fields["Version"][:200]


def image_contents(name: str, read: ReadImage, commit_of: CommitOf) -> Contents:
    """The account of an image. commit_of: the commits of sources that a project knows."""
    image = read.image
    labels = {str(key): str(value) for key, value in (image.settings.get("Labels") or {}).items()}
    facts: dict[Kind, dict[str, Fact]] = {
        "setting": {"created": Fact(str(image.config.get("created") or "-"))},
        "source": {},
        "gpu code": {},
        "env": variables(image.settings.get("Env") or ()),
        "option": options([*(image.settings.get("Entrypoint") or ()), *(image.settings.get("Cmd") or ())]),
        "label": {key: Fact(value) for key, value in labels.items()},
        "layer": dict(_layers(image)),
        "debian": {package: Fact(version) for package, version in read.packages.items()},
        "python": {},
    }
    for key in ("User", "WorkingDir"):
        facts["setting"][key.lower()] = Fact(str(image.settings.get(key) or "-"))
    # A health check, for example, is a command that runs again and again.
    others = {name: value for name, value in image.config.items() if name not in _LISTED}
    others |= {name: value for name, value in image.settings.items() if name not in _LISTED}
    for member, value in others.items():
        facts["setting"][member.lower()] = Fact(canonical(value).decode("utf-8", "replace")[:200], fingerprint(value))
    if _NCCL_LABEL in labels:
        version = labels[_NCCL_LABEL]
        facts["source"]["nccl"] = Fact(with_commit(version, commit_of("nccl", version)))
        facts["setting"]["NCCL functions"] = Fact(labels.get(_FUNCTIONS_LABEL, "all"))
    for _, _, found, version in find_distributions([*read.shared, *read.entries]):
        facts["python"][normal(found)] = Fact(version)
    if VLLM_LABEL in labels:
        facts["python"].setdefault("vllm", Fact(labels[VLLM_LABEL]))
    for path, entry in read.entries.items():
        if entry.object is not None and entry.object.code:
            facts["gpu code"][path] = Fact(describe(entry.object.code))
    return Contents(name, "image", facts, sum(blob.size for blob in image.layers), identity=image.digest)


def _layers(image: OpenedImage) -> Iterator[tuple[str, Fact]]:
    """Each layer by its name, which the image itself says, so that several may have one."""
    count: Counter[str] = Counter()
    for said, blob in zip(image.names, image.layers, strict=True):
        name = said or blob.digest.short
        count[name] += 1
        yield f"{name}, number {count[name]}" if count[name] > 1 else name, _layer_fact(blob)


def _layer_fact(blob: LayerBlob) -> Fact:
    return Fact(f"{blob.digest.short}, {blob.size / 1e6:.1f} MB", blob.digest)


def differing_in(old: ReadImage, new: ReadImage) -> list[FileDifference]:
    """The files in which two images differ, of the layers that were read, and those that these delete of others."""
    files = differing_entries(old.entries, new.entries, ("the first", "the second"))
    return [*files, *differing_beside(old.layers, new.layers)]
