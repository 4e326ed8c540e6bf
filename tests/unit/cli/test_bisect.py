"""`builder bisect`: a bad wheel, and a bad pair of wheels, among forty that changed between two revisions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.support.cli import Cli, CommandResult
from tests.support.mirror import Mirror
from tests.support.nightly import nightly_but
from tests.support.project import Sample
from tests.support.wheels import wheel

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
KILLED = "kill -9 $$"
NAMES = [f"w{number:02}" for number in range(40)]
JUDGE = '''
"""Fails for an image in which all of these wheels are new."""
import io, json, os, sys, tarfile, zstandard
from pathlib import Path

blobs, new = Path(os.environ["BUILDER_STORE"], "blobs"), set()
read = lambda digest: (blobs / digest.replace(":", "/")).read_bytes()
for layer in json.loads(read(os.environ["BUILDER_IMAGE"]))["layers"]:
    unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(read(layer["digest"]))
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        for member in archive:
            if member.name.endswith("/value") and archive.extractfile(member).read() == b"new":
                new.add(member.name.split("/")[-2])
print(*sorted(new), file=open(os.environ["JUDGED"], "a"))
sys.exit(set(sys.argv[1:]) <= new)
'''


class Project:
    """A project in git, with a revision in which forty wheels are old and one in which they are new."""

    def __init__(self, cli: Cli, small: Sample, mirror: Mirror) -> None:
        self.cli, self.small, self.mirror = cli, small, mirror
        self.judged = cli.folder / "judged"
        small.files["recipes/tiny.yaml"]["layers"] = ["placed", "entrypoint"]
        small.files["recipes/bases/tiny.yaml"]["layers"][1:] = [
            {"wheels": {"lock": "tiny-wheels", "group": "first", "only": NAMES[:11]}},
            {"wheels": {"lock": "tiny-wheels", "group": "other"}},
        ]

    def commit(self, tag: str, version: str, requires: Mapping[str, Sequence[str]] | None = None) -> None:
        """One revision, with wheels of this version. requires: those of METADATA, by wheel."""
        needs = requires or {}
        made = {
            name: wheel(name, {f"{name}/value": tag}, version=version, requires=needs.get(name, ())) for name in NAMES
        }
        self.small.add_wheels("tiny-wheels", made, version)
        self.small.serve(self.mirror)
        self.cli.write()
        settings = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", tag], ["tag", tag]):
            subprocess.run(["git", *settings, *words], cwd=self.cli.folder / "project", check=True, capture_output=True)

    def bisect(self, *names: str, options: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> CommandResult:
        self.judged.unlink(missing_ok=True)
        words = ("--recipe", "tiny", "--good", "old", "--bad", "new", *options)
        command = command or (sys.executable, "-c", JUDGE, *names)
        environ = {"PATH": os.environ["PATH"], "JUDGED": str(self.judged)}
        return self.cli("bisect", *words, "--", *command, **environ)

    @property
    def images(self) -> list[set[str]]:
        """The new wheels of each image that was judged."""
        return [set(line.split()) for line in self.judged.read_text("utf-8").splitlines()]


@pytest.fixture
def project(online: Cli, small: Sample, mirror: Mirror) -> Project:
    made = Project(online, small, mirror)
    made.commit("old", "1.0")
    return made


@pytest.mark.parametrize("name", nightly_but(["w00", "w13", "w39"], "w13"))
def test_a_bad_wheel_among_forty_is_found_with_seven_images(project: Project, name: str) -> None:
    project.commit("new", "2.0")
    done = project.bisect(name)
    assert (done.code, done.out) == (0, f"wheel {name} 1.0 → 2.0\n"), done.err
    assert "40 changes in 2 sections; about 7 images to build" in done.err
    assert len(project.images) <= 7


def test_two_wheels_that_only_fail_together_are_both_named(project: Project) -> None:
    project.commit("new", "2.0")
    done = project.bisect("w07", "w31", options=("--json",))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert sorted(change["name"] for (change,) in report["together"]) == ["w07", "w31"]
    assert (report["either"], report["images"]) == ([], len(project.images))
    assert "the image is bad only with all 2 of these" in done.err


def test_every_image_meets_the_requirements_of_its_wheels(project: Project) -> None:
    """w05 needs the new w30, and w11 and w12 fit only together."""
    project.commit("new", "2.0", {"w05": ["w30>=2"], "w11": ["w12==2.0"], "w12": ["w11==2.0"]})
    done = project.bisect("w05")
    assert (done.code, done.out) == (0, "wheel w05 1.0 → 2.0\n"), done.err
    for changed in project.images:
        assert "w05" not in changed or "w30" in changed
        assert ("w11" in changed) == ("w12" in changed)
    assert project.bisect("w11").out == "wheel w11 1.0 → 2.0, wheel w12 1.0 → 2.0\n"


def test_an_image_that_cannot_be_judged_is_left_out(project: Project) -> None:
    project.commit("new", "2.0")
    skips_the_first = '"$@"; status=$?; [ "$(wc -l <"$JUDGED")" = 1 ] && exit 125; exit $status'
    done = project.bisect(command=("/bin/sh", "-c", skips_the_first, "sh", sys.executable, "-c", JUDGE, "w20"))
    assert (done.code, done.out) == (0, "wheel w20 1.0 → 2.0\n"), done.err
    assert "cannot be judged" in done.err


def test_ends_that_are_alike_are_refused(project: Project) -> None:
    project.commit("new", "2.0")
    done = project.bisect(command=("/bin/false",))
    done.failed(2, "bisect-ends-alike")
    assert "old is bad as well" in done.err
    done = project.bisect(command=("/bin/true",))
    done.failed(2, "bisect-ends-alike")
    assert "new is good as well" in done.err


@pytest.mark.parametrize(
    ("words", "id"),
    [
        (("--recipe", "tiny", "--good", "old", "--bad", "old", "--", "/bin/true"), "bisect-nothing-changed"),
        (("--good", "old", "--bad", "new", "--", "/bin/true"), "bisect-recipe-not-given"),
        (("--base", "tiny", "--good", "old", "--bad", "new", "--", "/bin/true"), "bisect-recipe-missing"),
        (("--recipe", "tiny", "--good", "old", "--bad", "new", "--", "/nonexistent"), "bisect-command-failed"),
        (("--recipe", "tiny", "--good", "old", "--bad", "new", "--", "/bin/sh", "-c", KILLED), "bisect-command-failed"),
    ],
)  # fmt: skip
def test_wrong_usage(project: Project, words: tuple[str, ...], id: str) -> None:
    project.commit("new", "2.0")
    project.cli("bisect", *words, PATH=os.environ["PATH"]).failed(2, id)
