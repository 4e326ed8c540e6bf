"""plan.stages: a layer's Dockerfile reads its context, its own stages and the pinned base, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builder.errors import InvalidError
from builder.model.plan import Plan
from builder.plan.stages import check_stages
from tests.support.errors import fails
from tests.support.limits import ends
from tests.support.project import Sample, vendor_base

BASE = f"nvcr.io/nvidia/vllm:26.04-py3@sha256:{'a' * 64}"
LAST = "FROM scratch AS one\nCOPY --from=build /out /\n"


def check(text: str, base: str | None = None) -> None:
    check_stages(text, base=base, where="Dockerfile.j2")


@pytest.mark.parametrize(
    "text",
    [
        "FROM --platform=$BUILDPLATFORM scratch AS build\nADD toolchain-${BUILDARCH}.tar /\n",
        "FROM scratch AS build\nARG BUILDARCH\nADD toolchain-${BUILDARCH}.tar /\n",
        "# a comment: syntax is plain\n\nFROM scratch AS build\nARG JOBS\n",
        'FROM scratch AS build\nRUN --mount=type=bind,target=/context --mount=type=tmpfs,target=/t make -j"${JOBS}"\n',
        "FROM scratch AS Build\nRUN make \\\n  # why\n  \\\n\n  all && echo 'http://x' git@y --network=host\n",
        "from scratch as first\nFROM first AS build\nRUN --mount=type=bind,source=layers,target=/y true\n",
        "FROM scratch AS build\nADD inputs/root-1.0.tar.gz /src/\nCOPY layers/x/a.c /a.c\nCOPY --chmod=0644 a /b\n",
        "FROM scratch AS build\nRUN echo $((1<<3)) && sh -c 'cat <x'\n",
        "FROM scratch AS build\nRUN\tmake\nENV A=https://example.org B=c\nWORKDIR /src\nUSER 1\n",
    ],
)
def test_context_and_own_stages_may_be_read(text: str) -> None:
    check(text + LAST)


def test_a_layer_with_reads_base_may_read_exactly_that_base() -> None:
    text = f"FROM --platform=linux/arm64 {BASE} AS build\n{LAST}"
    check(text, BASE)
    with fails(InvalidError, "dockerfile-forbidden") as caught:
        check(text)
    assert "reads_base: true" in caught.value.cause
    for other in (BASE.partition("@")[0], BASE.replace("a" * 64, "b" * 64)):
        with fails(InvalidError, "dockerfile-forbidden"):
            check(f"FROM {other} AS build\n{LAST}", BASE)


def test_a_last_line_that_continues_is_refused() -> None:
    with fails(InvalidError, "dockerfile-forbidden"):
        check("FROM scratch AS build\nRUN true \\")


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian:12 AS build\n",
        f"FROM {BASE} AS build\n",
        "FROM \\\ndebian:12 AS build\n",
        "FR\\\nOM debian:12 AS build\n",
        "FROM scratch AS build\nFROM scratch AS a\nCOPY a b \\\n# x\n\nFROM debian AS c\n",
        "ARG BASE=debian:12\nFROM $BASE AS build\n",
        "FROM ${BASE:-debian:12} AS build\n",
        "FROM debian:12\n",
        "FROM scratch\n",
        "FROM scratch AS build\nADD https://example.org/x.tar /\n",
        'FROM scratch AS build\nADD ["https://example.org/x.tar", "/"]\n',
        "FROM scratch AS build\nADD git@example.org:a/b.git /\n",
        "FROM scratch AS build\nADD github.com/a/b.git /\n",
        "FROM scratch AS build\nADD --checksum=sha256:aa https://example.org/x /\n",
        "FROM scratch AS build\nARG URL=https://example.org/x\nADD $URL /\n",
        "FROM scratch AS build\nARG BUILDARCH=https://example.org/x\nADD ${BUILDARCH} /\n",
        "FROM scratch AS build\nADD\n",
        "FROM scratch AS build\nADD \\\n# x\nhttps://example.org/x /\n",
        "FROM scratch AS build\nCOPY --from=debian:12 /etc /etc\n",
        "FROM scratch AS build\nCOPY --from=0 /etc /etc\n",
        "FROM scratch AS build\nCOPY --from=later /etc /etc\nFROM scratch AS later\n",
        "FROM scratch AS build\nCOPY --chmod=0644 --from=debian /etc /etc\n",
        'FROM scratch AS build\nCOPY "--from=debian" /etc /etc\nCOPY --from="debian" /a /b\n',
        "FROM scratch AS build\nCOPY --fr\\om=debian /etc /etc\n",
        "FROM scratch AS build\nCOPY -\\\n-from=debian /etc /etc\n",
        "FROM scratch AS build\nCOPY \u00a0--from=debian /etc /etc\n",
        "FROM scratch AS build\nRUN --mount=type=bind,from=debian:12,target=/x true\n",
        'FROM scratch AS build\nRUN --mount=type=bind,"from=debian",target=/x true\n',
        "FROM scratch AS a\nRUN ln -s / /x\nFROM a AS build\nRUN --mount=type=bind,from=a,source=/x,target=/y true\n",
        "FROM scratch AS build\nRUN --mount=type=bind,target=/context,rw true\n",
        "FROM scratch AS build\nRUN --mount=type=bind,target=/context,readwrite=true true\n",
        "FROM scratch AS build\nRUN --mount=type=bind,target=/context,ro=false true\n",
        "FROM scratch AS build\nRUN --mount=type=bind,FROM=debian,target=/x true\n",
        "FROM scratch AS build\nRUN --mount=type=secret,id=token true\n",
        "FROM scratch AS build\nRUN --mount=type=ssh true\n",
        "FROM scratch AS build\nRUN --mount=type=cache,target=/root/.cache true\n",
        "FROM scratch AS build\nRUN --mount=target=/x,TYPE=cache,sharing=shared true\n",
        "FROM scratch AS build\nRUN --network=host true\n",
        "FROM scratch AS build\nRUN --mount=type=bind,target=/x --network=default true\n",
        "FROM scratch AS build\nRUN --security=insecure true\n",
        "FROM scratch AS build\nRUN \\\n # x\n --network=host true\n",
        "FROM scratch AS build\nRUN --net\\work=host true\n",
        "FROM scratch AS build\nRUN cat <<EOF\nEOF\n",
        "FROM scratch AS build\nRUN cat <<USER\nUSER x \\\nUSER\nADD https://example.org /\n",
        "FROM scratch AS build\nCOPY <<a /b\nFROM\n",
        "FROM scratch AS build\nRUN echo \\\\\nADD https://example.org/x /\n",
        "FROM scratch AS build\nONBUILD ADD https://example.org/x /\n",
        "FROM scratch AS build\nINCLUDE other\n",
        "# syntax=docker/dockerfile:1\nFROM scratch AS build\n",
        "#SYNTAX = evil/front:1\nFROM scratch AS build\n",
        "#!/bin/x\n# syntax=docker/dockerfile:1\nFROM scratch AS build\n",
        "// syntax=docker/dockerfile:1\nFROM scratch AS build\n",
        '{"syntax": "docker/dockerfile:1"}\nFROM scratch AS build\n',
        "# escape=`\nFROM scratch AS build\n",
        "\ufeff# syntax=docker/dockerfile:1\nFROM scratch AS build\n",
        "# a\r# syntax=docker/dockerfile:1\nFROM scratch AS build\n",
        # BuildKit skips the comment, so that a flag follows COPY.
        "FROM scratch AS build\nCOPY \\\n# x \\\n--from=debian /etc /etc\n",
        "FROM scratch AS build\nARG BUILDARCH=ttp:\nADD h${BUILDARCH}//example.org/x /x\n",
        "FROM scratch AS build\nENV BUILDARCH=ttp:\nADD h${BUILDARCH}//example.org/x /x\n",
        "ARG BUILDARCH=ttp:\nFROM scratch AS build\nARG BUILDARCH\nADD h${BUILDARCH}//example.org/x /x\n",
        "FROM scratch AS a\nENV BUILDARCH=ttp:\nFROM a AS build\nADD h${BUILDARCH}//example.org/x /x\n",
        # buildah pulls an image in each of these.
        "ARG X=debian\nFROM scratch AS ${X}\nFROM ${X} AS build\n",
        "FROM scratch AS a\nARG X=debian\nFROM scratch AS ${X}\nFROM ${X} AS build\n",
        "FROM scratch AS build\nCOPY --from=build /etc /etc\n",
        "FROM scratch AS example.org/x\nFROM scratch AS build\nCOPY --from=EXAMPLE.org/x /etc /etc\n",
        "FROM scratch AS build\nFROM scratch AS build\n",
    ],
)
def test_instructions_that_fetch_are_refused(text: str) -> None:
    with fails(InvalidError, "dockerfile-forbidden") as caught:
        check(text + LAST)
    assert caught.value.where == "Dockerfile.j2"


def test_resolve_checks_the_dockerfile(make_plan: Callable[..., Plan], small: Sample) -> None:
    name = "dockerfiles/layers/compiled/Dockerfile.j2"
    small.files[name] = small.files[name].replace("ARG JOBS", "ADD https://example.org/x.tar /")
    with fails(InvalidError, "dockerfile-forbidden") as caught:
        make_plan()
    assert caught.value.where.endswith(name)


@pytest.mark.parametrize("reads_base", [False, True])
def test_only_a_layer_with_reads_base_may_start_from_the_base(
    make_plan: Callable[..., Plan], small: Sample, reads_base: bool
) -> None:
    small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.lan/x:1", "sha256:" + "a" * 64)
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    small.files["dockerfiles/layers/compiled/layer.yaml"]["reads_base"] = reads_base
    small.files["dockerfiles/layers/compiled/Dockerfile.j2"] = (
        "FROM {{ base.pin.image ~ '@' ~ base.pin.manifest }} AS {{ id }}-base\n"
        "FROM scratch AS {{ id }}\nCOPY --from={{ id }}-base /x /opt/x\n"
    )
    if reads_base:
        assert make_plan(base="vendor").base_image
        return
    with fails(InvalidError, "dockerfile-forbidden"):
        make_plan(base="vendor")


@pytest.mark.parametrize(
    "text",
    [
        "FROM scratch AS layer\n" + "ADD a b\n" * 200_000,
        "FROM scratch AS layer\n  RUN " + "x" * (2 << 20) + " \\\n" + "#\n" * 700_000 + "y\n",
    ],
    ids=["ADD", "comments"],
)
def test_a_long_dockerfile_of_a_stranger_is_checked_in_time(text: str) -> None:
    """That of a bundle has up to 4 MiB, and is checked before anybody is asked."""
    ends(lambda: check_stages(text, base=None, where="here"))


def test_the_last_stage_is_that_of_the_layer(make_plan: Callable[..., Plan], small: Sample) -> None:
    """The engine exports the stage of the layer's name, which is not in its key."""
    name = "dockerfiles/layers/compiled/Dockerfile.j2"
    small.files[name] += "\nFROM scratch AS other\nCOPY --from={{ id }} / /\n"
    with fails(InvalidError, "dockerfile-forbidden"):
        make_plan()


def test_a_long_flag_is_read() -> None:
    check(f"FROM scratch AS build\nRUN --mount=type=bind,target=/{'a' * 200_000} true\n{LAST}")


def test_a_comment_after_nothing_but_a_backslash_is_refused() -> None:
    with fails(InvalidError, "dockerfile-forbidden"):
        check(f"FROM scratch AS build\n  \\\n# x\nRUN true\n{LAST}")
