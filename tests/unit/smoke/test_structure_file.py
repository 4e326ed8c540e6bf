"""Tests in container-structure-test's format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.errors import InvalidError
from builder.pattern import compiled
from builder.smoke.image.opened import open_image
from builder.smoke.report import Report
from builder.smoke.static.run import run_static
from builder.smoke.structure_file import structure_checks
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.images import Member, folder, layout, link, program
from tests.support.limits import ends

ENV = ["PATH=/usr/bin", "HOME=/root"]


def image(where: Path) -> Path:
    files: dict[str, Member | bytes] = {
        "etc/app.conf": b"mode = fast\nport = 8000\n",
        "usr/bin/app": program(b"#!/bin/sh\n"),
        "usr/bin/su": Member(b"", 0o4755),
        "opt/data": folder(0o750, 7),
        "opt/link": link("../etc/app.conf"),
        "opt/broken": link("gone"),
        "tmp": folder(0o1777),
        "lib": link("usr/bin"),
    }
    settings: dict[str, Any] = {
        "Env": ENV,
        "Labels": {"vendor": "ACME", "date": "2026-01-02"},
        "Entrypoint": ["app"],
        "Cmd": ["--port", "8000"],
        "ExposedPorts": {"8000/tcp": {}, "53/udp": {}},
        "Volumes": {"/data": {}},
        "WorkingDir": "/srv",
        "User": "1000",
    }
    return layout(where / "image", [files], **settings)


def run(where: Path, test: dict[str, Any]) -> Report:
    path = where / "test.yaml"
    path.write_text(yaml.safe_dump({"schemaVersion": "2.0.0", **test}))
    here = image(where)
    return run_static(here, None, structure_checks(path, open_image(here).env), always=())


def test_variables_that_multiply_are_refused(tmp_path: Path) -> None:
    """Twenty variables of thirty characters had a value of more bytes than any disk."""
    variables = [{"key": "A0", "value": "x" * 100}]
    variables += [{"key": f"A{number}", "value": f"$A{number - 1}" * 100} for number in range(1, 20)]
    test = {"commandTests": [{"name": "a", "command": "true"}], "globalEnvVars": variables}

    def work() -> None:
        with fails(InvalidError, "structure-variable-too-long"):
            run(tmp_path, test)

    ends(work, memory=200 << 20)


def existence(path: str, **more: Any) -> dict[str, Any]:
    return {"fileExistenceTests": [{"name": path, "path": path, "shouldExist": True, **more}]}


def content(path: str, **more: Any) -> dict[str, Any]:
    return {"fileContentTests": [{"name": path, "path": path, **more}]}


def metadata(**more: Any) -> dict[str, Any]:
    return {"metadataTest": more}


PASS: list[dict[str, Any]] = [
    existence("/"),
    existence("/etc/app.conf", permissions="-rw-r--r--", uid=0, gid=0),
    existence("/usr/bin/app", isExecutableBy="other"),
    existence("/lib/app", isExecutableBy="any"),
    existence("/usr/bin/su", permissions="-rwsr-xr-x"),
    existence("/usr/bin/su", permissions="urwxr-xr-x"),
    existence("/tmp", permissions="drwxrwxrwt"),
    existence("/tmp", permissions="dtrwxrwxrwx"),
    existence("/opt/data", permissions="drwxr-x---", uid=7),
    existence("/opt/link", permissions="lrwxrwxrwx"),
    existence("/opt/broken", permissions="Lrwxrwxrwx"),
    existence("/nowhere", shouldExist=False),
    content("/etc/app.conf", expectedContents=["mode = f[a-z]+", r"(?m)^port", r"\d{4}\n$"], excludedContents=["slow"]),
    content("/opt/link", expectedContents=[".*fast.*"]),
    metadata(envVars=[{"key": "PATH", "value": "/usr/bin"}], unboundEnvVars=[{"key": "LD_PRELOAD"}]),
    metadata(envVars=[{"key": "PATH", "value": "^/usr", "isRegex": True}]),
    metadata(labels=[{"key": "vendor", "value": "ACME"}, {"key": "date", "value": r"^\d{4}-", "isRegex": True}]),
    metadata(entrypoint=["app"], cmd=["--port", "8000"], workdir="/srv", user="1000"),
    metadata(exposedPorts=["8000", "53/udp"], unexposedPorts=["53", 22]),
    metadata(volumes=["/data"], unmountedVolumes=["/models"]),
]


@pytest.mark.parametrize("test", PASS, ids=str)
def test_passes(tmp_path: Path, test: dict[str, Any]) -> None:
    report = run(tmp_path, test)
    assert [(result.status, result.message) for result in report.results if result.status != "pass"] == []
    assert report.count("pass") == 1


FAIL: list[tuple[dict[str, Any], str]] = [
    (existence("/nowhere"), "/nowhere is not in the image"),
    (existence("/etc/app.conf", shouldExist=False), "/etc/app.conf exists"),
    (existence("/opt/broken", shouldExist=False), "/opt/broken exists"),
    (existence("/etc/app.conf", permissions="-rwxr-xr-x"), "permissions -rw-r--r--, not -rwxr-xr-x"),
    (existence("/opt/data", uid=0), "belongs to user 7, not 0"),
    (existence("/opt/data", gid=7), "belongs to group 0, not 7"),
    (existence("/etc/app.conf", isExecutableBy="owner"), "cannot be executed by owner"),
    (content("/nowhere", expectedContents=["x"]), "/nowhere is not in the image"),
    (content("/tmp", expectedContents=["x"]), "it is a dir"),
    (content("/etc/app.conf", expectedContents=["slow"]), "does not contain 'slow'"),
    (content("/etc/app.conf", excludedContents=["fast"]), "contains 'fast'"),
    # `$` is the end of the text, not of its last line.
    (content("/etc/app.conf", expectedContents=["8000$"]), "does not contain"),
    (metadata(envVars=[{"key": "PATH", "value": "/bin"}]), "the variable PATH is '/usr/bin', not '/bin'"),
    (metadata(envVars=[{"key": "NONE", "value": ""}]), "the variable NONE is not set"),
    (metadata(unboundEnvVars=[{"key": "HOME"}]), "the variable HOME is set"),
    (metadata(labels=[{"key": "date", "value": "^x", "isRegex": True}]), "does not match '^x'"),
    (metadata(entrypoint=[]), "Entrypoint is ['app'], not []"),
    (metadata(cmd=["--port"]), "Cmd is ['--port', '8000']"),
    (metadata(exposedPorts=["22"]), "port 22 is not exposed"),
    (metadata(unexposedPorts=["8000"]), "port 8000 is exposed"),
    (metadata(volumes=["/models"]), "/models is not a volume"),
    (metadata(unmountedVolumes=["/data"]), "/data is a volume"),
    (metadata(workdir="/"), "WorkingDir is '/srv', not '/'"),
    (metadata(user="root"), "User is '1000', not 'root'"),
]


@pytest.mark.parametrize(("test", "expected"), FAIL, ids=str)
def test_fails(tmp_path: Path, test: dict[str, Any], expected: str) -> None:
    (result,) = run(tmp_path, test).results
    assert (result.status, expected in result.message) == ("fail", True), result.message


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"fileTests": []}, "unknown key 'fileTests'"),
    ({"fileExistenceTests": [{"name": "x", "path": "/x", "mode": "0644"}]}, "unknown key 'mode'"),
    ({"fileExistenceTests": [{"name": "x"}]}, "path"),
    ({"fileExistenceTests": [{"name": "x", "path": "/x", "isExecutableBy": "root"}]}, "isExecutableBy"),
    ({"fileExistenceTests": [{"name": "x", "path": "/x", "uid": "0"}]}, "uid"),
    ({"schemaVersion": "1.0.0", **existence("/")}, "schemaVersion"),
    ({}, "[structure-empty]"),
    ({"licenseTests": [{"debian": True}]}, "licenseTests [structure-unsupported]"),
    (
        {"commandTests": [{"name": "x", "command": "ls"}], "containerRunOptions": {"privileged": True}},
        "privileged [structure-unsupported]",
    ),
    (content("/x", expectedContents=["(unclosed"]), "[structure-pattern-wrong]"),
    (metadata(labels=[{"key": "a", "value": "[", "isRegex": True}]), "[structure-pattern-wrong]"),
]


@pytest.mark.parametrize(("test", "expected"), REFUSED, ids=str)
def test_other_formats_and_unsupported_features_are_errors(tmp_path: Path, test: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidError) as caught:
        run(tmp_path, test)
    assert expected in str(caught.value)
    assert "test.yaml" in str(caught.value)


def test_commands_become_checks_of_the_cpu_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSIDE", "from outside")
    (tmp_path / "more.env").write_text("# comment\nFILE=a=b\n")
    test = {
        "schemaVersion": "2.0.0",
        "globalEnvVars": [{"key": "BIN", "value": "/opt/bin:${PATH}"}],
        "containerRunOptions": {"user": "1000", "envVars": ["OUTSIDE", "NOT_SET"], "envFile": "more.env"},
        "commandTests": [
            {"name": "Say it!", "command": "echo", "args": ["a b"], "envVars": [{"key": "X", "value": "$BIN/x"}]},
            {
                "name": "say it",
                "command": "run",
                "setup": [["mkdir", "/a b"]],
                "teardown": [["rm", "x"]],
                "exitCode": 3,
            },
        ],
    }
    (tmp_path / "t.json").write_text(yaml.safe_dump(test))
    first, second = structure_checks(tmp_path / "t.json", {"PATH": "/usr/bin"})
    assert (first.id, second.id, first.tier) == ("structure-say-it", "structure-say-it-2", "cpu")
    assert first.args["argv"] == ["echo", "a b"]
    assert first.args["user"] == "1000"
    assert first.args["env"] == {
        "FILE": "a=b",
        "OUTSIDE": "from outside",
        "BIN": "/opt/bin:/usr/bin",
        "X": "/opt/bin:/usr/bin/x",
    }
    assert second.args["argv"] == [
        "sh",
        "-c",
        "( mkdir '/a b' ) >/dev/null 2>&1 || exit 125\n\"$@\"\nstatus=$?\n( rm x ) >/dev/null 2>&1\nexit $status",
        "sh",
        "run",
    ]
    assert second.args["status"] == 3


@pytest.mark.parametrize(
    ("text", "matches", "not_matches"),
    [
        ("^[[:digit:]]+$", "123", "123\n"),
        (r"a\z", "ba", "ba\n"),
        (r"cost \$5", "cost $5", "cost 5"),
        ("(?m)^b$", "a\nb\nc", "a\nbc"),
        ("a|b$", "xb", "xc"),
    ],
)
def test_patterns_have_the_syntax_of_re2(text: str, matches: str, not_matches: str) -> None:
    assert compiled(text).search(matches)
    assert not compiled(text).search(not_matches)


@pytest.mark.parametrize("kind", ["pipe", "bytes"])
def test_a_file_of_variables_that_is_no_text(tmp_path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(tmp_path / "env")
    else:
        (tmp_path / "env").write_bytes(b"A=\xff\n")
    test = {"name": "a", "command": "true"}
    options = {"envFile": "env"}
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({"schemaVersion": "2.0.0", "commandTests": [test], "containerRunOptions": options}))
    with limit(), fails(InvalidError, "structure-env-file-missing"):
        structure_checks(path, {})
