"""`builder mirror` and `build --mirror` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import Cli
from tests.support.mirror import Mirror
from tests.support.project import vendor_base

BUILD = ("build", "--recipe", "tiny", "--offline")


def test_mirror_then_build_offline_elsewhere(online: Cli, mirror: Mirror) -> None:
    digest = online("build", "--recipe", "tiny").out.strip()
    made = online("mirror", "away", "--recipe", "tiny", "--json")
    assert made.code == 0
    report = json.loads(made.out)
    [artifact] = report["artifacts"]
    assert (artifact["tag"], artifact["state"]) == ("tiny.tiny", "written")
    assert report["sent"]["files"] == artifact["files"] > 4
    assert report["failed"] == []
    again = online("mirror", "away", "--recipe", "tiny")
    assert again.out == f"{artifact['digest']}  tiny.tiny\n"
    assert "away: 0 files (0 B) written" in again.err
    mirror.pool.clear()
    mirror.wheels.clear()
    for words, more in (((*BUILD, "--mirror", "away"), {}), (BUILD, {"BUILDER_MIRROR": "oci:away"})):
        said = online(*words, BUILDER_STORE=str(online.folder / f"other-{len(more)}"), **more)
        assert (said.code, said.out.strip()) == (0, digest), said.err


def test_a_wrong_byte_in_the_mirror_is_4_and_nothing_is_written(online: Cli) -> None:
    [artifact] = json.loads(online("mirror", "away", "--recipe", "tiny", "--json").out)["artifacts"]
    blobs = online.folder / "away/blobs/sha256"
    manifest = json.loads((blobs / artifact["digest"].removeprefix("sha256:")).read_bytes())
    wheel = next(item for item in manifest["layers"] if item["annotations"]["org.builder.input.name"] == "beta 1.0")
    path = blobs / wheel["digest"].removeprefix("sha256:")
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + b"x")
    store = online.folder / "other"
    said = online(*BUILD, "--mirror", "away", BUILDER_STORE=str(store))
    said.failed(4, "mirror-input-mismatch")
    assert list((store / "images").iterdir()) == list((store / "tmp").iterdir()) == []
    assert not (store / "blobs/sha256" / path.name).exists()


def test_a_profile_or_set_has_a_tag_of_its_own(online: Cli) -> None:
    online.small.files["recipes/tiny.yaml"]["layers"].insert(0, "compiled")
    online("mirror", "away", "--recipe", "tiny")
    online("mirror", "away", "--recipe", "tiny", "--set", "compiled.version=2.0")
    index = json.loads((online.folder / "away/index.json").read_bytes())["manifests"]
    tags = [item["annotations"]["org.opencontainers.image.ref.name"] for item in index]
    assert tags[0] == "tiny.tiny"
    assert len(tags) == 2
    assert tags[1].startswith("tiny.tiny.")


def test_an_input_that_cannot_be_mirrored_is_4_and_the_others_are_mirrored(online: Cli, mirror: Mirror) -> None:
    files = online.small.files
    files["recipes/bases/vendor.yaml"] = vendor_base("registry.lan/x:1", "sha256:" + "a" * 64)
    files["recipes/bases/vendor.yaml"]["pin"]["manifest"] = None
    files["recipes/second.yaml"] = {**files["recipes/tiny.yaml"], "name": "second", "base": "vendor"}
    both = ("mirror", "away", "--recipe", "second", "--recipe", "tiny")
    said = online(*both)
    assert (said.code, said.out.split()[1:]) == (4, ["tiny.tiny"])
    assert "[base-not-pinned]" in said.err
    mirror.wheels["beta"].clear()
    said = online("mirror", "another", *both[2:])
    said.failed(4, "mirror-input-not-locked")
    assert "[input-vanished]" in said.err
    assert "second, tiny.tiny [mirror-input-not-locked]" in said.err


def test_wrong_usage(online: Cli, tmp_path: Path) -> None:
    online("mirror", "away").failed(2, "recipe-not-given")
    online(*BUILD, "--mirror", str(tmp_path)).failed(2, "mirror-not-layout")
    online("mirror", "registry.lan/x:tag", "--recipe", "tiny").failed(2, "mirror-names-image")
