"""`builder test --tier cpu` of an image on a registry base: the layers of the base are fetched, to run it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from builder.digest import Digest
from builder.store.store import Store
from tests.support.cli import Cli
from tests.support.engine import FakeEngine, build
from tests.support.fixtures import MakePlan
from tests.support.http_registry import Answer, Server, image_manifest, serving
from tests.support.images import tar
from tests.support.mirror import Mirror
from tests.support.project import Sample, vendor_base

LAYER = tar({"usr/bin/tool": b"of the base"})


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def built(cli: Cli, small: Sample, make_plan: MakePlan, server: Server, mirror: Mirror, engine: FakeEngine) -> Cli:
    """The recipe `tiny` on a base of the server, built without the base's layer."""
    config = {"os": "linux", "architecture": "arm64", "rootfs": {"type": "layers", "diff_ids": [Digest.of(LAYER)]}}
    data = image_manifest(json.dumps(config).encode(), LAYER)
    named = json.loads(data)["config"]["digest"]
    server.on("GET", f"/v2/team/app/blobs/{named}", Answer(200, json.dumps(config).encode()))
    server.on("GET", f"/v2/team/app/blobs/{Digest.of(LAYER)}", Answer(200, LAYER))
    digest = server.serve_manifest(data, "1")
    small.files["recipes/bases/vendor.yaml"] = vendor_base(f"{server.host}/team/app:1", digest)
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    build(make_plan(base="vendor"), Store(cli.folder / "store"), engine)
    return cli


WHAT = ("test", "--recipe", "tiny", "--base", "vendor", "--json", "--tier")


def test_the_static_tier_fetches_nothing(built: Cli) -> None:
    built(*WHAT, "static")
    assert not Store(built.folder / "store").has(Digest.of(LAYER))


def test_the_cpu_tier_fetches_the_layers_of_the_base(built: Cli) -> None:
    done = built(*WHAT, "cpu")
    assert Store(built.folder / "store").has(Digest.of(LAYER)), done


def test_without_the_base_the_checks_are_not_run(built: Cli, server: Server) -> None:
    server.routes.clear()
    done = built(*WHAT, "cpu", "--require")
    assert "the layers of the base cannot be fetched" in done.err
    assert not [row for row in json.loads(done.out)["results"] if row["status"] == "pass"]
