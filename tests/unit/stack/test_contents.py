"""Files that several wheels contain, and compiled modules for another Python; tables read by range."""

from __future__ import annotations

import hashlib

import pytest

from builder.model.lock import Wheel
from builder.stack.contents import Contents, foreign_modules, overlap, read_contents, read_requires
from tests.support.http_server import serving, status
from tests.support.pyindex import Index
from tests.support.wheels import archive, wheel_of


def held(name: str, **files: int) -> Contents:
    return Contents(name, {path.replace("__", "/"): (crc, 1) for path, crc in files.items()})


def test_a_distribution_that_another_one_contains_is_left_out() -> None:
    found = overlap([held("libs-base", a=1, b=2, x__LICENSE=1), held("libs-cu13", a=1, b=3, c=4), held("other", z=1)])
    assert found.leave_out == {"libs-base": "libs-cu13 contains the same 2 files, 1 of them changed"}
    assert (found.shared, found.unlike) == ({}, ())


def test_of_two_with_the_same_files_the_one_for_a_cuda_stays() -> None:
    for name in ("a", "z"):
        assert list(overlap([held(name, f=1), held("m-cu13", f=2)]).leave_out) == [name]


def test_other_files_of_several_wheels_are_shared() -> None:
    found = overlap([held("a", f=1, g=1, build_backend=1), held("b", f=1, g=2, h=3), held("c", i=1)])
    assert found.shared == {"f": ("a", "b"), "g": ("a", "b")}
    assert found.unlike == ("g",)
    assert found.leave_out == {}


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        (["v/_C.cpython-312-aarch64-linux-gnu.so", "v/_C.cpython-310-aarch64-linux-gnu.so"], ["v/_C"]),
        (["v/_C.cpython-312-aarch64-linux-gnu.so", "v/_C.cpython-313-aarch64-linux-gnu.so"], []),
        (["v/_C.cpython-312-aarch64-linux-gnu.so", "v/_C.abi3.so"], []),
        (["v/lib.so", "v/lib.so.2", "a.py"], []),
    ],
)
def test_modules_for_another_python(files: list[str], foreign: list[str]) -> None:
    assert foreign_modules(Contents("v", dict.fromkeys(files, (0, 0))), "3.13") == foreign


def test_tables_are_read_without_the_files() -> None:
    with serving() as server:
        index = Index(server)
        index.add("big", "1", "needs>=2", files={"big/data": bytes(3_000_000), "{data}/purelib/x.py": "1"})
        entry = index.files["big"][0]
        size = int(str(entry["size"]))
        hashes = entry["hashes"]
        assert isinstance(hashes, dict)
        wheel = Wheel(name="big", version="1", file="big-1-py3-none-any.whl", sha256=hashes["sha256"], size=size)
        (contents,), unread = read_contents([wheel], index.address)
        assert sorted(contents.files) == ["big/__init__.py", "big/data", "x.py"]
        assert unread == []
        assert read_requires(wheel, index.address) == ("needs>=2",)


@pytest.mark.parametrize("fault", ["no zip", "shorter", "gone", "huge table"])
def test_a_wheel_that_cannot_be_read_is_named(fault: str) -> None:
    data = b"no zip" * 100 if fault == "no zip" else archive({"a": b"1"})
    if fault == "huge table":
        # The end record says that the table is far before the file.
        data = data[:-10] + (1 << 31).to_bytes(4, "little") + data[-6:]
    with serving() as server:
        index = Index(server)
        index.add("a", "1")
        sha256 = hashlib.sha256(data).hexdigest()
        index.files["a"][0] |= {"hashes": {"sha256": sha256}}
        index.add("a", "2")
        server.on("/files/a-1-py3-none-any.whl", *_answers(fault, data))
        wheel = wheel_of(data, size=10**9 if fault == "shorter" else None)
        assert read_contents([wheel], index.address) == ([], ["a"])
        assert read_requires(wheel, index.address) == ()


def _answers(fault: str, data: bytes) -> list[object]:
    from tests.support.http_server import body

    return [status(404) if fault == "gone" else body(data)]
