"""`builder add` in a project of one's own: layer, request and lock beside the sections of the base."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.errors import PinError
from builder.lock.freshness import check
from builder.lock.requesting import with_request
from builder.lock.seal import sealed, versions_digest
from builder.model.lock import Deb, DebLock, DebRequest, WheelRequest
from builder.model.lockfile import load_section, write_section
from builder.model.yamlfile import parse_yaml
from tests.support.cli import Cli
from tests.support.debs import deb
from tests.support.mirror import Mirror
from tests.support.project import LOCKED, Sample
from tests.support.wheels import wheel, wheel_name

DEB = Deb(package="aa", version="1", architecture="all", path="pool/a.deb", sha256="a" * 64, size=1)
REQUEST = WheelRequest(requirements=("a>=1",), without=("base",), python="3.13", platform="aarch64-manylinux_2_39")
ADD = ("add", "wheels", "extra", "delta>=1", "--base", "tiny")


@pytest.fixture
def own(online: Cli, mirror: Mirror) -> Cli:
    """A folder of one's own above a project whose base has the wheels alpha, beta and gamma; delta needs alpha."""
    online.small.files["recipes/bases/tiny.yaml"]["vllm"] = "0.20.0"
    data = wheel("delta", {"delta/__init__.py": ""}, requires=["alpha"])
    mirror.wheels["delta"] = {wheel_name("delta", "1.0"): data}
    online.keep = True
    return online


def test_a_layer_of_wheels_takes_four_commands(own: Cli) -> None:
    added = own(*ADD)
    assert added.code == 0, added.err
    project = own.folder / "project"
    assert added.out.split() == [
        str(project / "dockerfiles/layers/extra/layer.yaml"),
        str(project / "recipes/locks/requests.yaml"),
        str(project / "recipes/locks/extra-0.20.0-cp313.json"),
    ]
    section = json.loads((project / "recipes/locks/extra-0.20.0-cp313.json").read_text())
    assert [item["name"] for item in section["wheels"]] == ["delta"], "alpha is in the base"
    here = own.folder
    own_recipe = project / "recipes/mine.yaml"
    assert own("new", "recipe", "mine", "--extends", "tiny", "--base", "tiny", "--layer", "extra").code == 0
    (here / "recipes/mine.yaml").rename(own_recipe)
    assert own("lint", "mine").code == 0
    built = own("build", "--recipe", "mine")
    assert built.code == 0, built.err
    assert own("test", "--recipe", "mine", "--only", "extra-delta").code == 0
    assert own("lock", "--check", "extra-0.20.0-cp313").code == 0
    assert own(*ADD).code == 0, "adding again changes nothing"


def test_a_layer_of_wheels_beside_another_of_the_project(own: Cli, mirror: Mirror) -> None:
    data = wheel("epsilon", {"epsilon/__init__.py": ""}, requires=["delta", "alpha"])
    mirror.wheels["epsilon"] = {wheel_name("epsilon", "1.0"): data}
    assert own(*ADD).code == 0
    added = own("add", "wheels", "more", "epsilon>=1", "--base", "tiny", "--beside", "extra")
    assert added.code == 0, added.err
    section = json.loads((own.folder / "project/recipes/locks/more-0.20.0-cp313.json").read_text())
    assert [item["name"] for item in section["wheels"]] == ["epsilon"]
    assert own("lock", "--check", "extra-0.20.0-cp313", "more-0.20.0-cp313").code == 0


def test_a_request_that_cannot_be_resolved_leaves_no_file(own: Cli) -> None:
    said = own("add", "wheels", "extra", "nowhere>=1", "--base", "hermetic")
    assert said.code in (4, 6)
    project = own.folder / "project"
    assert not (project / "dockerfiles/layers/extra/layer.yaml").exists()
    assert not (project / "recipes/locks/requests.yaml").exists()
    assert not (project / "dockerfiles/layers/extra").exists()


def test_a_request_that_another_command_writes_meanwhile_stays(own: Cli) -> None:
    """Two at once each read the requests, and the second to write them forgot those of the first."""
    assert own("list").code == 0
    requests = own.folder / "project/recipes/locks/requests.yaml"
    other = os.open(own.folder / "project", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)

    def end() -> None:
        requests.write_text("x-other: 1\n")
        os.close(other)

    timer = threading.Timer(1, end)
    timer.start()
    done = own(*ADD)
    timer.join()
    assert done.code == 0 and "waits for another command" in done.err
    assert {"x-other", "wheels"} <= parse_yaml(requests.read_text(), "").keys()


def test_an_edit_while_a_request_cannot_be_resolved_stays(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = own.folder / "project/recipes/locks/requests.yaml"

    def edit(*_: object) -> None:
        requests.write_text("x-mine: 1\n")
        raise PinError("nothing fits", id="lock-wheels-unresolvable")

    monkeypatch.setattr("builder.cli.recipe.add.refresh", edit)
    assert own(*ADD).code == 4
    assert requests.read_text() == "x-mine: 1\n"
    assert not (own.folder / "project/dockerfiles/layers/extra").exists()


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("add", "debs", "extra", "X"), "package-name-invalid"),
    (("add", "debs", "extra", "./x.deb"), "package-name-invalid"),
    (("add", "debs", "extra", "x>1"), "package-name-invalid"),
    (("add", "debs", "extra", "jq", "--base", "tiny", "--beside", "placed"), "add-beside-without-wheels"),
    (("add", "debs", "extra", "jq", "--base", "ngc-26.04"), "base-debs-unknown"),
    (("add", "debs", "extra", "jq", "tool", "--base", "tiny"), "add-deb-there"),
    (("add", "wheels", "Extra", "x"), "name-invalid"),
    (("add", "wheels", "extra", "x >> 1"), "requirement-invalid"),
    (("add", "wheels", "extra", "./file.whl"), "requirement-invalid"),
    (("add", "wheels", "extra", "x", "--base", "hermetik"), "name-unknown"),
    (("add", "wheels", "extra", "x", "--base", "hermetic", "--beside", "nothing"), "name-unknown"),
    (("add", "wheels", "extra", "x", "--base", "hermetic", "--beside", "placed"), "add-beside-without-wheels"),
    (("add", "wheels", "placed", "x", "--base", "hermetic"), "add-layer-exists"),
    (("add", "wheels", "nccl", "x", "--base", "hermetic"), "add-layer-bundled"),
    (("add", "wheels", "extra", "x", "--base", "ngc-26.04"), "base-wheels-unknown"),
    (("new", "recipe", "mine", "--layer", "placed"), "new-layer-without-extends"),
]


@pytest.mark.parametrize(("words", "id"), WRONG, ids=[" ".join(words[1:]) for words, _ in WRONG])
def test_wrong_words_are_2(own: Cli, words: tuple[str, ...], id: str) -> None:
    own(*words).failed(2, id)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a note\n",
        "debs: {}\n",
        "wheels:\n  other:\n    requirements: [b]  # why\n    python: '3.13'\n    platform: x\n",
        "wheels:\n    mine:\n        requirements: [old]\n        python: '3.12'\n        platform: x\nsources: {}\n",
    ],
)
def test_a_request_is_added_and_the_rest_of_the_text_stays(text: str) -> None:
    added = with_request(text, "mine", REQUEST)
    data = parse_yaml(added, "requests.yaml")
    assert WheelRequest.model_validate(data["wheels"].pop("mine")) == REQUEST
    before = parse_yaml(text, "requests.yaml") or {}
    (before.get("wheels") or {}).pop("mine", None)
    assert {key: value for key, value in data.items() if value} == {
        key: value for key, value in before.items() if value
    }
    assert all(line in added for line in text.splitlines() if "#" in line)
    assert with_request(added, "mine", REQUEST) == added


def test_sections_of_the_package_may_be_left_out(cli: Cli) -> None:
    folder: Path = cli.folder / "own"
    (folder / "recipes/locks").mkdir(parents=True)
    request = 'wheels: {mine: {requirements: [x], without: [%s], python: "3.13", platform: aarch64-manylinux_2_39}}\n'
    (folder / "recipes/locks/requests.yaml").write_text(request % "vllm-0.20.0-cp313")
    said = cli("lock", "--check", "mine", BUILDER_PROJECT=str(folder))
    said.failed(4, "lock-problems")
    assert "is not locked yet" in said.err
    (folder / "recipes/locks/requests.yaml").write_text(request % "vllm-0.20.0-cp999")
    cli("lock", "--check", "mine", BUILDER_PROJECT=str(folder)).failed(3, "request-without-unknown")


def test_a_request_for_packages_has_a_block_of_its_own() -> None:
    asked = DebRequest(suite="trixie", architecture="arm64", packages=("jq>=1.7",), without=("root",))
    added = with_request(with_request("# a note\n", "mine", REQUEST), "tools", asked)
    data = parse_yaml(added, "requests.yaml")
    assert DebRequest.model_validate(data["debs"]["tools"]) == asked
    assert set(data) == {"wheels", "debs"}


PACKAGE = deb("jq", {"usr/bin/jq": "jq\n"})


@pytest.fixture
def packaged(online: Cli, mirror: Mirror) -> Cli:
    """A project whose recipe has a layer of the package jq over the root of its base."""
    small = online.small
    small.add_debs("tools", {"jq": PACKAGE})
    small.files["recipes/locks/tools.json"]["request"]["without"] = ["tiny-root"]
    small.files["dockerfiles/layers/tools/layer.yaml"] = {
        "name": "tools",
        "title": "jq",
        "producer": "files",
        "families": ["hermetic"],
        "inputs": {"debs": "tools"},
        "checks": [{"id": "tools-jq", "tier": "static", "kind": "file", "args": {"path": "/var/lib/dpkg/status.d/jq"}}],
    }
    small.files["recipes/tiny.yaml"]["layers"] = ["tools", "entrypoint"]
    small.serve(mirror)
    return online


def test_packages_over_a_root_are_listed_and_checked(packaged: Cli) -> None:
    built = packaged("build", "--recipe", "tiny")
    assert built.code == 0, built.err
    assert packaged("test", "--recipe", "tiny", "--only", "tools-jq", "--only", "image-places").code == 0
    parts = json.loads(packaged("sbom", "--recipe", "tiny").out)["components"]
    assert [part["purl"] for part in parts if part["name"] in ("jq", "tool")] == [
        "pkg:deb/debian/jq@1?arch=all",
        "pkg:deb/debian/tool@1?arch=all",
    ]


def packages(small: Sample, name: str, *names: str, without: list[str]) -> None:
    """A layer of packages."""
    small.add_debs(name, {each: deb(each, {f"usr/bin/{each}": each}) for each in names})
    small.files[f"recipes/locks/{name}.json"]["request"]["without"] = without
    layer = small.files["dockerfiles/layers/tools/layer.yaml"]
    small.files[f"dockerfiles/layers/{name}/layer.yaml"] = {
        **layer,
        "name": name,
        "inputs": {"debs": name},
        "checks": [],
    }


def test_two_layers_that_bring_one_package_are_refused_with_the_command_to_repeat(
    packaged: Cli, mirror: Mirror
) -> None:
    small = packaged.small
    packages(small, "more", "jq", "tree", without=["tiny-root"])
    small.files["recipes/tiny.yaml"]["layers"] = ["tools", "more", "entrypoint"]
    said = packaged("plan", "tiny")
    said.failed(4, "debs-twice")
    assert "layers more and tools both bring jq" in said.err
    assert "next:  builder add debs more jq tree --base tiny --beside tools\n" in said.err
    assert "[debs-twice]" in packaged("lint", "tiny").out
    packages(small, "more", "tree", without=["tiny-root", "tools"])
    small.serve(mirror)
    assert packaged("build", "tiny").code == 0
    small.files["recipes/tiny.yaml"]["layers"] = ["more", "entrypoint"]
    packaged("plan", "tiny").failed(4, "debs-of-another-root")


def test_packages_that_another_layer_brings_are_left_out(packaged: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []

    def resolve(request: DebRequest, roots: object, present: Sequence[Deb]) -> tuple[Deb, ...]:
        asked.append({each.package for each in present})
        return (DEB.model_copy(update={"package": "tree"}),)

    monkeypatch.setattr("builder.lock.sections.resolve_debs", resolve)
    packaged.keep = True
    more = ("add", "debs", "more", "tree", "--base", "tiny", "--beside", "tools")
    added = packaged(*more)
    assert added.code == 0, added.err
    assert asked == [{"base-passwd", "tool", "jq"}]
    section = json.loads((packaged.folder / "project/recipes/locks/more-tiny-root.json").read_text())
    assert section["request"]["without"] == ["tiny-root", "tools"]
    packaged("add", "debs", "more", "jq", *more[4:]).failed(2, "add-deb-there")


def test_packages_of_another_root_are_refused(packaged: Cli) -> None:
    packaged.small.files["recipes/locks/tools.json"]["request"]["without"] = ["toolchain-arm64"]
    packaged("plan", "--recipe", "tiny").failed(4, "debs-of-another-root")


def test_the_lock_says_when_the_root_has_changed(tmp_path: Path) -> None:
    asked = DebRequest(suite="trixie", architecture="arm64", packages=("aa",))
    root = DebLock(name="root", locked=LOCKED, request=asked, packages=(DEB,))
    over = asked.model_copy(update={"packages": ("jq",), "without": ("root",)})
    beside = {"root": versions_digest(root)}
    tools = DebLock(name="tools", locked=LOCKED, request=over, beside=beside, packages=(DEB,))
    requests = with_request(with_request("", "root", asked), "tools", over)
    (tmp_path / "requests.yaml").write_text(requests)
    for section in (root, tools):
        write_section(tmp_path / f"{section.name}.json", sealed(section))
    assert load_section(tmp_path / "tools.json") == sealed(tools)
    assert [each.what for each in check(tmp_path)] == ["holds aa, which root has too"]
    newer = root.model_copy(update={"packages": (DEB.model_copy(update={"version": "2"}),)})
    write_section(tmp_path / "root.json", sealed(newer))
    assert [each.what for each in check(tmp_path)] == ["was resolved beside another version of root"]
