"""A configuration, an index or a manifest with wrong types is an error that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import InvalidError
from builder.smoke.image.opened import open_image, read_config
from tests.support.errors import fails
from tests.support.images import layout

PLATFORM = {"architecture": "arm64", "os": "linux"}
DIGEST = Digest("sha256:" + "a" * 64)

CONFIGS: dict[str, Any] = {
    "a list": [],
    "config is a list": {**PLATFORM, "config": []},
    "variables are numbers": {**PLATFORM, "config": {"Env": [1, None, {}]}},
    "variables are one text": {**PLATFORM, "config": {"Env": "PATH=x"}},
    "labels are a list": {**PLATFORM, "config": {"Labels": [1]}},
    "labels are numbers": {**PLATFORM, "config": {"Labels": {"a": 1}}},
    "command is a number": {**PLATFORM, "config": {"Cmd": 5}},
    "entrypoint is numbers": {**PLATFORM, "config": {"Entrypoint": [1, {}]}},
    "volumes are a number": {**PLATFORM, "config": {"Volumes": 5}},
    "ports are a list": {**PLATFORM, "config": {"ExposedPorts": [1]}},
    "history is a text": {**PLATFORM, "history": "abc"},
    "history is numbers": {**PLATFORM, "history": [1]},
    "diff_ids are a number": {**PLATFORM, "rootfs": {"diff_ids": 5}},
    "diff_ids are none": {**PLATFORM, "rootfs": {"diff_ids": ["x"]}},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_configuration_with_wrong_types_is_invalid(config: Any) -> None:
    with fails(InvalidError, "config-invalid"):
        read_config(json.dumps(config).encode(), "x")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b'{"a":NaN}', b'{"a":1,"a":2}'])
def test_a_configuration_that_is_not_json_is_invalid(data: bytes) -> None:
    with fails(InvalidError, "config-not-json"):
        read_config(data, "x")


@pytest.mark.parametrize(
    "config",
    [
        {"config": {}, "Config": {"Entrypoint": ["/bin/evil"]}},
        {"config": {"Cmd": ["good"], "cmd": ["evil"]}},
        {"rootf\u017f": {"diff_ids": []}},
        {"history": [{"Created_By": "builder: vllm"}]},
    ],
)
def test_names_that_go_takes_for_others_are_invalid(config: dict[str, Any]) -> None:
    # Go's parser ignores case and takes the last of such members: docker would run another program.
    with fails(InvalidError, "config-not-json"):
        read_config(json.dumps({**PLATFORM, **config}).encode(), "x")


def test_names_of_labels_have_their_case() -> None:
    names = {"config": {"Labels": {"Cmd": "a", "cmd": "b"}, "Volumes": {"/CMD": {}, "/cmd": {}}}}
    assert read_config(json.dumps({**PLATFORM, **names}).encode(), "x")["config"] == names["config"]


def test_optional_members_of_a_configuration_may_be_absent() -> None:
    config: dict[str, Any] = {**PLATFORM, "config": None, "history": None}
    assert read_config(json.dumps(config).encode(), "x") == config


INDEXES: dict[str, Any] = {
    "a list": [],
    "null": None,
    "no digest": {"schemaVersion": 2, "manifests": [{}]},
    "a number": {"schemaVersion": 2, "manifests": 5},
    "a platform that is a text": {
        "schemaVersion": 2,
        "manifests": [{"mediaType": "x", "digest": DIGEST, "size": 1, "platform": "x"}] * 2,
    },
    "no version": {"manifests": []},
    "a path": {"schemaVersion": 2, "manifests": [{"mediaType": "x", "digest": "sha256:../../x", "size": 1}]},
    "an escape": {"schemaVersion": 2, "manifests": [{"mediaType": "x", "digest": "\x1b[31m", "size": 1}]},
    "two things": {"schemaVersion": 2, "manifests": [], "layers": []},
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_an_index_with_wrong_types_is_invalid(tmp_path: Path, index: Any) -> None:
    layout(tmp_path, [{"a": b""}])
    (tmp_path / "index.json").write_text(json.dumps(index))
    with fails(InvalidError, "manifest-invalid"):
        open_image(tmp_path)


MANIFESTS: dict[str, Any] = {
    "size below zero": {"size": -5},
    "size as text": {"size": "abc"},
    "no size": {"size": None},
    "size without end": {"size": 10**30},
    "no digest": {"digest": None},
    "digest of another kind": {"digest": "md5:abc"},
}


@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS)
def test_a_wrong_layer_descriptor_is_invalid(tmp_path: Path, change: dict[str, Any]) -> None:
    layout(tmp_path, [{"a": b""}])
    image = open_image(tmp_path)
    manifest = {**image.manifest, "layers": [{**image.manifest["layers"][0], **change}]}
    data = json.dumps(manifest).encode()
    digest = Digest.of(data)
    (tmp_path / "blobs/sha256" / digest[7:]).write_bytes(data)
    with fails(InvalidError, "manifest-invalid"):
        open_image(tmp_path, digest)
