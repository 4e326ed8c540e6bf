"""Push, pull and layer cache through a network that breaks at any byte: all ends right, or fails clean."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.attest.keys import public_key, signing_key
from builder.attest.policy import RebuiltRule
from builder.cache.cache import LayerCache
from builder.digest import Digest
from builder.errors import BuilderError, PinError
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.produce.image import Built
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.push import push_image
from builder.registry.upload import RESUMABLE
from builder.retry import RetryPolicy
from builder.share.library import Library
from builder.share.server import Server
from builder.store.store import Store
from tests.support.engine import FakeEngine, build
from tests.support.faults import bad_network
from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror
from tests.support.nightly import NIGHTLY
from tests.support.registry import is_installed
from tests.support.statements import new_key
from tests.support.strict_registry import strict_registry

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed"),
]
ROUNDS = 300 if NIGHTLY else 8
LARGE = RESUMABLE + (8 << 20)
"""Bytes."""


@pytest.fixture
def built(make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine) -> Built:
    return build(make_plan(), store, engine)


def client() -> Registry:
    """A client that does not wait between its attempts."""
    policy = RetryPolicy(sleep=lambda seconds: None, read=5.0)
    return Registry(config=RegistriesConfig(), credentials=Credentials(), retry_policy=policy)


def is_complete(place: Reference, digest: str) -> bool:
    """Whether a tag of the registry itself names the image with all of its blobs; False: there is no such tag."""
    direct = client()
    try:
        manifest = direct.manifest(place)
    except PinError:
        return False
    assert manifest.digest == digest
    for part in (manifest.config, *manifest.layers):
        assert b"".join(direct.blob(place, part.digest, part.size))
    return True


def rounds(act: Callable[[int], None]) -> None:
    """Do a step again and again. It ends right, or with an error that has an id."""
    ends: Counter[str] = Counter()
    for number in range(ROUNDS):
        try:
            act(number)
            ends["right"] += 1
        except BuilderError as error:
            assert error.id, error
            ends[error.id] += 1
    print(dict(ends))
    assert ends["right"] > ROUNDS // 4, ends


@pytest.fixture(params=["docker-registry", "strict"])
def registry(
    request: pytest.FixtureRequest, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if request.param == "strict":
        with strict_registry() as started:
            yield started.host
    else:
        yield host


def test_a_tag_never_names_an_incomplete_image(registry: str, built: Built, store: Store) -> None:
    def push(number: int) -> None:
        place = Reference.parse(f"{registry}/faults/push{number}:1")
        with bad_network(registry, number) as network:
            target = Reference(network.host, place.repository, "1")
            try:
                push_image(built.image, store, target, lambda digest, what, size: None, client())
            except BuilderError:
                is_complete(place, built.image.digest)
                raise
        assert is_complete(place, built.image.digest)

    rounds(push)


def test_large_blobs_arrive(registry: str) -> None:
    """Above a size, a blob is uploaded in parts, and goes on where it stopped."""
    for number in range(20 if NIGHTLY else 2):
        blob = random.Random(number).randbytes(1 << 20) * (LARGE >> 20)
        digest, pieces = Digest.of(blob), [blob[at : at + 500_000] for at in range(0, len(blob), 500_000)]
        with bad_network(registry, number, share=0.7) as network:
            for _ in range(40):
                with contextlib.suppress(BuilderError):
                    place = Reference(network.host, "large/blob")
                    client().upload(place, digest, len(blob), lambda pieces=pieces: iter(pieces))  # type: ignore[misc]
                    break
        there = client().blob(Reference(registry, "large/blob"), digest, len(blob))
        assert Digest.of(b"".join(there)) == digest


@pytest.mark.parametrize("source", ["docker-registry", "serve"])
def test_no_wrong_byte_is_accepted(host: str, built: Built, store: Store, tmp_path: Path, source: str) -> None:
    with contextlib.ExitStack() as stack:
        backend = host
        if source == "serve":
            backend = stack.enter_context(Server(Library(store))).host
        else:
            place = Reference.parse(f"{host}/tiny:tiny")
            push_image(built.image, store, place, lambda digest, what, size: None, client())

        def pull(number: int) -> None:
            other = Store(tmp_path / f"store{number}")
            try:
                with bad_network(backend, number) as network:
                    one, place = client(), Reference(network.host, "tiny", "tiny")
                    manifest = one.manifest(place)
                    for part in manifest.layers:
                        other.fill(part.digest, lambda part=part: one.blob(place, part.digest, part.size))  # type: ignore[misc]
                    assert manifest.digest == built.image.digest
            finally:
                for path in (other.root / "blobs" / "sha256").iterdir():
                    assert path.read_bytes() == store.blob(built.image.digest).with_name(path.name).read_bytes()
                assert not list(other.tmp.iterdir())

        rounds(pull)


def test_a_cache_takes_right_layers_or_none(
    host: str, built: Built, store: Store, tmp_path: Path, make_plan: MakePlan
) -> None:
    plan: Plan = built.plan
    layers = [layer for layer in plan.layers if layer.key]
    private, public = (path.read_bytes() for path in new_key(tmp_path, "own"))
    rule = RebuiltRule(keys=("own.pub",))
    keys = [public_key(public, "own.pub")]
    taken: Counter[int] = Counter()

    def use(number: int) -> None:
        other = Store(tmp_path / f"store{number}")
        with bad_network(host, number) as network:
            cache = LayerCache(Reference(network.host, f"faults/cache{number % 3}"), rule, keys, client(), client())
            with contextlib.suppress(BuilderError):
                cache.publish(store, layers, signing_key(private, None, "own.pub"), lambda layer, outcome: None)
            found = cache.look_up(layers)
            try:
                taken[len(cache.take(other, layers, found, lambda event: None))] += 1
            finally:
                for layer in layers:
                    record, own = other.layer(layer.key), store.layer(layer.key)
                    if record is not None and own is not None:
                        other.verify(record.digest)
                        assert record.digest == own.digest
                        assert cache.name == record.origin

    rounds(use)
    assert taken[len(layers)], taken
