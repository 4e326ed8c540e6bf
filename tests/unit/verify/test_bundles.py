"""Bundles that are attached to an image: anybody who may push can attach many, and large ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import InvalidError
from builder.model.reference import Reference
from builder.plan.bundle import LIMIT
from builder.registry.client import Registry
from builder.registry.referrers import Attached
from builder.verify import bundles
from tests.support.errors import fails

IMAGE = Digest("sha256:" + "a" * 64)


def test_what_is_read_of_all_bundles_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def read(client: Registry, reference: Reference, descriptor: Mapping[str, Any], limit: int) -> Attached:
        sizes.append(limit)
        return Attached(b" " * min(limit, LIMIT), IMAGE, {})

    listed = [{"digest": f"sha256:{number:064x}"} for number in range(100)]
    monkeypatch.setattr(bundles, "attached", lambda *_: listed)
    monkeypatch.setattr(bundles, "read_attached", read)
    with fails(InvalidError, "bundle-invalid"):
        list(bundles.bundles_of(Registry(), Reference.parse("h.test/x:1"), IMAGE))
    assert len(sizes) == 20 and max(sizes) == LIMIT and sum(sizes) == 4 * LIMIT
