"""Damaged manifests, indexes and configs: bytes with another digest than the pin are never accepted; hostile ones with
the right digest are refused with a BuilderError, or describe an image for linux/arm64 without ambiguity."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.digest import Digest, is_digest
from builder.errors import BuilderError, NetworkError, PinError
from builder.lock.bases import look_up
from builder.model.base import Base
from builder.model.reference import Reference
from builder.oci.assemble import assemble, parse_base
from builder.oci.manifest import (
    INDEXES,
    MANIFESTS,
    OCI_INDEX,
    check_platform,
    choose_platform,
    parse_manifest,
    verified,
)
from builder.registry.client import Registry
from tests.support.fixtures import MakePlan
from tests.support.fuzz import SEED, TIMES, times
from tests.support.http_registry import Answer, client, digest_of, entry, image_manifest, index, serving
from tests.support.mutate import Mutator
from tests.support.oracle import plain_values
from tests.support.project import vendor_base

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
CONFIG = {
    "architecture": "arm64",
    "os": "linux",
    "variant": "v8",
    "created": "2026-01-01T00:00:00Z",
    "config": {"Env": ["PATH=/usr/bin", "A=b"], "Entrypoint": ["x"], "Labels": {"a": "b"}, "WorkingDir": "/srv"},
    "rootfs": {"type": "layers", "diff_ids": [A, B]},
    "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "x"}, {"empty_layer": True}],
}
CONFIG_TEXT = json.dumps(CONFIG)
MANIFEST = image_manifest(CONFIG_TEXT.encode(), b"one", b"two").decode()
ATTESTED = entry(C, "unknown/unknown", **{"vnd.docker.reference.type": "attestation-manifest"})
INDEX = index(entry(A, "linux/amd64"), entry(B, "linux/arm64/v8"), ATTESTED).decode()
TEXTS = {"manifest": MANIFEST, "index": INDEX, "config": CONFIG_TEXT}


@pytest.mark.parametrize("kind", TEXTS)
def test_damaged_bytes_never_match_the_pin(kind: str) -> None:
    pinned = digest_of(TEXTS[kind].encode())
    for data in Mutator(TEXTS[kind], "json", SEED).some(times(1000)):
        if digest_of(data) == pinned:
            continue
        given = b""
        with pytest.raises(PinError):
            for chunk in verified(iter([data[:50], data[50:]]), pinned):
                given += chunk
        assert data == b"" or given != data


def test_a_registry_that_serves_damaged_manifests() -> None:
    pinned = digest_of(MANIFEST.encode())
    registry = client()
    with serving() as server:
        for data in Mutator(MANIFEST, "json", SEED).some(times(300)):
            server.on("GET", f"/v2/team/app/manifests/{pinned}", Answer(200, data))
            server.requests.clear()
            if data == MANIFEST.encode():
                continue
            with pytest.raises(PinError):
                registry.manifest(server.ref(f"team/app@{pinned}"))


@pytest.mark.parametrize("kind", ["manifest", "index"])
def test_hostile_manifests(kind: str) -> None:
    refused = accepted = 0
    for data in Mutator(TEXTS[kind], "json", SEED).some(times(1500)):
        try:
            found = parse_manifest(data)
        except NetworkError:
            refused += 1
            continue
        accepted += 1
        values = plain_values(data, "json")
        assert found.json == values
        assert found.digest == Digest.of(data)
        assert values["schemaVersion"] == 2 and type(values["schemaVersion"]) is int
        if found.is_index:
            check_index(found, values)
        else:
            assert found.media_type in MANIFESTS
            for descriptor in (values["config"], *values["layers"]):
                check_descriptor(descriptor)
    assert refused > 300 * TIMES
    assert accepted > 30 * TIMES


def test_resolving_a_base_from_a_hostile_registry(tmp_path: Path) -> None:
    """Every document has the digest that its parent names; one of them is damaged, or has another media type."""
    kinds = [*MANIFESTS, *INDEXES, OCI_INDEX.upper(), "text/html", ""]
    made = {kind: Mutator(text, "json", SEED).some(10**9) for kind, text in TEXTS.items()}
    pick = random.Random(SEED)
    codes: Counter[int] = Counter()
    with serving() as server:
        where = f"{server.host}/team/app:1"
        base = Base.model_validate(vendor_base(where, "", pin={"image": where}))
        file = tmp_path / "vendor.yaml"
        file.write_text(yaml.safe_dump(base.model_dump(mode="json", exclude_defaults=True)))
        registry = client()
        for _ in range(times(300)):
            damaged = pick.choice([*TEXTS])
            config = next(made["config"]) if damaged == "config" else CONFIG_TEXT.encode()
            manifest = next(made["manifest"]) if damaged == "manifest" else image_manifest(config)
            other = entry(digest_of(manifest), "linux/arm64/v8")
            top = next(made["index"]) if damaged == "index" else index(entry(A, "linux/amd64"), other, ATTESTED)
            served = {digest_of(data): data for data in (config, CONFIG_TEXT.encode(), manifest, top)}
            served["1"] = pick.choice([top, top, manifest])
            server.routes.clear()
            for name, data in served.items():
                kind = {"Content-Type": pick.choice(kinds)} if name == "1" else {}
                for folder in ("manifests", "blobs"):
                    server.on("GET", f"/v2/team/app/{folder}/{name}", Answer(200, data, kind))
            (found,) = look_up([(base, file)], tmp_path, registry)
            if isinstance(found, BuilderError):
                codes[found.code] += 1
                continue
            codes[0] += 1
            pinned = {change.item: change.new for change in found.changes}
            assert pinned.get("index") in (None, digest_of(served["1"]))
            image = plain_values(served[pinned["manifest"]], "json")
            values = plain_values(served[image["config"]["digest"]], "json")
            check_is_arm64(values)
    assert set(codes) == {0, 4, 6}
    assert min(codes.values()) > 12 * TIMES, codes


def check_index(found: Any, values: Any) -> None:
    """In every index, only an entry with the platform linux/arm64 (v8 or no variant) is chosen."""
    try:
        chosen = choose_platform(found, "linux/arm64")
    except PinError:
        return
    assert is_digest(chosen)
    (row, *_) = [row for row in values["manifests"] if row["digest"] == chosen]
    check_is_arm64(row["platform"])


def check_is_arm64(values: Any) -> None:
    """As containerd reads a platform: in any case, and linux without a name of the operating system."""
    assert (values.get("os") or "linux").lower() == "linux"
    assert values["architecture"].lower() in ("arm64", "aarch64")
    assert (values.get("variant") or "").lower() in ("", "8", "v8")


def check_descriptor(descriptor: Any) -> None:
    assert is_digest(descriptor["digest"])
    assert type(descriptor["size"]) is int
    assert 0 <= descriptor["size"] < 2**63


def test_hostile_configs_under_their_own_digest(make_plan: MakePlan) -> None:
    plan = make_plan()
    records = {layer.id: record() for layer in plan.layers if layer.producer != "config"}
    refused = accepted = 0
    for data in Mutator(CONFIG_TEXT, "json", SEED).some(times(1500)):
        try:
            check_platform(data, "linux/arm64")
            base = parse_base("registry/x", image_manifest(data, b"one", b"two"), data)
            image = assemble(plan, records, base)
        except BuilderError:
            refused += 1
            continue
        accepted += 1
        values = plain_values(data, "json")
        check_is_arm64(values)
        assert base.config == values
        made = json.loads(image.config)
        assert made["rootfs"]["diff_ids"][:2] == values["rootfs"]["diff_ids"]
        assert all(is_digest(digest) for digest in made["rootfs"]["diff_ids"])
        assert all(isinstance(word, str) and "=" in word for word in made["config"]["Env"])
    assert refused > 300 * TIMES
    assert accepted > 100 * TIMES


def test_references_of_any_text_are_refused_or_round_trip() -> None:
    for data in Mutator(json.dumps(f"nvcr.io/nvidia/vllm:26.05-py3@{A}"), "json", SEED).some(times(500)):
        try:
            text = json.loads(data)
        except ValueError:
            continue
        if not isinstance(text, str):
            continue
        try:
            found = Reference.parse(text)
        except BuilderError as error:
            assert error.code == 2
            continue
        assert Reference.parse(str(found)) == found


def record() -> Any:
    from builder.store.records import LayerRecord

    return LayerRecord(A, 1, B, 1, "application/vnd.oci.image.layer.v1.tar+zstd", 1, C)


def test_the_undamaged_documents_are_accepted(make_plan: MakePlan) -> None:
    assert choose_platform(parse_manifest(INDEX.encode()), "linux/arm64") == B
    check_platform(CONFIG_TEXT.encode(), "linux/arm64")
    assert parse_base("x", MANIFEST.encode(), CONFIG_TEXT.encode()).config == CONFIG
    assert isinstance(client(), Registry)
