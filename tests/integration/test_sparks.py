"""`deploy` to two machines behind a slow uplink, with a fast link between them; bytes are counted at interfaces."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from builder.errors import EngineError
from builder.parallel import each
from builder.share.deploy import deploy
from builder.share.parcel import Parcel, parcel_of
from builder.share.way import Via
from builder.store.store import Store
from tests.support.big_image import big_image
from tests.support.nightly import nightly
from tests.support.sparks import Sparks, problem, two_sparks

pytestmark = [pytest.mark.engine, nightly, pytest.mark.skipif(bool(problem()), reason=problem())]
NAME = "big:1"
HOSTS = ("spark1", "direct2")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Parcel, Store, int]:
    """An image of 200 MB: parcel, store and the size of its layers."""
    store = Store(tmp_path_factory.mktemp("store"))
    made = big_image(store, layers=8, megabytes=25)
    return parcel_of(made, "big"), store, made.size


@pytest.fixture
def sparks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sparks]:
    with two_sparks(tmp_path) as started:
        monkeypatch.setenv("PATH", f"{started.bin}:{os.environ['PATH']}")
        yield started


def both(parcel: Parcel, store: Store, pauses: tuple[float, ...] = (2.0, 5.0)) -> list[str]:
    """Deploy to both through the first; returns what each moved, or the id of its error."""
    with Via("spark1", HOSTS, parcel, store) as relay:
        done = each(lambda host: deploy(host, parcel, store, NAME, print, print, pauses, relay), HOSTS, EngineError)
        if not any(isinstance(one, EngineError) for one in done):
            relay.finish()
    return [f"{one.id}: {one.cause}" if isinstance(one, EngineError) else one.moved for one in done]


def have_it(sparks: Sparks, parcel: Parcel) -> None:
    for number in (1, 2):
        (found,) = json.loads(sparks.docker(number, "image", "inspect", NAME))
        assert any(name.endswith(f"@{parcel.digest}") for name in found["RepoDigests"]), found
        assert found["Id"] == (parcel.config if number == 1 else parcel.digest)


def test_the_image_crosses_the_uplink_once(sparks: Sparks, image: tuple[Parcel, Store, int]) -> None:
    parcel, store, size = image
    before, begin = (sparks.uplink(), sparks.direct()), time.monotonic()
    moved = both(parcel, store)
    up, direct = sparks.uplink() - before[0], sparks.direct() - before[1]
    print(f"{size} bytes: {up} on the uplink, {direct} on the direct link, {time.monotonic() - begin:.1f} s; {moved}")
    assert [text.startswith("8 of 8 layers") for text in moved] == [True, True], moved
    assert size < up < 1.05 * size and size < direct < 1.05 * size
    assert not list((sparks.folder / "spark1/cache/builder-relay").iterdir())
    have_it(sparks, parcel)


def test_machines_that_are_unplugged_go_on(sparks: Sparks, image: tuple[Parcel, Store, int]) -> None:
    """The first machine loses its uplink at half of the image. A second run sends only what has not arrived."""
    parcel, store, size = image
    before = sparks.uplink()
    pulled = Thread(target=pull_cable, args=(sparks, before + size // 2))
    pulled.start()
    first = both(parcel, store, pauses=())
    pulled.join()
    assert all(text.startswith(("docker-unreachable", "deploy-tunnel-failed")) for text in first), first
    crossed = sparks.uplink() - before
    sparks.plug(1, up=True)
    moved = both(parcel, store)
    up = sparks.uplink() - before
    print(f"{size} bytes: {crossed} before the cable was pulled, {up} in all; {first}, {moved}")
    assert size < up < 1.1 * size
    have_it(sparks, parcel)


def test_without_a_direct_link(sparks: Sparks, image: tuple[Parcel, Store, int]) -> None:
    """Each machine takes the image from here, with overlay2 and with containerd's store."""
    parcel, store, size = image
    before = sparks.uplink()
    done = each(lambda host: deploy(host, parcel, store, NAME, print, print), ["spark1", "spark2"], EngineError)
    assert not any(isinstance(one, EngineError) for one in done), done
    assert 2 * size < sparks.uplink() - before < 2.1 * size
    have_it(sparks, parcel)


def pull_cable(sparks: Sparks, at: int) -> None:
    """Pull the cable of the first machine when so many bytes have crossed it."""
    while sparks.uplink() < at:
        time.sleep(0.01)
    sparks.plug(1, up=False)
