"""Assembly: the manifest and config of an image, from a plan, its layers and the base's manifest and config."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import NetworkError
from builder.model.plan import Plan, Variable
from builder.oci.assemble import BaseImage, Image, assemble, environment, parse_base
from builder.oci.manifest import DOCKER_MANIFEST, OCI_MANIFEST
from builder.plan.resolve import resolve
from builder.store.records import LayerRecord
from tests.support.errors import fails
from tests.support.project import LOCKED, Sample, vendor_base

REFERENCE = "registry.example/a/b@sha256:" + "a" * 64
MakePlan = Callable[..., Plan]


def digest(text: str) -> str:
    return Digest.of(text.encode())


CONFIG: dict[str, Any] = {
    "architecture": "arm64",
    "os": "linux",
    "variant": "v8",
    "created": "2020-05-05T05:05:05Z",
    "docker_version": "20.10",
    "container": "abc",
    "config": {
        "Env": ["PATH=/opt/bin:/usr/bin", "LIBS=/usr/lib", "MODE=slow", "EMPTY="],
        "Entrypoint": ["vllm", "serve"],
        "Cmd": ["--help"],
        "WorkingDir": "/workspace",
        "User": "1000",
        "Labels": {"theirs": "kept", "org.opencontainers.image.title": "theirs"},
        "ExposedPorts": {"8000/tcp": {}},
        "Image": "sha256:old",
        "OnBuild": ["RUN evil"],
    },
    "rootfs": {"type": "layers", "diff_ids": [digest("one"), digest("two"), digest("three")]},
    "history": [{"created_by": "theirs"}],
}
DOCKER = "application/vnd.docker.image.rootfs.diff"
OCI = "application/vnd.oci.image.layer.v1"


def manifest(kinds: tuple[str, ...] = (f"{DOCKER}.tar.gzip", f"{DOCKER}.tar", f"{OCI}.tar+zstd")) -> dict[str, Any]:
    layers = [{"mediaType": kind, "digest": digest(f"blob {n}"), "size": n + 1} for n, kind in enumerate(kinds)]
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": digest("config"), "size": 5}
    return {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": layers}


def base(config: dict[str, Any] | None = None, of: dict[str, Any] | None = None) -> BaseImage:
    return parse_base(REFERENCE, json.dumps(of or manifest()).encode(), json.dumps(config or CONFIG).encode())


def records(plan: Plan) -> dict[str, LayerRecord]:
    return {
        layer.id: LayerRecord(digest(f"{layer.id} blob"), 100, digest(f"{layer.id} tar"), 200, f"{OCI}.tar+zstd", 1, "")
        for layer in plan.layers
        if layer.producer != "config"
    }


@pytest.fixture
def vendor_plan(small: Sample, tmp_path: Path) -> MakePlan:
    def made(**more: Any) -> Plan:
        small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/a/b:1", "sha256:" + "a" * 64, **more)
        small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
        project = small.write(tmp_path / "project")
        return resolve(project, project.recipe("tiny"), base="vendor")

    return made


def assembled(plan: Plan, on: BaseImage | None = None) -> tuple[Image, dict[str, Any], dict[str, Any]]:
    image = assemble(plan, records(plan), on)
    return image, json.loads(image.manifest), json.loads(image.config)


def test_a_hermetic_image_is_its_own_layers(make_plan: MakePlan) -> None:
    image, top, config = assembled(make_plan())
    names = ["root", "wheels-alpha", "wheels-other", "compiled", "placed"]
    assert [layer["digest"] for layer in top["layers"]] == [digest(f"{name} blob") for name in names]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [digest(f"{name} tar") for name in names]}
    assert top["config"]["digest"] == image.config_digest == Digest.of(image.config)
    assert image.digest == Digest.of(image.manifest)
    assert (image.size, top["mediaType"], top["schemaVersion"]) == (500, OCI_MANIFEST, 2)
    assert not any(layer.of_base for layer in image.layers)
    assert (config["architecture"], config["os"], config["created"]) == ("arm64", "linux", LOCKED)


def test_a_hermetic_images_configuration(make_plan: MakePlan) -> None:
    settings = assembled(make_plan())[2]["config"]
    assert settings["Env"] == [
        *("PATH=/usr/bin", "LANG=C.UTF-8", "WIDGET=1.0", "LIBS=/opt/widget", "MODE=fast", "LAST=word"),
    ]
    assert settings["Entrypoint"] == ["vllm", "serve"]
    assert settings["Cmd"] == ["someone/tiny", "--port", "8000"]
    assert settings["WorkingDir"] == "/"
    assert settings["Labels"]["org.builder.recipe"] == "tiny"


def test_history_has_a_line_for_each_layer_and_no_other_time(make_plan: MakePlan) -> None:
    _, top, config = assembled(make_plan())
    lines = [(line["created_by"], line.get("empty_layer", False)) for line in config["history"]]
    assert lines[3:] == [
        *(("builder: compiled", False), ("builder: placed", False)),
        *(("builder: settings", True), ("builder: entrypoint", True)),
    ]
    assert len([line for line in lines if not line[1]]) == len(top["layers"])
    assert {line["created"] for line in config["history"]} == {LOCKED}


def test_annotations_are_the_standard_labels(make_plan: MakePlan) -> None:
    assert assembled(make_plan())[1]["annotations"] == {
        "org.opencontainers.image.created": LOCKED,
        "org.opencontainers.image.description": "Tiny",
        "org.opencontainers.image.title": "tiny",
    }


def test_on_a_registry_base_its_layers_come_first_by_descriptor(vendor_plan: MakePlan) -> None:
    image, top, config = assembled(vendor_plan(), base())
    kinds = [layer["mediaType"] for layer in top["layers"]]
    assert kinds == [f"{OCI}.tar+gzip", f"{OCI}.tar", f"{OCI}.tar+zstd", f"{OCI}.tar+zstd", f"{OCI}.tar+zstd"]
    assert [layer["size"] for layer in top["layers"]] == [1, 2, 3, 100, 100]
    assert [layer.of_base for layer in image.layers] == [True, True, True, False, False]
    assert config["rootfs"]["diff_ids"][:3] == CONFIG["rootfs"]["diff_ids"]
    assert top["mediaType"] == OCI_MANIFEST


def test_a_docker_zstd_layer_becomes_an_oci_one(vendor_plan: MakePlan) -> None:
    kinds = (f"{DOCKER}.tar.zstd", f"{OCI}.tar", f"{OCI}.tar+gzip")
    top = assembled(vendor_plan(), base(of=manifest(kinds)))[1]
    assert [layer["mediaType"] for layer in top["layers"]][:3] == [f"{OCI}.tar+zstd", f"{OCI}.tar", f"{OCI}.tar+gzip"]


def test_on_a_registry_base_its_configuration_stays_where_nothing_replaces_it(vendor_plan: MakePlan) -> None:
    config = assembled(vendor_plan(), base())[2]
    settings = config["config"]
    assert settings["Env"] == [
        *("PATH=/opt/bin:/usr/bin", "LIBS=/opt/widget:/usr/lib", "MODE=fast", "EMPTY="),
        *("MAX_JOBS=2", "WIDGET=1.0", "LAST=word"),
    ]
    assert settings["Entrypoint"] == ["vllm", "serve"]
    assert settings["Cmd"] == ["someone/tiny", "--port", "8000"]
    assert (settings["WorkingDir"], settings["User"]) == ("/workspace", "1000")
    assert settings["ExposedPorts"] == {"8000/tcp": {}}
    assert settings["Labels"]["theirs"] == "kept"
    assert settings["Labels"]["org.opencontainers.image.title"] == "tiny"
    assert not {"Image", "OnBuild"} & settings.keys()
    assert config["history"][0] == {"created_by": "theirs"}
    assert (config["variant"], config["created"]) == ("v8", LOCKED)
    assert not {"docker_version", "container"} & config.keys()


def test_on_ngc_the_base_entrypoint_runs_the_command(vendor_plan: MakePlan) -> None:
    passing = copy.deepcopy(CONFIG)
    passing["config"]["Entrypoint"] = ["/opt/nvidia/nvidia_entrypoint.sh"]
    settings = assembled(vendor_plan(family="ngc", entrypoint="pass-through"), base(passing))[2]["config"]
    assert settings["Entrypoint"] == ["/opt/nvidia/nvidia_entrypoint.sh"]
    assert settings["Cmd"] == ["vllm", "serve", "someone/tiny", "--port", "8000"]


def test_the_base_is_named_by_tag_and_digest(vendor_plan: MakePlan) -> None:
    annotations = assembled(vendor_plan(), base())[1]["annotations"]
    assert annotations["org.opencontainers.image.base.name"] == "registry.example/a/b:1"
    assert annotations["org.opencontainers.image.base.digest"] == "sha256:" + "a" * 64


def test_the_same_input_gives_the_same_bytes(vendor_plan: MakePlan) -> None:
    shuffled = json.loads(json.dumps(CONFIG, sort_keys=True))
    assert assembled(vendor_plan(), base())[0].digest == assembled(vendor_plan(), base(shuffled))[0].digest


@pytest.mark.parametrize(
    ("existing", "variables", "result"),
    [
        ([], [Variable("A", "1", prepend=True)], ["A=1"]),
        (["A="], [Variable("A", "1", prepend=True)], ["A=1"]),
        (["A=0"], [Variable("A", "1", prepend=True), Variable("A", "2", prepend=True)], ["A=2:1:0"]),
        (["A=0", "B=x"], [Variable("A", "1"), Variable("A", "2", prepend=True)], ["A=2:1", "B=x"]),
        (["A=0", "B=x"], [Variable("A", "1", prepend=True), Variable("A", "2")], ["A=2", "B=x"]),
        (["A=a=b", "C"], [Variable("B", "x=y")], ["A=a=b", "C=", "B=x=y"]),
    ],
)
def test_environment(existing: list[str], variables: list[Variable], result: list[str]) -> None:
    assert environment(existing, variables) == result


def without(config: dict[str, Any], *path: str, value: Any = None) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(config)
    node = changed
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    "config",
    [
        without(CONFIG, "rootfs"),
        without(CONFIG, "rootfs", "diff_ids"),
        without(CONFIG, "rootfs", "diff_ids", value=["sha256:short"]),
        without(CONFIG, "config", value=7),
        without(CONFIG, "config", "Env", value=[1]),
        without(CONFIG, "config", "Env", value="PATH=/"),
        without(CONFIG, "config", "Labels", value=["a"]),
        without(CONFIG, "history", value="x"),
        [],
    ],
)
def test_malformed_configs(config: Any) -> None:
    with fails(NetworkError, "base-config-malformed") as caught:
        parse_base(REFERENCE, json.dumps(manifest()).encode(), json.dumps(config).encode())
    assert caught.value.where == REFERENCE


def test_a_config_may_leave_out_what_is_optional(vendor_plan: MakePlan) -> None:
    bare = {key: CONFIG[key] for key in ("architecture", "os", "rootfs")}
    for config in (bare, {**bare, "config": None, "history": None}, {**bare, "config": {"Env": None, "Labels": None}}):
        settings = assembled(vendor_plan(), base(config))[2]["config"]
        assert settings["Env"][:2] == ["MAX_JOBS=2", "WIDGET=1.0"]


def test_bases_that_cannot_be_extended(vendor_plan: MakePlan) -> None:
    foreign = manifest((f"{DOCKER}.foreign.tar.gzip", f"{DOCKER}.tar", f"{DOCKER}.tar"))
    elsewhere = manifest()
    elsewhere["layers"][0]["urls"] = ["http://elsewhere.example/blob"]
    for broken in (foreign, elsewhere):
        with fails(NetworkError, "base-layer-foreign"):
            assembled(vendor_plan(), base(of=broken))
    with fails(NetworkError, "base-layers-mismatch"):
        assembled(vendor_plan(), base(of=manifest((f"{DOCKER}.tar",))))
    for data in (b"{", b"{}", b"[]"):
        with pytest.raises(NetworkError):
            parse_base(REFERENCE, data, json.dumps(CONFIG).encode())
