"""Versions: reading a version from the output of a program, and the order of versions."""

from __future__ import annotations

import pytest

from builder.versions import (
    at_least,
    is_version,
    nccl_version,
    python_release,
    python_version,
    same_nccl,
    semantic,
    symbol_version,
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("28.2.2", "28.2.2"),
        ("20.10.24+dfsg1", "20.10.24"),
        ("github.com/docker/buildx v0.13.1 788433953af10f2a", "0.13.1"),
        ("buildah version 1.28.2 (image-spec 1.0.2-dev)", "1.28.2"),
        ("buildah version 2.0", "2.0.0"),
        ("1.28.0-dev", "1.28.0"),
        ("580.95.05", "580.95.5"),
        ("580.142", "580.142.0"),
        ("2.29.7-1", "2.29.7"),
        ("what is this", None),
        ("1" * 5000 + ".1", None),
        ("", None),
    ],
)
def test_the_first_semantic_version_of_a_text(text: str, version: str | None) -> None:
    found = semantic(text)
    assert (None if found is None else str(found)) == version


def test_semantic_versions_compare_by_their_numbers() -> None:
    assert at_least("580.142", "580.95.05")
    assert not at_least("580.95.05", "580.142")
    assert at_least("1.28.0-dev", "1.28")
    assert not at_least("0.99", "1.28")
    assert not at_least("unknown", "1.28")


@pytest.mark.parametrize(("code", "version"), [(22907, "2.29.7"), (20903, "2.9.3"), (21005, "2.10.5"), (2804, "2.8.4")])
def test_a_version_code_of_nccl(code: int, version: str) -> None:
    assert nccl_version(code) == version


def test_the_revision_of_a_package_is_no_part_of_an_nccl_release() -> None:
    assert same_nccl("2.29.7", "2.29.7-1")
    assert not same_nccl("2.28.9", "2.29.7-1")
    assert not same_nccl("none", "none")


def test_python_versions() -> None:
    assert python_version("0.20.0rc1") < python_version("0.20.0") < python_version("0.20.0.post1")
    assert python_version("2.29.7-1") == python_version("2.29.7")
    assert python_version(None) == python_version("unknown") == python_version("1" * 5000) == python_version("0")
    assert not is_version("1" * 5000)
    assert python_release("3.13") == (3, 13)
    with pytest.raises(ValueError):
        python_release("three")


def test_symbol_versions() -> None:
    assert symbol_version("GLIBC_" + "9" * 5000) > symbol_version("GLIBC_2.38")
    names = ["GLIBC_2.38", "GLIBC_2.4", "GLIBC_PRIVATE", "GLIBC_2.2.5"]
    assert sorted(names, key=symbol_version) == ["GLIBC_PRIVATE", "GLIBC_2.2.5", "GLIBC_2.4", "GLIBC_2.38"]
