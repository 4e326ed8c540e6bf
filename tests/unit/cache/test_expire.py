"""Old entries of a layer cache: what anybody says is attached to a key is not deleted with it."""

from __future__ import annotations

import json
from typing import Any, cast

from builder.cache.expire import Kept, delete
from builder.digest import Digest
from builder.errors import PinError
from builder.model.reference import Reference
from builder.oci.manifest import Manifest, parse_manifest
from builder.registry.client import Registry
from tests.support.http_registry import image_manifest

PLACE = Reference.parse("127.0.0.1:5000/team/cache")


class Registered:
    """A registry's manifests, and what was deleted of them."""

    def __init__(self) -> None:
        self.manifests: dict[Digest, bytes] = {}
        self.deleted: list[Digest] = []

    def put(self, **more: Any) -> Digest:
        data = json.dumps({**json.loads(image_manifest()), **more}).encode()
        self.manifests[Digest.of(data)] = data
        return Digest.of(data)

    def manifest(self, ref: Reference, *, own: bool = False) -> Manifest:
        if ref.digest not in self.manifests:
            raise PinError("not in the registry")
        return parse_manifest(self.manifests[ref.digest])

    def delete(self, place: Reference, digest: Digest) -> None:
        self.deleted.append(digest)


def test_only_what_names_the_key_is_deleted_with_it() -> None:
    """The list under the tag of the referrers can be written by anybody who may push, with any digests in it."""
    registry = Registered()
    key = registry.put(annotations={"of": "an old layer"})
    mine = registry.put(subject={"digest": key, "size": 1, "mediaType": "x"})
    fresh = registry.put(subject={"digest": Digest.of(b"a new layer"), "size": 1, "mediaType": "x"})
    image = registry.put()
    gone = Digest.of(b"gone")
    delete(cast("Registry", registry), PLACE, [Kept("a" * 64, "", 0, None, (mine, fresh, image, gone, key))])
    assert registry.deleted == [mine, key]
