"""`build --cache` with real registries: what is taken, what is refused, and what stops the build."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from builder.attest.envelope import MEDIA_TYPE
from builder.cache.entry import key_manifest
from builder.digest import Digest
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.resolve import resolve
from builder.registry.referrers import Artifact, attach_all, attached
from tests.support.cli import Cli
from tests.support.layercache import Fleet, states
from tests.support.registry import running
from tests.support.statements import client, cosign

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]
NO_INPUTS = {"BUILDER_DEB_MIRROR": "http://127.0.0.1:1", "UV_DEFAULT_INDEX": "http://127.0.0.1:1"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """HOST:PORT of a registry, and the folder of its files."""
    folder = tmp_path_factory.mktemp("layers")
    with running(folder) as host:
        yield host, folder


@pytest.fixture
def fleet(online: Cli, registry: tuple[str, Path], request: pytest.FixtureRequest) -> Fleet:
    name = "".join(letter for letter in request.node.name.lower() if letter.isalnum())
    project = online.small.write(online.folder / "project")
    return Fleet(online, f"{registry[0]}/layers/{name}", resolve(project, project.recipe("tiny")))


def test_a_newcomer_takes_what_two_built_and_needs_no_input(fleet: Fleet) -> None:
    fleet.publish("alice")
    both = fleet.trusting("alice", "bob", count=2)
    done = fleet.build("alone", "--json", *both)
    assert set(states(done).values()) == {"built"} and "layer placed: 1 of 1 builders" in done.err, done.err
    fleet.publish("bob")
    done = fleet.build("newcomer", "--json", "--offline", *both, **NO_INPUTS)
    assert done.code == 0 and set(states(done).values()) == {"taken"}, done.err
    assert json.loads(done.out)["digest"] == json.loads(fleet.build("alice", "--json").out)["digest"]
    # What was taken proves nothing new, and what is there is not sent again.
    carol = fleet.build("newcomer", "--publish", "--key", str(fleet.key("carol")))
    assert carol.code == 0 and "published" not in carol.err and "not built here" in carol.err
    store = fleet.store("newcomer")
    for layer in fleet.plan.layers:
        if layer.key:
            record = store.layer(layer.key)
            assert record is not None and record.origin == fleet.repository
            store.verify(record.digest)


def test_without_trust_a_cache_only_tells(fleet: Fleet) -> None:
    fleet.publish("alice")
    done = fleet.build("newcomer", "--json")
    assert set(states(done).values()) == {"built"}
    assert "layer placed: 1 of 1 builders in the cache have the same bytes" in done.err
    fleet.forge("newcomer")
    done = fleet.build("newcomer")
    assert done.code == 0
    assert "layer placed: a builder that nobody vouches for has other bytes: an unknown key built sha256:" in done.err


@pytest.mark.skipif(client("cosign") is None, reason="there is no cosign; scripts/test unpacks it")
def test_cosign_reads_an_entry(fleet: Fleet) -> None:
    fleet.publish("alice")
    about = f"{fleet.repository}@{Digest.of(key_manifest(fleet.layer().key))}"
    words = ("--type", "urn:builder:layer:v1")
    said = cosign("verify-attestation", about, fleet.cli.folder / "alice.pub", *words)
    assert said.returncode == 0, said.stderr


# Poisoned entries


def test_right_key_other_bytes(fleet: Fleet, registry: tuple[str, Path]) -> None:
    fleet.publish("alice")
    record = fleet.store("alice").layer(fleet.layer().key)
    assert record is not None
    (file,) = (registry[1] / "data").glob(f"**/sha256/*/{record.digest.hex}/data")
    good = file.read_bytes()
    try:
        for bad in (good[:-1] + b"x", good[:-9], good + b"x"):
            file.write_bytes(bad)
            done = fleet.build("newcomer", *fleet.trusting("alice"))
            done.failed(4, "cache-layer-wrong")
            assert "layer placed" in done.err and "the registry serves other bytes" in done.err
            assert fleet.store("newcomer").layer(fleet.layer().key) is None
    finally:
        file.write_bytes(good)
    assert fleet.build("newcomer", *fleet.trusting("alice")).code == 0


def test_right_bytes_other_key(fleet: Fleet) -> None:
    fleet.publish("alice")
    placed, other = fleet.layer(), "b" * 64
    record = fleet.store("alice").layer(placed.key)
    root = fleet.store("alice").layer(fleet.layer("root").key)
    assert record is not None and root is not None
    # A true statement, attached to another key by somebody else: it does not count.
    fleet.sign("mallory", fleet.other("mallory", other), other, under=placed.key)
    fleet.sign("alice", record, placed.key, under=fleet.layer("root").key)
    done = fleet.build("newcomer", *fleet.trusting("alice", "mallory"))
    assert done.code == 0, done.err
    assert f"of mallory.pub does not count: it is about another layer key, {other[:12]}" in done.err
    # A builder that signs the bytes of another layer: its receipt tells.
    fleet.sign("liar", fleet.other("liar", "c" * 64), placed.key)
    done = fleet.build("second", *fleet.trusting("liar"))
    done.failed(4, "cache-layer-wrong")
    assert "its receipt is of another layer; liar.pub built" in done.err


def test_a_record_of_a_stranger(fleet: Fleet) -> None:
    key = fleet.layer().key
    fleet.sign("stranger", fleet.other("stranger", key), key)
    manifest = key_manifest(key)
    about = {"mediaType": OCI_MANIFEST, "digest": Digest.of(manifest), "size": len(manifest)}
    attach_all(fleet.client, fleet.place, about, [Artifact(b" " * 70_000, MEDIA_TYPE), Artifact(b"{}", MEDIA_TYPE)])
    done = fleet.build("newcomer", "--json", *fleet.trusting("alice"))
    assert done.code == 0 and states(done)["placed"] == "built", done.err
    assert "does not count: it is signed by another key" in done.err
    assert "does not count: an artifact of 70000 bytes" in done.err
    assert "does not count: not a valid statement" in done.err
    assert "a builder that nobody vouches for has other bytes" in done.err


def test_an_older_record_played_back(fleet: Fleet) -> None:
    key = fleet.layer().key
    old = fleet.other("alice", key)
    fleet.sign("alice", old, key, day="2020-01-01")
    done = fleet.build("newcomer", "--json", *fleet.trusting("alice", days=30))
    assert done.code == 0 and states(done)["placed"] == "built", done.err
    assert "of alice.pub does not count: it is older than 30 days" in done.err
    # Beside the record that replaced it, nobody can tell which one its builder means.
    fleet.publish("bob")
    record = fleet.store("bob").layer(key)
    assert record is not None
    shutil.copytree(fleet.store("bob").root / "blobs", fleet.store("alice").root / "blobs", dirs_exist_ok=True)
    fleet.sign("alice", record, key)
    done = fleet.build("second", *fleet.trusting("alice"))
    done.failed(8, "cache-builders-disagree")
    assert "alice.pub has signed two different layers under one key" in done.err and "2020-01-01" in done.err
    assert fleet.build("second", *fleet.trusting("alice", days=30)).code == 0


def test_two_honest_builders_that_disagree(fleet: Fleet) -> None:
    fleet.publish("alice")
    fleet.build("bob")
    fleet.forge("bob")
    fleet.publish("bob")
    done = fleet.build("newcomer", *fleet.trusting("alice", "bob"))
    done.failed(8, "cache-builders-disagree")
    assert "alice.pub and bob.pub disagree about the bytes of a layer" in done.err
    assert "layer placed" in done.err
    # Neither is it hidden from one that has built the layer already.
    assert fleet.build("alice", *fleet.trusting("bob")).code == 8
    # What this key has signed is not sent again, and cannot be replaced.
    again = fleet.build("alice", "--publish", "--key", str(fleet.key("alice")))
    assert again.code == 0 and "published" not in again.err and again.err.count("already there") == 4
    fleet.forge("alice")
    fleet.build("alice", "--publish", "--key", str(fleet.key("alice"))).failed(8, "cache-differs")


def test_the_own_build_differs_from_what_is_signed(fleet: Fleet) -> None:
    key = fleet.layer().key
    fleet.sign("liar", fleet.other("liar", key), key)
    done = fleet.build("newcomer", *fleet.trusting("liar", "alice", count=2))
    done.failed(8, "cache-differs")
    assert "this machine built sha256:" in done.err and "liar.pub built sha256:" in done.err
    # With one builder in the policy, its layer is taken: that is what the policy says.
    assert states(fleet.build("second", "--json", *fleet.trusting("liar")))["placed"] == "taken"


def test_a_tar_that_is_not_the_signed_one(fleet: Fleet) -> None:
    key = fleet.layer().key
    record = fleet.other("liar", key)
    for wrong in ({"diff_id": Digest.of(b"x")}, {"tar_size": record.tar_size - 1}, {"tar_size": record.tar_size + 1}):
        name = f"liar{len(wrong)}{'-'.join(map(str, wrong.values()))[-3:]}"
        shutil.copytree(fleet.store("liar").root, fleet.store(name).root, dirs_exist_ok=True)
        fleet.sign(name, replace(record, **wrong), key)  # type: ignore[arg-type]
        fleet.build("newcomer", *fleet.trusting(name)).failed(4, "cache-layer-wrong")


# A cache that does not work


def test_a_cache_that_is_away_or_has_lost_a_blob_delays_nothing(fleet: Fleet, registry: tuple[str, Path]) -> None:
    fleet.publish("alice")
    trusted = fleet.trusting("alice")
    away = fleet.cli("build", "--recipe", "tiny", "--cache", "127.0.0.1:1/layers", *trusted)
    assert away.code == 0 and "warning: the cache 127.0.0.1:1/layers was not asked" in away.err
    record = fleet.store("alice").layer(fleet.layer().key)
    assert record is not None
    shutil.rmtree(next((registry[1] / "data").glob(f"**/blobs/sha256/*/{record.digest.hex}")))
    done = fleet.build("newcomer", "--json", *trusted)
    assert states(done)["placed"] == "built" and "the cache has lost a blob of it" in done.err, done.err


def test_options_that_do_not_fit(fleet: Fleet) -> None:
    build = ("build", "--recipe", "tiny")
    fleet.cli(*build, "--policy", "x").failed(2, "policy-without-cache")
    fleet.cli(*build, "--publish", "--cache", fleet.repository).failed(2, "publish-incomplete")
    fleet.cli(*build, "--publish", "--key", str(fleet.key("alice"))).failed(2, "publish-incomplete")
    fleet.cli(*build, "--cache", f"{fleet.repository}:1").failed(2, "cache-names-image")
    words = fleet.trusting("alice")
    policy = Path(words[1])
    policy.write_text("signed: [{key: alice.pub}]\n")
    fleet.build("alice", *words).failed(3, "policy-without-layers")


def test_publishers_at_once(fleet: Fleet) -> None:
    names = [f"builder{number}" for number in range(6)]
    key = fleet.layer().key
    records = {name: fleet.other(name, key) for name in names}

    def sign(name: str) -> None:
        fleet.sign(name, records[name], key, day="2026-01-01")

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(sign, names))
    # A registry without the referrers API may lose one; who publishes again puts it back.
    for name in names:
        sign(name)
    assert len(attached(fleet.client, fleet.place, Digest.of(key_manifest(key)), MEDIA_TYPE)) == len(names)


def test_old_entries_are_deleted(fleet: Fleet, registry: tuple[str, Path]) -> None:
    fleet.publish("alice", "bob")
    words = ("gc", "--cache", fleet.repository)
    fleet.cli(*words).failed(2, "gc-cache-without-age")
    fleet.cli(*words, "--older-than", "1d", "--keep-inputs").failed(2, "gc-cache-options")
    assert fleet.cli(*words, "--older-than", "1h").out == f"0 layers (0 B) deleted in {fleet.repository}, 4 kept\n"
    preview = json.loads(fleet.cli(*words, "--older-than", "0s", "--dry-run", "--json").out)
    assert {row["layer"] for row in preview["removed"]} == {layer.id for layer in fleet.plan.layers if layer.key}
    assert all(row["size"] > 0 and row["built"] for row in preview["removed"])
    trusting = fleet.trusting("alice")
    assert set(states(fleet.build("before", "--json", *trusting)).values()) == {"taken"}, "a dry run deletes nothing"
    done = fleet.cli(*words, "--older-than", "0s")
    assert done.code == 0 and "4 layers (" in done.out and ", 0 kept" in done.out, done.err
    assert set(states(fleet.build("after", "--json", *trusting)).values()) == {"built"}
    assert fleet.cli(*words, "--older-than", "0s").out.startswith("0 layers")
    fleet.publish("alice")
    assert set(states(fleet.build("again", "--json", *trusting)).values()) == {"taken"}


def test_a_registry_that_deletes_nothing_is_named(fleet: Fleet, tmp_path: Path) -> None:
    with running(tmp_path, delete=False) as host:
        other = Fleet(fleet.cli, f"{host}/layers", fleet.plan)
        other.publish("alice")
        fleet.cli("gc", "--cache", other.repository, "--older-than", "0s").failed(6, "registry-delete-refused")
