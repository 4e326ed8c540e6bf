"""Receipts: the inputs of a layer, with the digest of every file as it was read. Pure.

The ledger of a layer knows the inputs that are locked for it and refuses all others during the build. Its entries at
the end are the layer's receipt; an input that was not read is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from builder.digest import Digest
from builder.errors import PinError
from builder.jsontext import parse_json
from builder.model.canonical import canonical

if TYPE_CHECKING:
    from builder.model.plan import Plan, PlannedLayer

Kind = Literal["deb", "wheel", "source", "file", "toolchain", "base"]
_INPUTS: tuple[Kind, ...] = ("deb", "wheel", "source")


@dataclass(frozen=True, order=True)
class Used:
    """One input of a layer.

    kind: a locked input, a `file` of the layer's own folder, a `toolchain` root, or the `base` that a layer reads.
    name: a file name, a path in the layer's folder, a root's id, or a reference. digest: of the bytes that were read;
    of a base, of its manifest.
    """

    kind: Kind
    name: str
    digest: Digest


class Ledger:
    """Records and checks every read of one layer's build. Thread-safe."""

    def __init__(self, layer: PlannedLayer, others: Iterable[Used] = ()) -> None:
        """others: what the layer may read besides its inputs and the files of its folder."""
        self._layer = layer
        locked: list[Used] = [Used(item.kind, item.file, item.digest) for item in layer.inputs]
        locked += [Used("file", path, Digest.of(data)) for path, data in layer.context.items()]
        self._locked: Mapping[tuple[str, str], Used] = {_place(item): item for item in (*locked, *others)}
        self._seen: set[Used] = set()
        self._lock = Lock()

    def read_input(self, name: str, digest: Digest) -> None:
        """Record a read of the locked input of this file name, as `read` does."""
        kind = next((kind for kind in _INPUTS if (kind, name) in self._locked), _INPUTS[0])
        self.read(Used(kind, name, digest))

    def read(self, item: Used) -> None:
        """Record a read, with the digest of the bytes that were read. Raises PinError when they are not locked."""
        locked = self._locked.get(_place(item))
        if locked is None:
            raise self._refusal(item.name, "it is not in the lock")
        if locked != item:
            raise self._refusal(item.name, f"got {item.digest}, locked is {locked.digest}")
        with self._lock:
            self._seen.add(item)

    def close(self) -> tuple[Used, ...]:
        """All reads, sorted. Raises PinError when a locked input was not read."""
        if missing := sorted(set(self._locked.values()) - self._seen):
            names = ", ".join(item.name for item in missing[:5])
            raise self._refusal(names, "it is locked for this layer, but was not read")
        return tuple(sorted(self._seen))

    def _refusal(self, name: str, cause: str) -> PinError:
        return PinError(
            f"{name} does not match the lock",
            id="input-not-as-locked",
            where=f"layer {self._layer.id}",
            cause=cause,
            next="run the command again; if the error persists, please report it",
        )


def base_used(plan: Plan) -> Used | None:
    """The registry base of a plan."""
    if plan.base_image is None or plan.base_manifest is None:
        return None
    return Used("base", f"{plan.base_image}@{plan.base_manifest}", plan.base_manifest)


def receipt(layer: PlannedLayer, digest: Digest, used: Iterable[Used]) -> bytes:
    """The receipt of a layer as the store keeps it: canonical JSON."""
    return canonical({"layer": layer.id, "key": layer.key, "digest": digest, "used": [asdict(item) for item in used]})


def is_receipt_of(data: bytes, key: str, digest: Digest) -> bool:
    """Whether this is a readable receipt of the layer of this key, and of this blob."""
    try:
        found, _ = _parsed(data)
        return (found["key"], found["digest"]) == (key, digest)
    except (PinError, KeyError):
        return False


def used_of(data: bytes) -> tuple[Used, ...]:
    """The inputs in a receipt. Raises PinError when the receipt is not readable."""
    return _parsed(data)[1]


def _parsed(data: bytes) -> tuple[dict[str, Any], tuple[Used, ...]]:
    try:
        found: dict[str, Any] = parse_json(data)
        used = tuple(Used(row["kind"], row["name"], Digest(row["digest"])) for row in found["used"])
        if all(isinstance(text, str) for item in used for text in (item.kind, item.name, item.digest)):
            return found, used
    except (ValueError, KeyError, TypeError):
        pass
    raise PinError("a layer's receipt is not readable", id="receipt-unreadable", next="builder gc, then build again")


def check_inputs(layer: PlannedLayer, used: Iterable[Used]) -> None:
    """Compare a receipt with the layer's locked inputs. Raises PinError when they differ."""
    ours = {(item.file, item.digest) for item in layer.inputs}
    theirs = {(item.name, item.digest) for item in used if item.kind in _INPUTS}
    if differing := sorted(name for name, _ in ours ^ theirs):
        raise PinError(
            f"layer {layer.id} in the store was made from other inputs than are locked for it",
            id="receipt-differs",
            where=differing[0],
            cause="something other than builder changed the store",
            next="remove the store and build again",
        )


def _place(item: Used) -> tuple[str, str]:
    return item.kind, item.name
