"""A package index whose pages, files and names are meant to harm: each answer ends in an error that names it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from builder.errors import InvalidError, NetworkError, PinError
from builder.inputs.fetch import new_session
from builder.inputs.index import project_files
from builder.knowledge.extract import extract
from builder.knowledge.pysource import Sources
from builder.knowledge.sdist import fetch_sdist
from builder.lock.wheels import best_wheel, target_tags
from builder.stack.contents import read_requires
from builder.stack.release import Release, find_release, overrides_for
from tests.support.errors import fails
from tests.support.http_server import Server, body, serving
from tests.support.limits import ends
from tests.support.tars import sdist
from tests.support.wheels import wheel, wheel_of

_JSON = "application/vnd.pypi.simple.v1+json"
_FILE = "vllm-0.32.0-cp38-abi3-manylinux_2_31_aarch64.whl"
_TAGS = target_tags("3.13", "aarch64-manylinux_2_39")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as made:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{made.address}/simple")
        yield made


def page(server: Server, text: bytes, content_type: str = _JSON) -> str:
    server.answers.clear()
    server.on("/simple/vllm/", body(text, content_type=content_type))
    return f"{server.address}/simple"


def listing(*files: dict[str, object]) -> bytes:
    entries = [{"url": "/f", "hashes": {}, **file} for file in files]
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "vllm", "files": entries}).encode()


@pytest.mark.parametrize(
    ("text", "content_type"),
    [(b"x", "text/plain"), (b'{"meta":{"api-version":"9.0"},"name":"vllm","files":[]}', _JSON), (b'{"a":', _JSON)],
)
def test_an_answer_that_is_no_index_has_no_sdist(
    server: Server, tmp_path: Path, text: bytes, content_type: str
) -> None:
    page(server, text, content_type)
    with fails(NetworkError, "vllm-sdist-unreachable"):
        fetch_sdist("0.32.0", tmp_path)


def test_an_sdist_is_compared_with_the_hash_of_the_index_if_there_is_one(server: Server, tmp_path: Path) -> None:
    page(server, listing({"filename": "vllm-0.32.0.tar.gz", "hashes": {"sha256": "0" * 64}}))
    server.on("/f", body(b"data"))
    with fails(PinError, "vllm-sdist-changed"):
        fetch_sdist("0.32.0", tmp_path)
    page(server, listing({"filename": "vllm-0.32.0.tar.gz"}))
    server.on("/f", body(b"data"))
    assert fetch_sdist("0.32.0", tmp_path).read_bytes() == b"data"


@pytest.mark.parametrize("text", [b"<a " * 60_000, b"<!--" * 60_000, b'<a b="' * 60_000, b"<b>" * 60_000])
def test_broken_tags_are_read_in_time(server: Server, text: bytes) -> None:
    """180 kB took minutes."""
    index = page(server, text, "text/html")
    with new_session() as session:
        ends(lambda: project_files(session, index, "vllm"))


def test_the_links_of_a_page_are_found(server: Server) -> None:
    text = b"""<!DOCTYPE html><html><head><base href='/f/'></head><body><h1>x</h1>
    <A HREF='a' data-requires-python=">=3.8">vllm-1.tar.gz</A><br/><a
    href="b#sha256=00">vllm-2.tar.gz</a></body>"""
    with new_session() as session:
        found = project_files(session, page(server, text, "text/html"), "vllm")
    assert [(file.filename, file.url) for file in found] == [
        ("vllm-1.tar.gz", f"{server.address}/f/a"),
        ("vllm-2.tar.gz", f"{server.address}/f/b"),
    ]


def test_a_name_that_stands_for_millions_of_tags_is_no_wheel() -> None:
    """6 kB took 20 GB."""
    many = ".".join(f"a{number}" for number in range(400))
    names = [f"vllm-0.32.0-{many}-{many}-{many}.whl", _FILE]
    found = []
    ends(lambda: found.append(best_wheel(names, Version("0.32.0"), _TAGS)), memory=300 << 20)
    assert found == [_FILE]


@pytest.mark.parametrize(
    "other",
    [
        {"filename": "vllm-0.32.0.tar.gz", "upload-time": "2026-01-01T00:00:00"},
        {"filename": "vllm-0.32.0.tar.gz", "upload-time": "0001-01-01T00:00:00Z"},
        {"filename": f"vllm-{'1' * 5000}.tar.gz"},
    ],
)
def test_times_and_numbers_that_nothing_can_hold_are_left_out(server: Server, other: dict[str, object]) -> None:
    index = page(server, listing({"filename": _FILE, "upload-time": "2026-01-02T00:00:00Z"}, other))
    assert find_release("0.32.0", _TAGS, index).until() == "2026-01-16T00:00:00Z"


def test_a_time_at_the_end_of_all_times_is_left_out(server: Server) -> None:
    index = page(server, listing({"filename": _FILE, "upload-time": "9999-12-31T00:00:00Z"}))
    with fails(PinError, "vllm-wheel-missing"):
        find_release("0.32.0", _TAGS, index)


@pytest.mark.parametrize("requirement", ["a; " + "(" * 50_000, f"a>={'1' * 5000}"])
def test_a_requirement_that_cannot_be_read_asks_for_nothing(server: Server, requirement: str) -> None:
    assert overrides_for(Release("0.32.0", None), [requirement], f"{server.address}/simple") == ()


@pytest.mark.parametrize(("flags", "method"), [(1, 0), (0, 12), (0, 14)])
def test_a_table_that_cannot_be_read_requires_nothing(server: Server, flags: int, method: int) -> None:
    """Encrypted, and stored content that is said to be of bzip2 or LZMA."""
    data = bytearray(wheel("a", {}, requires=["b>=1"]))
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        data[place + 8] |= flags
        data[place + 10] = method or data[place + 10]
        local = int.from_bytes(data[place + 42 : place + 46], "little")
        data[local + 6] |= flags
        data[local + 8] = method or data[local + 8]
        place = data.find(b"PK\x01\x02", place + 4)
    server.on("/f", body(bytes(data)))
    entry = {"filename": "a-1-py3-none-any.whl", "url": "/f", "hashes": {}}
    server.on("/simple/a/", body(listing(entry), content_type=_JSON))
    assert read_requires(wheel_of(bytes(data)), f"{server.address}/simple") == ()


def test_an_annotation_that_is_no_expression(tmp_path: Path) -> None:
    files = {
        "v/vllm/engine/arg_utils.py": b"",
        "v/vllm/entrypoints/cli/main.py": b"",
        "v/vllm/entrypoints/a.py": b'\nclass FrontendArgs():\n    a: "int |"\n',
    }
    with fails(InvalidError, "vllm-source-unreadable"):
        extract("0.32.0", sdist(tmp_path, dict(files)))


def test_many_options_are_read_in_time() -> None:
    """Each walked its module: 4,000 took hours."""
    lines = [f'    k{n} = get_kwargs(C{n})\n    p.add_argument("--x{n}", **k{n}["f"])' for n in range(4000)]
    text = "\n".join(["def add_cli_args(p):", *lines])
    sources = Sources({"vllm/a.py": text.encode()})
    ends(lambda: [sources.find("vllm/a.py", f"C{n}") for n in range(4000)])


def test_code_of_gigabytes_as_a_tree_is_not_parsed() -> None:
    """2 MB took 1.2 GB, and there may be many files."""
    sources = Sources({f"{n}.py": b"a," * 200_000 for n in range(9)})

    def work() -> None:
        with fails(InvalidError, "sdist-code-too-long"):
            for n in range(9):
                sources.tree(f"{n}.py")

    ends(work, memory=600 << 20)
    assert isinstance(Sources({"a.py": b"a"}).tree("a.py"), ast.Module)
