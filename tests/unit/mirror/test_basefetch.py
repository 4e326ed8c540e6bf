"""Reading a base: fetched once, checked against its pin and its platform."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import ExitCode, InvalidError, NetworkError, PinError
from builder.mirror.basefetch import base_image, with_hermetic_hint
from builder.model.plan import Plan
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.http_registry import Answer, Server, image_manifest
from tests.support.project import Sample, read_base, vendor_base

Vendor = Callable[..., Plan]
DIFF = Digest("sha256:" + "d" * 64)


@pytest.fixture
def plan_on(make_plan: Callable[..., Plan], small: Sample, server: Server) -> Vendor:
    """A plan on a base of the server, pinned to this digest."""

    def made(digest: str) -> Plan:
        small.files["recipes/bases/vendor.yaml"] = vendor_base(f"{server.host}/team/app:1", digest)
        small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
        return make_plan(base="vendor")

    return made


def serve(server: Server, architecture: str = "arm64", **settings: Any) -> str:
    """A base with one layer whose blob does not exist."""
    layers = b"a layer"
    about = {"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": [DIFF]}, "config": settings}
    config = json.dumps(about).encode()
    data = image_manifest(config, layers)
    named = json.loads(data)["config"]["digest"]
    server.on("GET", f"/v2/team/app/blobs/{named}", Answer(200, config))
    return server.serve_manifest(data, "1")


def test_a_hermetic_plan_has_no_base_and_sends_no_request(make_plan: Callable[..., Plan], store: Store) -> None:
    assert base_image(make_plan(), store, offline=False) is None


def test_manifest_and_config_are_fetched_once_and_no_layer(plan_on: Vendor, server: Server, store: Store) -> None:
    plan = plan_on(serve(server))
    found = base_image(plan, store, offline=False)
    assert found is not None
    assert found.config["rootfs"]["diff_ids"] == [DIFF]
    assert len([path for path in server.paths() if "/manifests/" in path or "/blobs/" in path]) == 2
    server.requests.clear()
    assert base_image(plan, store, offline=False) == base_image(plan, store, offline=True) == found
    assert server.paths() == []


def test_offline_a_missing_base_is_an_error(plan_on: Vendor, server: Server, store: Store) -> None:
    with fails(PinError, "base-missing-offline") as caught:
        base_image(plan_on(serve(server)), store, offline=True)
    assert caught.value.next == "run the same command once without --offline"


def test_an_image_of_another_platform_is_refused_and_not_stored(plan_on: Vendor, server: Server, store: Store) -> None:
    plan = plan_on(serve(server, "amd64"))
    for _ in range(2):
        with fails(PinError, "platform-mismatch"):
            base_image(plan, store, offline=False)
    assert not store.has(plan.base_manifest or "")


def test_another_manifest_than_pinned_is_refused(plan_on: Vendor, server: Server, store: Store) -> None:
    pinned = "sha256:" + "a" * 64
    serve(server)
    other = server.routes["GET", "/v2/team/app/manifests/1"]
    server.routes["GET", f"/v2/team/app/manifests/{pinned}"] = other
    with pytest.raises(PinError):
        base_image(plan_on(pinned), store, offline=False)


def test_the_base_without_a_registry_is_named_where_the_recipe_has_one(make_plan: Callable[..., Plan]) -> None:
    refused = NetworkError("refused", where="there", cause="a cause", next="try again")
    plan = make_plan()
    for compatible in (("hermetic",), ("other", "hermetic-0.20")):
        hinted = with_hermetic_hint(refused, replace(plan, compatible=compatible))
        assert hinted.next == "add --base hermetic, which needs no registry; or try again"
        assert (hinted.what, hinted.where, hinted.cause, hinted.code) == (
            "refused",
            "there",
            "a cause",
            ExitCode.NETWORK,
        )
    assert with_hermetic_hint(refused, replace(plan, compatible=("other",))).next == "try again"


def test_a_base_that_is_read_has_no_commands_of_its_own(
    make_plan: Callable[..., Plan], small: Sample, server: Server, store: Store
) -> None:
    """An engine runs them in every build on the base: nobody would have seen them."""
    digest = serve(server, OnBuild=["RUN evil", "ADD https://example.org/x /"])
    read_base(small, f"{server.host}/team/app:1", digest)
    with fails(InvalidError, "base-onbuild"):
        base_image(make_plan(base="vendor"), store, offline=False)
    small.files["recipes/tiny.yaml"]["layers"] = ["entrypoint"]
    assert base_image(make_plan(base="vendor"), store, offline=False) is not None, "no engine starts from it"
