"""Which changes of packages need each other, by the metadata of real packages."""

from __future__ import annotations

import itertools
import shutil
import subprocess

import pytest

from builder.unpack.control import parse
from builder.verify.requirements import Key, Package, needs_between, of_deb, of_wheel
from builder.versions import debian_version

VERSIONS = [
    *("0", "1", "9", "10", "1~", "1~~", "1~rc1", "1a", "1+", "1.0", "1-1", "1-1~bpo12+1", "1-1+b2", "1.0-0", "1:0"),
    *("2:0~", "1.2.3-4+deb13u1", "1.2.3-4+deb13u2"),
]


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is the judge")
def test_versions_sort_as_those_of_dpkg() -> None:
    for one, other in itertools.combinations(VERSIONS, 2):
        status = subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False).returncode
        assert (debian_version(one) < debian_version(other)) == (status == 0), (one, other)


def test_texts_of_strangers_are_read() -> None:
    assert debian_version("9" * 9999) > debian_version("8" * 9999) > debian_version("9" * 9998)
    assert debian_version(f"{'9' * 9999}:1") > debian_version("2:1")
    assert wheels(odd="1; x; python_version" + "(" * 9999 + "; é é; " + "a" * 99_999)
    assert debs(odd="1; Depends: (((, |||, a (>= " + "9" * 9999 + "), ,")


def wheels(**packages: str) -> dict[Key, list[Package]]:
    """NAME="VERSION; requirement; requirement"."""
    found = {}
    for name, text in packages.items():
        version, *needs = text.split("; ")
        lines = "".join(f"Requires-Dist: {need}\n" for need in needs)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"
        found["wheel", name] = [of_wheel(name, version, metadata, "3.13")]
    return found


def debs(**packages: str) -> dict[Key, list[Package]]:
    """NAME="VERSION; Field: value; Field: value"."""
    found = {}
    for name, text in packages.items():
        version, *lines = text.split("; ")
        control = "\n".join([f"Package: {name}", f"Version: {version}", "Architecture: arm64", *lines])
        found["deb", name] = [of_deb(name, version, parse(control, name).fields)]
    return found


def needed(good: dict[Key, list[Package]], bad: dict[Key, list[Package]]) -> set[str]:
    """`a>b`: with a, b must be changed too."""
    found = needs_between(good, bad, good.keys() | bad.keys())
    return {f"{key[1]}>{other[1]}" for key, others in found.items() for other in others}


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        pytest.param({"vllm": "1", "torch": "1"}, {"vllm": "2", "torch": "2"}, set(), id="nothing is said"),
        pytest.param({"vllm": "1", "torch": "1"}, {"vllm": "2; torch>=1", "torch": "2"}, set(), id="both will do"),
        pytest.param({"vllm": "1", "torch": "1"}, {"vllm": "2; torch>=2", "torch": "2"}, {"vllm>torch"}, id="newer"),
        pytest.param({"vllm": "1; torch<2", "torch": "1"}, {"vllm": "2", "torch": "2"}, {"torch>vllm"}, id="older"),
        pytest.param(
            {"vllm": "1; torch==1", "torch": "1"},
            {"vllm": "2; torch==2", "torch": "2"},
            {"vllm>torch", "torch>vllm"},
            id="together",
        ),
        pytest.param({"vllm": "1"}, {"vllm": "2; humming", "humming": "1"}, {"vllm>humming"}, id="added"),
        pytest.param({"vllm": "1; humming", "humming": "1"}, {"vllm": "2"}, {"humming>vllm"}, id="removed"),
        pytest.param(
            {"vllm": "1", "torch": "1"},
            {"vllm": "2; torch>=2; sys_platform == 'win32'", "torch": "2"},
            {"vllm>torch"},
            id="text that is no requirement",
        ),
        pytest.param(
            {"vllm": "1", "torch": "1"},
            {"vllm": "2; torch>=2;platform_machine=='x86_64'", "torch": "2"},
            set(),
            id="another machine",
        ),
        pytest.param({"vllm": "1", "torch": "1"}, {"vllm": "2; torch>=3", "torch": "2"}, set(), id="never met"),
    ],
)
def test_wheels(good: dict[str, str], bad: dict[str, str], expected: set[str]) -> None:
    assert needed(wheels(**good), wheels(**bad)) == expected


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        pytest.param(
            {"git": "1", "libc6": "2.41-1"},
            {"git": "2; Depends: libc6 (>= 2.42~), zlib1g | libz", "libc6": "2.42-1"},
            {"git>libc6"},
            id="Depends",
        ),
        pytest.param(
            {"git": "1", "libc6": "2.41-1"},
            {"git": "2; Depends: nothing | libc6 (>= 2.41)", "libc6": "2.42-1"},
            set(),
            id="an alternative",
        ),
        pytest.param(
            {"git": "1; Depends: libc6 (<< 2.42)", "libc6": "2.41-1"},
            {"git": "2", "libc6": "2.42-1; Breaks: git (<< 2)"},
            {"libc6>git"},
            id="Breaks",
        ),
        pytest.param(
            {"editor": "1", "nano": "1; Provides: pico"},
            {"editor": "2; Pre-Depends: pico (= 3)", "nano": "2; Provides: pico (= 3)"},
            {"editor>nano"},
            id="Provides",
        ),
        pytest.param(
            {"mawk": "1; Provides: awk; Conflicts: awk"}, {"gawk": "1; Provides: awk; Conflicts: awk"},
            {"gawk>mawk"},
            id="Conflicts",
        ),
    ],
)  # fmt: skip
def test_debian_packages(good: dict[str, str], bad: dict[str, str], expected: set[str]) -> None:
    assert needed(debs(**good), debs(**bad)) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_text_of_metadata_is_not_read(end: str) -> None:
    parts = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(10_000))
    text = f"Name: x\nVersion: 1\nRequires-Dist: torch\n{parts}".replace("\n", end)
    ((names, _),) = of_wheel("x", "1", text, "3.13").needs
    assert names == {("wheel", "torch")}
