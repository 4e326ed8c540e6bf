from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.errors import BuilderError, NetworkError, PinError
from builder.oci.manifest import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    check_platform,
    choose_platform,
    parse_manifest,
    verified,
)
from tests.support.errors import fails
from tests.support.fuzz import times
from tests.support.http_registry import digest_of, entry, image_manifest, index

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def changed(**fields: Any) -> bytes:
    document = {**json.loads(image_manifest()), **fields}
    return json.dumps({key: value for key, value in document.items() if value is not None}).encode()


@pytest.mark.parametrize("kind", [OCI_INDEX, DOCKER_LIST])
@pytest.mark.parametrize("platform", ["linux/arm64", "linux/arm64/v8"])
@pytest.mark.parametrize("wanted", ["linux/arm64", "linux/arm64/v8"])
def test_arm64_is_arm64_v8(kind: str, platform: str, wanted: str) -> None:
    data = index(entry(A, "linux/amd64"), entry(B, "linux/arm/v7"), entry(C, platform), media_type=kind)
    found = parse_manifest(data, kind)
    assert found.is_index
    assert choose_platform(found, wanted) == C


ATTESTS = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": C}


def test_attestations_are_not_images() -> None:
    found = parse_manifest(
        index(entry(A, "unknown/unknown", **ATTESTS), entry(B, "linux/amd64", **ATTESTS), entry(C, "linux/arm64"))
    )
    assert choose_platform(found, "linux/arm64") == C
    with fails(PinError, "platform-missing") as caught:
        choose_platform(parse_manifest(index(entry(C, "linux/arm64", **ATTESTS))), "linux/arm64")
    assert caught.value.cause == "it holds an attestation"


@pytest.mark.parametrize(
    "other",
    [
        entry(A, "linux/arm64/v8"),
        entry(A, "linux/arm64/8"),
        entry(A, "linux/arm64/v8.0"),
        entry(A, "linux/aarch64"),
        entry(A, "Linux/ARM64"),
        entry(A, "/arm64"),
        # docker's classic store does not know attestations, and follows an index in an index.
        entry(A, "linux/arm64", **ATTESTS),
        {**entry(A, "linux/arm64"), "mediaType": OCI_INDEX},
    ],
    ids=lambda other: "/".join(other["platform"].values()) + ("", " attests")["annotations" in other],
)
def test_an_index_with_two_images_for_the_platform_is_refused(other: dict[str, Any]) -> None:
    for entries in ((other, entry(C, "linux/arm64")), (entry(C, "linux/arm64"), other)):
        with fails(PinError, "platform-ambiguous"):
            choose_platform(parse_manifest(index(*entries)), "linux/arm64")
    # One manifest that is listed twice is one image.
    twice = parse_manifest(index(entry(C, "linux/arm64"), entry(C, "linux/arm64/v8")))
    assert choose_platform(twice, "linux/arm64") == C


@pytest.mark.parametrize("name", ["os.features", "os.version"])
def test_an_image_for_some_machines_of_the_platform_is_not_chosen(name: str) -> None:
    """Engines that ask for the features take the image for no platform, and others this one."""
    some = entry(C, "linux/arm64")
    some["platform"][name] = ["x"] if name == "os.features" else "x"
    other = {key: value for key, value in entry(A, "linux/arm64").items() if key != "platform"}
    for entries in ((some,), (other, some)):
        with fails(PinError, "platform-missing"):
            choose_platform(parse_manifest(index(*entries)), "linux/arm64")


def test_an_index_without_the_platform_names_its_platforms() -> None:
    found = parse_manifest(index(entry(A, "linux/amd64"), entry(B, "linux/arm/v7"), entry(C, "unknown/unknown")))
    with fails(PinError, "platform-missing") as caught:
        choose_platform(found, "linux/arm64")
    assert caught.value.cause == "it holds linux/amd64, linux/arm/v7"


@pytest.mark.parametrize("name", ["Layers", "layer\u017f", "CONFIG", "mediatype", "Manifests"])
def test_names_that_go_takes_for_others_are_refused(name: str) -> None:
    # Go's parser ignores case (and takes the long s for s), and its last member wins.
    with fails(NetworkError, "manifest-malformed") as caught:
        parse_manifest(changed(**{name: []}))
    assert "container engines read" in str(caught.value.cause)
    inside = {**json.loads(image_manifest())["config"], "Digest": A}
    with fails(NetworkError, "manifest-malformed"):
        parse_manifest(changed(config=inside))
    assert parse_manifest(changed(annotations={name: "any"})).media_type == OCI_MANIFEST


def test_a_missing_media_type_is_derived() -> None:
    assert parse_manifest(changed(mediaType=None), "application/json").media_type == OCI_MANIFEST
    assert parse_manifest(changed(mediaType=None), f"{DOCKER_MANIFEST}; charset=utf-8").media_type == DOCKER_MANIFEST
    assert parse_manifest(b'{"schemaVersion": 2, "manifests": []}').media_type == OCI_INDEX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>log in</html>",
        b"[]",
        b"null",
        b"{}",
        b'{"schemaVersion": 1}',
        b'{"schemaVersion": true}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schemaVersion": 2, "mediaType": 5}',
        b'{"schemaVersion": 2, "manifests": {}}',
        b'{"schemaVersion": 2, "manifests": [5]}',
        changed(manifests=[]),
        changed(config=None),
        changed(layers=None),
        changed(layers={}),
        changed(mediaType="application/vnd.docker.distribution.manifest.v1+prettyjws"),
        changed(config={"mediaType": "x", "digest": "sha256:../../x", "size": 1}),
        changed(config={"mediaType": "x", "digest": A, "size": -1}),
        changed(config={"mediaType": "x", "digest": A, "size": True}),
        changed(config={"mediaType": "x", "digest": A, "size": 1.5}),
        index({**entry(A, "linux/arm64"), "platform": "linux/arm64"}),
        index({**entry(A, "linux/arm64"), "platform": {"os": ["linux"]}}),
        index({**entry(A, "linux/arm64"), "annotations": []}),
    ],
)
def test_malformed_manifests(data: bytes) -> None:
    with pytest.raises(NetworkError):
        parse_manifest(data, OCI_MANIFEST if b"manifests" not in data else "")


def test_a_manifest_served_as_an_index_is_refused() -> None:
    with pytest.raises(NetworkError):
        parse_manifest(image_manifest(), OCI_INDEX)


@pytest.mark.parametrize(
    "config", [b"", b"[]", b"{}", b'{"os": "linux"}', b'{"os": 1, "architecture": []}', b"[" * 99999]
)
def test_a_config_without_a_platform_is_not_arm64(config: bytes) -> None:
    with pytest.raises(PinError):
        check_platform(config, "linux/arm64")


def test_the_config_decides_about_the_platform() -> None:
    check_platform(b'{"os": "linux", "architecture": "arm64", "variant": "v8"}', "linux/arm64")
    with fails(PinError, "platform-mismatch"):
        check_platform(b'{"os": "linux", "architecture": "amd64"}', "linux/arm64")


@pytest.mark.parametrize("variant", ["{}", "[]", "0", "false", '"v9"', '"v"', '"vv8"', '["v8"]'])
def test_a_variant_is_a_string_or_absent(variant: str) -> None:
    check_platform(b'{"os": "linux", "architecture": "arm64", "variant": null}', "linux/arm64")
    with fails(PinError, "platform-mismatch"):
        check_platform(b'{"os": "linux", "architecture": "arm64", "variant": %s}' % variant.encode(), "linux/arm64")


def test_the_last_chunk_comes_after_verification() -> None:
    chunks = [b"one", b"two", b"three"]
    assert list(verified(iter(chunks), digest_of(b"onetwothree"), size=11)) == chunks
    assert list(verified(iter([]), digest_of(b""))) == []
    for digest, size in ((A, None), (A, 11), (digest_of(b"onetwothree"), 10), (digest_of(b"onetwothree"), 12)):
        got = []
        with pytest.raises(PinError):
            for chunk in verified(iter(chunks), digest, size=size):
                got.append(chunk)
        assert len(got) < 3


def test_an_endless_blob_ends() -> None:
    def forever() -> Any:
        while True:
            yield b"x" * 1000

    with pytest.raises(PinError):
        list(verified(forever(), A, size=5000))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([A, B, "", "arm64"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "schemaVersion",
    "mediaType",
    "config",
    "layers",
    "manifests",
    "digest",
    "size",
    "platform",
    "os",
    "annotations",
]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A good document with one thing in it replaced."""
    document = json.loads(draw(st.sampled_from([image_manifest(b"{}", b"l"), index(entry(A, "linux/arm64", a="b"))])))
    node: Any = document
    for _ in range(draw(st.integers(0, 3))):
        inner = [
            value for value in (node.values() if isinstance(node, dict) else node) if isinstance(value, dict | list)
        ]
        node = draw(st.sampled_from(inner)) if inner else node
    if isinstance(node, dict):
        node[draw(st.sampled_from([*KEYS, *node]))] = draw(JSON)
    elif node:
        node[draw(st.integers(0, len(node) - 1))] = draw(JSON)
    return json.dumps(document).encode()


@given(spoiled() | st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()), st.text(max_size=8))
@settings(max_examples=times(500))
def test_any_bytes_are_a_manifest_or_a_builder_error(data: bytes, kind: str) -> None:
    with contextlib.suppress(BuilderError):
        found = parse_manifest(data, kind)
        assert found.digest == digest_of(data)
        if found.is_index:
            choose_platform(found, "linux/arm64")
    with contextlib.suppress(PinError):
        check_platform(data, "linux/arm64")
