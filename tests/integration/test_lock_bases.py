"""Bases against Debian's docker-registry, healthy and faulty, on the command line: errors, exit codes, and that a
failed command writes nothing."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.integration.vendor_project import BASE, BUILD, OTHER, Project, pins
from tests.support.cli import Cli
from tests.support.project import vendor_base
from tests.support.registry import Front, Images, in_front_of, is_installed

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed"),
]


@pytest.fixture
def images(host: str) -> Images:
    return Images(host)


@pytest.fixture
def front(host: str) -> Iterator[Front]:
    with in_front_of(host) as started:
        yield started


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return "team/" + request.node.name.partition("[")[0].replace("_", "-")[:60].rstrip("-")


@pytest.fixture
def project(online: Cli, repository: str, front: Front) -> Project:
    return Project(online, f"{front.host}/{repository}:1")


def test_an_unpinned_multi_platform_image_becomes_pinned_and_can_be_built_on(
    project: Project, images: Images, repository: str
) -> None:
    top, arm = images.multi(repository, "1")
    assert "base vendor is not pinned" in project.refused(4, "plan", "--recipe", "tiny", "--base", "vendor")
    assert "builder lock --update vendor" in project.not_built(4)
    result = project("lock", "--update", "vendor", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out) == {
        "changes": [
            {"kind": "base", "name": "vendor", "item": "index", "old": None, "new": top},
            {"kind": "base", "name": "vendor", "item": "manifest", "old": None, "new": arm},
        ],
        "failed": [],
    }
    written = (project.cli.folder / "project" / BASE).read_text()
    before = project.cli.small.files[BASE]
    kept = before.replace("  confidence: none  # yet\n  evidence:\n    - nobody says\n", "")
    assert [line for line in kept.splitlines() if line not in written.splitlines()] == []
    found = pins(project)
    assert (found["index"], found["manifest"], found["confidence"]) == (top, arm, "high")
    assert found["evidence"][0].startswith("index, arm64 manifest and the platform in its config (high): 127.0.0.1:")
    assert "  confidence: high  # yet\n" in written

    project.cli.keep = True
    plan = json.loads(project("plan", "--recipe", "tiny", "--base", "vendor", "--json").out)
    assert (plan["base"]["manifest"], plan["base"]["index"]) == (arm, top)
    assert project(*BUILD).code == 0
    if shutil.which("skopeo"):
        command = ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{images.host}/{repository}:1"]
        listed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)["manifests"]
        assert [row["digest"] for row in listed if row["platform"]["architecture"] == "arm64"] == [arm]


def test_a_table_of_old_and_new(project: Project, images: Images, repository: str) -> None:
    old_top, old = images.multi(repository, "1", "old")
    project.pin(old, old_top)
    top, new = images.multi(repository, "1", "new")
    result = project("lock", "--update", "vendor")
    assert result.code == 0
    for was, now in ((old_top, top), (old, new)):
        assert f"{was[:23]}…" in result.out and f"{now[:23]}…" in result.out
    assert "vendor is now another image" in result.err


def test_a_tag_that_did_not_move_changes_no_byte(project: Project, images: Images, repository: str) -> None:
    top, arm = images.multi(repository, "1")
    project.pin(arm, top)
    before = project.tree()
    result = project("lock", "--update", "vendor")
    assert (result.code, result.out) == (0, "")
    assert "nothing changed" in result.err
    assert project.tree() == before


@pytest.mark.parametrize("platform", ["linux/arm64", "linux/arm64/v8"])
def test_an_image_without_an_index(project: Project, images: Images, repository: str, platform: str) -> None:
    arm = images.image(repository, "1", platform)
    assert project("lock", "--update", "vendor").code == 0
    assert (pins(project).get("index"), pins(project)["manifest"]) == (None, arm)


def test_a_registry_that_demands_a_token(project: Project, images: Images, repository: str, front: Front) -> None:
    _, arm = images.multi(repository, "1")
    front.token = True
    assert project("lock", "--update", "vendor").code == 0
    assert pins(project)["manifest"] == arm
    project.cli.keep = True
    assert project("lock", "--check", "--remote", "vendor").code == 0
    assert project(*BUILD).code == 0


def test_a_registry_that_refuses_a_token(project: Project, images: Images, repository: str, front: Front) -> None:
    top, arm = images.multi(repository, "1")
    front.token, front.generous = True, False
    assert f"docker login {front.host}" in project.refused(6, "lock", "--update", "vendor")
    project.pin(arm, top)
    assert f"docker login {front.host}" in project.refused(6, "lock", "--check", "--remote", "vendor")
    assert f"docker login {front.host}" in project.not_built(6)


def test_after_too_many_requests_the_registrys_delay_is_kept(
    project: Project, images: Images, repository: str, front: Front
) -> None:
    _, arm = images.multi(repository, "1")
    front.busy, front.retry_after = 1, "2"
    begin = time.monotonic()
    assert project("lock", "--update", "vendor").code == 0
    assert 2 <= time.monotonic() - begin < 40
    assert pins(project)["manifest"] == arm


def test_a_long_delay_is_refused(project: Project, images: Images, repository: str, front: Front) -> None:
    top, arm = images.multi(repository, "1")
    front.busy, front.retry_after = 1000, "3600"
    begin = time.monotonic()
    assert "answered 429" in project.refused(6, "lock", "--update", "vendor")
    project.pin(arm, top)
    assert "answered 429" in project.refused(6, "lock", "--check", "--remote", "vendor")
    assert "answered 429" in project.not_built(6)
    assert time.monotonic() - begin < 60


def test_a_manifest_with_a_wrong_digest(project: Project, images: Images, repository: str, front: Front) -> None:
    top, arm = images.multi(repository, "1")
    wrong = json.dumps({"schemaVersion": 2, "layers": []}).encode()
    front.wrong = {f"/v2/{repository}/manifests/{arm}": wrong}
    err = project.refused(4, "lock", "--update", "vendor")
    project.pin(arm, top)
    for text in (err, project.refused(4, "lock", "--check", "--remote", "vendor")):
        assert f"expected {arm}" in text
        assert "next:  check the registry, and any mirror or proxy before it" in text, "a new pin does not correct that"
    assert f"expected {arm}" in project.not_built(4)
    front.wrong = {f"/v2/{repository}/manifests/{top}": wrong}
    assert "another manifest under this digest" in project.refused(4, "lock", "--check", "--remote", "vendor")


def test_an_amd64_manifest_pinned_as_arm64(project: Project, images: Images, repository: str) -> None:
    top, arm = images.multi(repository, "1")
    amd = images.image(repository, platform="linux/amd64")
    assert amd != arm
    project.pin(amd, top)
    for err in (project.refused(4, "lock", "--check", "--remote", "vendor"), project.not_built(4)):
        assert "not for linux/arm64" in err
        assert "linux/amd64" in err
    assert "builder lock --update vendor" in project.refused(4, "lock", "--check", "--remote", "vendor")
    assert project("lock", "--update", "vendor").code == 0
    assert pins(project)["manifest"] == arm


def test_an_index_that_calls_an_amd64_image_arm64(project: Project, images: Images, repository: str) -> None:
    amd = images.image(repository, platform="linux/amd64")
    images.index(repository, "1", linux_arm64=amd)
    err = project.refused(4, "lock", "--update", "vendor")
    assert "vendor: this image is not for linux/arm64" in err
    assert "correct pin.image in recipes/bases/vendor.yaml" in err


def test_an_image_for_other_platforms_only(project: Project, images: Images, repository: str) -> None:
    amd = images.image(repository, platform="linux/amd64")
    images.index(repository, "1", linux_amd64=amd)
    assert "no linux/arm64 image in this index" in project.refused(4, "lock", "--update", "vendor")


def test_an_index_pinned_as_a_manifest(project: Project, images: Images, repository: str) -> None:
    top, _ = images.multi(repository, "1")
    project.pin(top)
    assert "the digest of an index" in project.refused(4, "lock", "--check", "--remote", "vendor")
    assert "[base-pin-index]" in project.not_built(4)


def test_a_missing_manifest_is_named(project: Project, images: Images, repository: str, front: Front) -> None:
    top, arm = images.multi(repository, "1")
    project.pin(arm, top)
    assert project("lock", "--check", "--remote").code == 0
    assert front.count("HEAD") == 1
    for lost, key in ((top, "index"), (arm, "manifest")):
        front.lost = {f"/v2/{repository}/manifests/{lost}"}
        err = project.refused(4, "lock", "--check", "--remote")
        assert f"vendor: {key}: not in the registry" in err
        assert lost in err
        result = project("lock", "--check", "--remote", "--json")
        (row,) = json.loads(result.out)
        assert (result.code, row["kind"], row["name"], row["code"]) == (4, "base", "vendor", 4)
    front.lost = {f"/v2/{repository}/manifests/1"}
    assert "MANIFEST_UNKNOWN" in project.refused(4, "lock", "--update", "vendor")


def test_a_refused_connection(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        project.image = f"127.0.0.1:{free.getsockname()[1]}/team/app:1"
    project.pin(OTHER)
    assert "vendor: no connection" in project.refused(6, "lock", "--update", "vendor")
    result = project("lock", "--check", "--remote", "--json")
    assert [row["code"] for row in json.loads(result.out)] == [6]


def test_of_several_bases_all_are_written_or_none(
    project: Project, images: Images, repository: str, front: Front
) -> None:
    arm = images.image(repository, "1")
    second = vendor_base(f"{front.host}/{repository}:absent", "", pin={"image": f"{front.host}/{repository}:absent"})
    project.cli.small.files["recipes/bases/second.yaml"] = {**second, "name": "second"}
    err = project.refused(4, "lock", "--update", "vendor", "second")
    assert err.count("second") == 2, "its name, and that of the file to correct"
    result = project("lock", "--update", "--json", "vendor", "second")
    answer = json.loads(result.out)
    assert (result.code, answer["changes"]) == (4, [])
    assert [(row["name"], row["what"].partition(" (")[0]) for row in answer["failed"]] == [
        ("second", "not in the registry")
    ]
    project.cli.small.files["recipes/bases/third.yaml"] = {**second, "name": "third"}
    err = project.refused(4, "lock", "--update", "third", "vendor", "second")
    assert "[lock-problems]" in err
    assert "third, second: not in the registry" in err
    result = project("lock", "--update", "--keep-going", "--json", "second", "vendor")
    assert result.code == 4
    answer = json.loads(result.out)
    assert [row["new"] for row in answer["changes"]] == [arm]
    assert [(row["name"], row["code"]) for row in answer["failed"]] == [("second", 4)]
    assert pins(project)["manifest"] == arm


def test_twenty_bases_at_once_with_200_ms_of_latency(
    project: Project, images: Images, repository: str, front: Front
) -> None:
    wanted = {}
    for number in range(20):
        top, arm = images.multi(f"{repository}/{number % 4}", f"t{number}", str(number))
        wanted[f"many-{number}"] = (top, arm)
        image = f"{front.host}/{repository}/{number % 4}:t{number}"
        base = vendor_base(image, OTHER, name=f"many-{number}")
        project.cli.small.files[f"recipes/bases/many-{number}.yaml"] = {**base, "pin": {"image": image}}
    front.delay, front.token = 0.2, True
    begin = time.monotonic()
    result = project("lock", "--update", "--json", *wanted)
    seconds = time.monotonic() - begin
    assert result.code == 0, result.err
    rows = json.loads(result.out)["changes"]
    assert {name: tuple(row["new"] for row in rows if row["name"] == name) for name in wanted} == wanted
    assert front.count("/manifests/") >= 40
    assert front.count("/token") == 4, "one token for each repository, however many ask"
    assert front.connections <= 32
    assert seconds < 5, f"{seconds:.1f} s"
    print(f"{seconds:.2f} s, {len(front.asked)} requests, {front.connections} connections")

    project.cli.keep = True
    begin = time.monotonic()
    assert project("lock", "--check", "--remote", *wanted).code == 0
    assert time.monotonic() - begin < 5
