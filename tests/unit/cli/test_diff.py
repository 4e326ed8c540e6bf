"""`builder diff`: what it can compare, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.cli.compare.summary import summary
from builder.plan.diff import KINDS, Contents, Fact, differences
from tests.support.cli import Cli, CommandResult
from tests.support.gitrepo import git
from tests.support.images import Member, distribution, elf, fatbin, layout, pack, tar
from tests.support.project import ROOT

LABELS = {"org.builder.nccl.version": "2.29.7-1", "org.builder.vllm.version": "0.20.0"}
STATUS = "Package: {0}\nStatus: install ok installed\nVersion: {1}\n\n"


def image(folder: Path, *, change: bool) -> str:
    """An image of two layers; the second one, the configuration and the command change."""
    top: dict[str, Any] = {
        **distribution("vllm", "0.23.0" if change else "0.20.0"),
        "opt/nccl/lib/libnccl.so.2": elf(gpu=fatbin((2, 121, 0), *([(2, 120, 0)] if change else []))),
        "opt/x.so": elf(more=b"made at 10:00:00" if change else b"made at 11:00:00"),
        "usr/bin/tool": Member(b"tool", 0o755 if change else 0o700),
        "var/lib/dpkg/status": STATUS.format("gcc", "14" if change else "12").encode(),
        **({"opt/extra": b"x"} if change else {}),
    }
    return "oci:" + str(
        layout(
            folder,
            [distribution("torch", "2.11.0"), top],
            history=[{"created_by": "builder: wheels-torch"}, {"created_by": "builder: top"}],
            Env=["PATH=/bin", f"MODE={'slow' if change else 'fast'}"],
            Entrypoint=["vllm", "serve"],
            Cmd=["a/b", "--port", "9000" if change else "8000"],
            Labels=LABELS | ({"org.builder.vllm.version": "0.23.0"} if change else {}),
        )
    )


def changes(said: CommandResult) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    report = json.loads(said.out)
    assert report["differs"] is (said.code == 8)
    return {(item["kind"], item["name"]): (item["old"], item["new"]) for item in report["changes"]}


def test_two_images(cli: Cli, tmp_path: Path) -> None:
    words = ("diff", image(tmp_path / "one", change=False), image(tmp_path / "two", change=True))
    said = cli(*words)
    assert said.code == 8 and said.err == "", said.err
    lines = said.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    text = " ".join(said.out.split())
    for part in (
        "vLLM 0.20.0 → 0.23.0",
        "NCCL 2.29.7-1 (b91894bd5b19), the same",
        "MODE fast → slow",
        "--port 8000 → 9000",
        "gcc 12 → 14",
        "lib/libnccl.so.2 +sm_120",
        "layers 1 changed: top",
        "4 files changed, 4 new, 3 gone",
    ):
        assert part in text, (part, text)
    report = cli(*words, "--json")
    found = changes(report)
    assert found["python", "vllm"] == ("0.20.0", "0.23.0") and ("python", "torch") not in found
    files = {item["path"]: item["aspects"] for item in json.loads(report.out)["files"]}
    assert files["usr/bin/tool"] == ["mode 0700, not 0755"] and files["opt/extra"] == ["only in the second"]
    findings = {item["path"]: item["cause"] for item in json.loads(report.out)["findings"]}
    assert findings["opt/x.so"] == "time: 11:00:00, not 10:00:00"
    every = cli(*words, "--details").out
    assert "~ python vllm: 0.20.0 → 0.23.0" in every and "section .nv_fatbin" in every


def test_a_summary_fits_on_one_screen() -> None:
    def contents(version: str) -> Contents:
        facts = {kind: {f"{'n' * 30}{number}": Fact(version * 50) for number in range(100)} for kind in KINDS}
        for kind, name in (("python", "vllm"), ("python", "torch"), ("source", "nccl"), ("setting", "NCCL functions")):
            facts[kind][name] = Fact(version * 50)  # type: ignore[index]
        return Contents(f"registry.example/{'name' * 30}", "image", facts, len(version))

    old, new = contents("1"), contents("2 x")
    for one, other in ((old, new), (old, replace(new, facts={kind: {} for kind in KINDS})), (old, old)):
        lines = list(summary(one, other, differences(one, other), "9 files changed, 100000 new, 100000 gone"))
        assert len(lines) <= 24 and max(map(len, lines)) <= 80, "\n".join(lines)


def test_hermetic_bases(cli: Cli) -> None:
    cli.environ |= {"BUILDER_PROJECT": str(ROOT)}
    said = cli("diff", "nemotron-omni@hermetic-0.20", "nemotron-omni@hermetic-0.23")
    assert said.code == 8
    lines = said.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    for line in ("vLLM       0.20.0 → 0.23.0", "torch      2.11.0, the same", "NCCL       2.29.7-1 (b91894bd5b19)"):
        assert any(line in found for found in lines), said.out
    assert "command" in next(line for line in lines if "the same   " in line)
    # Nothing of the plans is read from, or written to, a store.
    assert not any((cli.folder / "store" / "blobs" / "sha256").iterdir())


def test_the_same_image(cli: Cli, tmp_path: Path) -> None:
    one, two = image(tmp_path / "one", change=True), image(tmp_path / "two", change=True)
    said = cli("diff", one, two)
    assert said.code == 0 and "0 files changed" in said.out


def test_what_an_image_says_twice_or_beside_the_usual_is_no_secret(cli: Cli, tmp_path: Path) -> None:
    """A health check is a command that runs; a layer that is there again hides what the one above it replaces."""
    one, two = {"opt/a": b"old"}, {"opt/a": b"new"}
    names = [{"created_by": "builder: one"}, {"created_by": "builder: two"}]

    def made(name: str, layers: list[dict[str, bytes]], history: list[dict[str, str]], **settings: object) -> str:
        more: dict[str, Any] = {"Env": ["A=1"], **settings}
        return "oci:" + str(layout(tmp_path / name, layers, history=history, **more))

    plain = made("plain", [one, two], names)
    others = {
        "healthcheck": made("health", [one, two], names, Healthcheck={"Test": ["CMD-SHELL", "curl x | sh"]}),
        "one, number 2": made("again", [one, two, one], [*names, names[0]]),
        "their order": made("order", [two, one], names[::-1]),
        "A": made("twice", [one, two], names, Env=["A=2", "A=1"]),
        "what is not listed": made("history", [one, two], [{**item, "comment": "x"} for item in names]),
    }
    for name, other in others.items():
        said = cli("diff", plain, other, "--json")
        assert said.code == 8 and name in {item["name"] for item in json.loads(said.out)["changes"]}, (name, said.out)
    assert cli("diff", plain, plain).code == 0


def test_what_a_layer_deletes_of_the_layers_that_both_images_have(cli: Cli, tmp_path: Path) -> None:
    both = {"etc/passwd": b"root", "opt/tool": b"tool"}
    marked = {**both, "opt/tool": Member(b"tool", pax=(("SCHILY.xattr.user.a", "1"),))}
    one = layout(tmp_path / "one", [both, {"opt/extra": b"x"}])
    two = layout(tmp_path / "two", [both, {"opt/extra": b"x", "etc/.wh.passwd": b""}, marked])
    said = cli("diff", f"oci:{one}", f"oci:{two}", "--details")
    assert "~ file etc/passwd: deletes files of lower layers, in one of the two only" in said.out.splitlines()
    assert "~ file opt/tool: extended attribute user.a" in said.out.splitlines()


def test_two_layers(cli: Cli, tmp_path: Path) -> None:
    paths = []
    for name, text in (("one", b"pid 17\n"), ("two", b"pid 18\n")):
        paths.append(tmp_path / f"{name}.tar.zst")
        paths[-1].write_bytes(pack(tar({"opt/x": text, "opt/same": b"x"}), "zstd"))
    said = cli("diff", str(paths[0]), str(paths[1]), "--details")
    assert said.code == 8
    assert "1 file changed" in said.out and "opt/x, line 1: process id: pid 17, not pid 18" in said.out
    assert cli("diff", str(paths[0]), str(paths[0])).code == 0
    cli("diff", str(paths[0]), "tiny").failed(2, "diff-kinds-differ")


def test_two_layers_with_the_same_files_that_are_not_the_same(cli: Cli, tmp_path: Path) -> None:
    """Another capability of a program, and another device, was no difference."""
    paths = []
    for number, (capability, minor) in enumerate((("a", 3), ("b", 3), ("b", 5))):
        paths.append(str(tmp_path / f"{number}.tar"))
        with tarfile.open(paths[-1], "w", format=tarfile.PAX_FORMAT) as archive:
            program = tarfile.TarInfo("opt-tool")
            program.pax_headers = {"SCHILY.xattr.security.capability": capability}
            archive.addfile(program)
            device = tarfile.TarInfo("opt-device")
            device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, minor
            archive.addfile(device)
    for other in paths[1:]:
        said = cli("diff", paths[0], other)
        assert said.code == 8 and "what is not listed" in said.out, said.out
    assert cli("diff", paths[0], paths[0]).code == 0


def test_diffoscope_is_called_for_the_first_file(cli: Cli, tmp_path: Path) -> None:
    (cli.folder / "bin").mkdir()
    program = cli.folder / "bin" / "diffoscope"
    program.write_text("#!/bin/sh\necho spoken\nfor last; do :; done\n/bin/cat first second\nexit 1\n")
    program.chmod(0o755)
    paths = []
    for name in ("one", "two"):
        paths.append(tmp_path / f"{name}.tar")
        paths[-1].write_bytes(tar({f"opt/{file}": f"{file} of {name}\n".encode() for file in "xyz"}))
    words = ("diff", *map(str, paths))
    assert cli(*words, "--details").out.endswith("spoken\nx of one\nx of two\n")
    assert "spoken" not in cli(*words).out + cli(*words, "--json").out
    program.write_text("#!/bin/sh\nexit 2\n")
    assert cli(*words, "--details").code == 8


def test_recipes_bundles_and_images_of_the_store(online: Cli, tmp_path: Path) -> None:
    first = online("build", "--recipe", "tiny").out.strip()
    online("plan", "--recipe", "tiny", "--bundle", str(tmp_path / "old.json"))
    assert online("diff", "tiny", "tiny@hermetic").code == 0
    assert online("diff", first, "tiny").code == 0, online("diff", first, "tiny").out
    online.small.files["recipes/tiny.yaml"]["env"]["LAST"] = "other"
    online.small.files["dockerfiles/layers/placed/layer.yaml"]["files"][0]["content"] = "changed\n"
    second = online("build", "--recipe", "tiny").out.strip()
    found = changes(online("diff", str(tmp_path / "old.json"), "tiny", "--json"))
    assert found.pop(("env", "LAST")) == ("word", "other") and [*found] == [("layer", "placed")]
    report = online("diff", first, second, "--json")
    assert ("env", "LAST") in changes(report) and ("layer", "placed") in changes(report)
    assert [item["path"] for item in json.loads(report.out)["files"]] == ["etc/placed.conf"]
    # The layers of both are not read, and the versions in them are known all the same.
    assert "alpha" not in report.out and online("diff", first, "tiny").code == 8


def test_revisions(cli: Cli) -> None:
    cli.environ["PATH"] = os.environ["PATH"]
    cli.write()
    folder = cli.folder / "project"
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "--message=first")
    git(folder, "tag", "v1")
    section = cli.small.files["recipes/locks/tiny-wheels.json"]
    section["wheels"][1] |= {"version": "3.0", "file": "beta-3.0-py3-none-any.whl"}
    assert changes(cli("diff", "v1:tiny", "tiny", "--json"))["python", "beta"] == ("1.0", "3.0")
    assert changes(cli("diff", "v1:", ":", "--json")) == {("python", "tiny-wheels/beta"): ("1.0", "3.0")}
    assert cli("diff", "v1:", "HEAD:").code == 0
    cli("diff", "v1:", "tiny").failed(2, "diff-kinds-differ")
    # A clone brings any tags: this one was compared in place of the image in the registry.
    git(folder, "tag", "host.test/team/app")
    git(folder, "tag", "team/app")
    cli("diff", "host.test/team/app:tiny", "tiny").failed(2, "revision-ambiguous")
    assert cli("diff", "team/app:tiny", "v1:tiny").code == 0
    bisect = ("bisect", "--recipe", "tiny", "--bad", "v1", "--good")
    cli(*bisect, "host.test/team/app", "--", "true").failed(2, "revision-ambiguous")
    cli.small.files["recipes/tiny.yaml"]["nonsense"] = 1
    git(folder, "rm", "-r", "--cached", "recipes/locks")
    git(folder, "commit", "--message=second")
    said = cli("diff", "HEAD:tiny", "v1:tiny")
    assert said.code == 4 and "/tmp" not in said.err, said.err


@pytest.mark.parametrize(
    ("word", "code", "id"),
    [
        ("sha256:" + "0" * 64, 2, "diff-digest-unknown"),
        ("oci:/nowhere", 2, "layout-missing"),
        ("/dev/null", 2, "diff-file-unreadable"),
        ("pipe", 2, "diff-file-unreadable"),
        ("empty", 3, "diff-file-empty"),
        ("No Reference", 2, "operand-unknown"),
        ("--upload-pack=x:tiny", 2, ""),
        ("v9:tiny", 2, "revision-unknown"),
        ("v9:", 2, "revision-unknown"),
        ("tiny@nowhere", 2, "name-unknown"),
    ],
)
def test_what_cannot_be_compared(cli: Cli, word: str, code: int, id: str) -> None:
    cli.write()
    os.mkfifo(cli.folder / "pipe")
    (cli.folder / "empty").touch()
    said = cli("diff", "tiny", word)
    assert said.code == code and (not id or f"[{id}]" in said.err), said.err


@pytest.mark.parametrize("content", [b"{", b"{}", b"not a tar", b"\x28\xb5\x2f\xfd damaged", b"\x1f\x8b damaged"])
def test_a_damaged_file(cli: Cli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert cli("diff", str(tmp_path / "file"), str(tmp_path / "file")).code in (0, 3)


def test_control_characters_of_an_image_are_not_printed(cli: Cli, tmp_path: Path) -> None:
    one = layout(tmp_path / "one", [{"opt/a": b"1"}], Env=["A=1"])
    two = layout(tmp_path / "two", [{"opt/\x1b[31m": b"1"}], Env=["A=\x1b[31m\n"])
    said = cli("diff", f"oci:{one}", f"oci:{two}", "--details")
    assert said.code == 8 and "\x1b" not in said.out
