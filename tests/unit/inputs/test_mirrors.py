"""Parsing pip, uv and apt configuration; the locations of inputs made from lock entries."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from builder.inputs import hosts, mirrors
from builder.model.inputs import Location, from_deb, from_source, from_wheel
from builder.model.lock import Deb, Source, SourceMirror, Wheel

HASH = "a" * 64


# --- package indexes ---


def test_no_configuration() -> None:
    assert mirrors.wheel_indexes({}, [], []) == ()


def test_uv_comes_before_pip_and_the_environment_before_files() -> None:
    environ = {"PIP_INDEX_URL": "https://pip.test/simple", "UV_INDEX_URL": "https://uv.test/simple"}
    pip = ["[global]\nindex-url = https://file.test/simple\n"]
    assert mirrors.wheel_indexes(environ, [], pip) == ("https://uv.test/simple",)
    assert mirrors.wheel_indexes({}, [], pip) == ("https://file.test/simple",)
    assert mirrors.wheel_indexes({}, ['index-url = "https://uv-file.test/"'], pip) == ("https://uv-file.test/",)


def test_extra_indexes_follow_and_do_not_replace_the_default() -> None:
    environ = {"UV_INDEX": "corp=https://corp.test/simple", "PIP_EXTRA_INDEX_URL": "https://a.test/ file:///opt/x"}
    assert mirrors.wheel_indexes(environ, [], []) == ("", "https://corp.test/simple", "https://a.test/")


def test_uv_tables() -> None:
    text = '[[index]]\nurl = "https://extra.test/"\n[[index]]\nurl = "https://main.test/"\ndefault = true\n'
    assert mirrors.wheel_indexes({}, [text], []) == ("https://main.test/", "https://extra.test/")


@pytest.mark.parametrize(
    "text",
    [
        "[global",
        "index-url = 3\n[[",
        "[[index]]\nurl = 1\n",
        "index = 5",
        "a = " + "[" * 5000,
        "a = " + "1" * 5000,
        "index-url = 'http://['",
    ],
)
def test_a_damaged_configuration_is_ignored(text: str) -> None:
    assert mirrors.wheel_indexes({}, [text], [text]) == ()


def test_this_machine_always_has_a_default_index(tmp_path: Path) -> None:
    first = hosts.wheel_indexes({"XDG_CONFIG_HOME": str(tmp_path)})[0]
    assert first.startswith("http")
    assert hosts.wheel_indexes({"UV_DEFAULT_INDEX": "https://mine.test/"})[0] == "https://mine.test/"


def test_redacting_removes_credentials_and_tokens() -> None:
    assert mirrors.redact("https://me:pw@host.test:8/simple/?token=1#x") == "https://host.test:8/simple/"
    assert "pw" not in mirrors.redact("https://me:pw@[host.test")


# --- Debian archives ---


def test_roots_of_apts_own_list_main_archive_first() -> None:
    text = (
        "Debian|Debian-Security|http://sec.test/debian-security/\n"
        "Debian|Debian|http://main.test/debian/\n"
        "Debian|Debian|http://main.test/debian/\n"
        "Ubuntu|Ubuntu|http://ubuntu.test/ubuntu/\n"
        "||http://unknown.test/\n"
        "Debian|Debian|file:/media/cd/\n"
    )
    assert mirrors.roots_of_targets(text) == ("http://main.test/debian", "http://sec.test/debian-security")


SOURCES = """\
# a comment
Types: deb deb-src
URIs: http://one.test/debian http://two.test/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://off.test/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://src.test/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://vendor.test/
Suites: nodistro
Components: main
"""


def test_roots_of_deb822_sources() -> None:
    assert mirrors.roots_of_sources(SOURCES) == ("http://one.test/debian", "http://two.test/debian")


def test_roots_of_one_line_sources() -> None:
    text = (
        "deb [arch=arm64 signed-by=/k.gpg] http://one.test/debian/ trixie main # comment\n"
        "# deb http://off.test/debian trixie main\n"
        "deb-src http://src.test/debian trixie main\n"
        "deb http://two.test/debian bookworm/updates main\n"
        "deb http://docker.test/linux/debian bookworm stable\n"
        "deb http://pgdg.test/apt bookworm-pgdg main\n"
        "deb http://ubuntu.test/ubuntu noble main universe\n"
    )
    assert mirrors.roots_of_sources(text) == ("http://one.test/debian", "http://two.test/debian")


def test_roots_of_the_template_that_other_distributions_carry() -> None:
    text = (
        "ChangelogURI: https://x.test/%s\n\n"
        "Suite: {series}\nRepositoryType: deb\nBaseURI: https://main.test/debian/\n"
        "Component: main\nComponent: contrib\n\n"
        "Suite: {series}-security\nBaseURI: https://sec.test/\n"
    )
    assert mirrors.roots_of_template(text) == ("https://main.test/debian",)


def test_the_environment_alone_decides_when_it_names_mirrors() -> None:
    environ = {"BUILDER_DEB_MIRROR": "http://a.test/debian/  http://b.test/debian"}
    assert hosts.deb_roots(environ) == ("http://a.test/debian", "http://b.test/debian")
    assert hosts.deb_snapshots({"BUILDER_DEB_SNAPSHOT": "http://s.test/archive/debian/"}) == (
        "http://s.test/archive/debian",
    )
    assert hosts.deb_snapshots({}) == ()


def test_deb822_reads_continuation_lines_and_keeps_the_first_of_a_repeated_field() -> None:
    text = "Package: a\nDescription: one\n two\n .\nTag: x\nTag: y\n more\n\n\nPackage: b\n"
    assert list(mirrors.deb822(text)) == [
        {"Package": "a", "Description": "one\ntwo\n.", "Tag": "x"},
        {"Package": "b"},
    ]


# --- inputs from lock entries ---


def test_a_deb_is_on_mirrors_and_at_its_lock_time_in_snapshots() -> None:
    path = "pool/main/a/ab/ab_2-3_all.deb"
    entry = Deb(package="ab", version="1:2-3", architecture="all", path=path, sha256=HASH, size=5)
    item = from_deb(entry, "2026-11-21T00:00:00Z")
    assert dataclasses.astuple(item)[:5] == ("deb", "ab 1:2-3", "ab_2-3_all.deb", HASH, 5)
    assert item.locations == (
        Location("debian", path),
        Location("snapshot", f"20261121T000000Z/{path}"),
    )


def test_a_wheel_is_in_indexes() -> None:
    item = from_wheel(Wheel(name="a", version="1", file="a-1-py3-none-any.whl", sha256=HASH, size=5))
    assert item.digest == f"sha256:{HASH}"
    assert item.locations == (Location("index", "a"),)


def test_a_source_keeps_the_order_of_its_mirrors() -> None:
    mirrors_ = (
        SourceMirror(kind="debian", path="pool/x"),
        SourceMirror(kind="github", path="o/r/archive/refs/tags/v1.tar.gz"),
    )
    source = Source(
        name="x", version="1", file="x.tar.gz", sha256=HASH, size=5, commit="b" * 40, tree="c" * 40, mirrors=mirrors_
    )
    kinds = [location.kind for location in from_source(source, "2026-11-21T00:00:00Z").locations]
    assert kinds == ["debian", "github", "snapshot"]
