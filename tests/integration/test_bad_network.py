"""Pushes and pulls through a network that breaks at any byte: right in the end, or refused; never half or damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.errors import BuilderError
from builder.model.reference import Reference
from builder.oci.assemble import Image
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.push import push_image
from builder.retry import RetryPolicy
from builder.store.store import Store
from tests.support.engine import FakeEngine, build
from tests.support.faults import FAULTS, bad_network
from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror
from tests.support.nightly import NIGHTLY
from tests.support.registry import running
from tests.support.strict_registry import strict_registry

ROUNDS = 500 if NIGHTLY else 12
LARGE = 24 << 20
"""Bytes: above it, a blob is uploaded in parts."""


@pytest.fixture(params=["strict", "docker"])
def registry(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        if request.param == "strict":
            yield stack.enter_context(strict_registry()).host
        elif shutil.which("docker-registry") is None:
            pytest.skip("docker-registry is not installed")
        else:
            yield stack.enter_context(running(tmp_path))


def client(attempts: int = 1) -> Registry:
    policy = RetryPolicy(attempts=attempts, pause=0.001, read=10)
    return Registry(config=RegistriesConfig(), credentials=Credentials(), retry_policy=policy)


def check(host: str, repository: str, image: Image) -> bool:
    """Whether the registry has the image under its tag. What it has is complete and right."""
    direct, place = client(), Reference(host, repository, "1")
    try:
        manifest = direct.manifest(place)
    except BuilderError:
        return False
    assert manifest.digest == image.digest
    for part in (manifest.config, *manifest.layers):
        assert Digest.of(b"".join(direct.blob(place, part.digest, part.size))) == part.digest
    return True


@pytest.mark.registry
def test_images(registry: str, make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine) -> None:
    image = build(make_plan(), store, engine).image
    moved = {"pushed": 0, "refused": 0, "pulled": 0}
    with bad_network(registry, seed=1) as network:
        for number in range(ROUNDS):
            repository = f"image/{number}"
            there = Reference(network.host, repository, "1")
            try:
                push_image(image, store, there, lambda *_: None, client(attempts=random.Random(number).choice([2, 8])))
            except BuilderError:
                check(registry, repository, image)
                moved["refused"] += 1
                continue
            assert check(registry, repository, image)
            moved["pushed"] += 1
            reader = client(attempts=6)
            try:
                manifest = reader.manifest(there)
                found = {part.digest: b"".join(reader.blob(there, part.digest, part.size)) for part in manifest.layers}
            except BuilderError:
                continue
            assert manifest.digest == image.digest
            assert all(Digest.of(data) == digest for digest, data in found.items())
            moved["pulled"] += 1
    assert min(moved["pushed"], moved["pulled"]) > ROUNDS // 4, moved
    if NIGHTLY:
        assert {*network.done} == {*FAULTS} - {"slow"}, network.done


@pytest.mark.registry
def test_large_blobs(registry: str) -> None:
    direct = client()
    with bad_network(registry, seed=2, share=0.5) as network:
        for number in range(2 if not NIGHTLY else 20):
            blob = random.Random(number).randbytes(1 << 20) * (LARGE >> 20)
            digest, pieces = Digest.of(blob), [blob[at : at + 500_000] for at in range(0, len(blob), 500_000)]
            place = Reference(network.host, "large/blob")
            for _ in range(40):
                try:
                    client(attempts=3).upload(place, digest, len(blob), lambda pieces=pieces: iter(pieces))  # type: ignore[misc]
                    break
                except BuilderError:
                    continue
            there = Reference(registry, "large/blob")
            assert Digest.of(b"".join(direct.blob(there, digest, len(blob)))) == digest
