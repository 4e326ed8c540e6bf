"""model.reference: what docker reads is parsed alike, anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.digest import Digest
from builder.errors import UsageError
from builder.model.reference import Reference
from tests.support.errors import fails
from tests.support.fuzz import times

DIGEST = Digest("sha256:" + "0123456789abcdef" * 4)


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        (f"nvcr.io/nvidia/vllm:26.04-py3@{DIGEST}", "nvcr.io", "nvidia/vllm", "26.04-py3", DIGEST),
        ("vllm/vllm-openai:v0.20.0", "docker.io", "vllm/vllm-openai", "v0.20.0", None),
        ("ubuntu", "docker.io", "library/ubuntu", None, None),
        ("ubuntu:24.04", "docker.io", "library/ubuntu", "24.04", None),
        ("docker.io/ubuntu", "docker.io", "library/ubuntu", None, None),
        ("index.docker.io/library/ubuntu", "docker.io", "library/ubuntu", None, None),
        (f"ubuntu@{DIGEST}", "docker.io", "library/ubuntu", None, DIGEST),
        ("localhost/x", "localhost", "x", None, None),
        ("localhost:5000/x", "localhost:5000", "x", None, None),
        ("localhost:5000/a/b/c:t", "localhost:5000", "a/b/c", "t", None),
        ("[::1]:5000/a:t", "[::1]:5000", "a", "t", None),
        ("NVCR.io/nvidia/pytorch:x", "nvcr.io", "nvidia/pytorch", "x", None),
        ("ghcr.io/a/b__c-d.e:T_1", "ghcr.io", "a/b__c-d.e", "T_1", None),
    ],
)
def test_parses_what_docker_parses(
    text: str, registry: str, repository: str, tag: str | None, digest: str | None
) -> None:
    assert Reference.parse(text) == Reference(registry, repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "nvcr.io/",
        "nvcr.io/A",
        "Upper",
        "a:",
        "a@",
        "a@sha256:12",
        "a@" + DIGEST.upper(),
        "a@sha512:" + "0" * 128,
        "a:tag:tag",
        f"a@{DIGEST}@{DIGEST}",
        "a:" + "t" * 129,
        "a/" + "b" * 256,
        "localhost:0/x",
        "localhost:65536/x",
        "localhost:x/x",
        "https://nvcr.io/nvidia/vllm",
        "../../etc/passwd",
        "nvcr.io/a/../b",
        "nvcr.io/a?b",
        "nvcr.io/a#b",
        "user:pass@nvcr.io/a",
        "a b",
        "a\n",
        "a:b\n",
        "nvcr.io\n/a",
        "é/a",
        "a:\u0661",
    ],
)
def test_text_that_is_not_a_reference_is_refused(text: str) -> None:
    with fails(UsageError, "reference-invalid"):
        Reference.parse(text)


def test_the_constructor_checks_its_parts() -> None:
    with fails(UsageError, "reference-invalid"):
        Reference("nvcr.io", "a/../../b")


def test_selects_by_digest_then_tag_then_latest() -> None:
    assert Reference.parse("a:b").at(DIGEST).selector == DIGEST
    assert Reference.parse("a:b").selector == "b"
    assert Reference.parse("a").selector == "latest"


@given(st.text(max_size=60) | st.text("abc/:.@-_09[]A \n", max_size=40) | st.from_regex(r"[a-z.]+(:\d+)?/[a-z]+:\w+"))
@settings(max_examples=times(400))
def test_any_text_is_a_reference_or_a_usage_error(text: str) -> None:
    try:
        ref = Reference.parse(text)
    except UsageError as error:
        assert str(error)
        return
    assert Reference.parse(str(ref)) == ref
