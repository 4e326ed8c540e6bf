"""Wheels become installed distributions, as the distribution's Python expects them."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from isal import isal_zlib

from builder.unpack import wheels
from builder.unpack.__main__ import write
from builder.unpack.bounds import Budget
from builder.unpack.entry import Entry, UnpackError, content
from builder.unpack.spool import Spool
from builder.unpack.tree import entries, normalise
from builder.unpack.wheels import Scheme, extract, install
from tests.support.errors import fails
from tests.support.wheels import archive, record_hash, wheel

SITE = "usr/local/lib/python3.13/dist-packages"
SCHEME = Scheme(SITE)
Install = Callable[..., dict[str, Entry]]


@pytest.fixture
def installed(tmp_path: Path) -> Install:
    def made(data: bytes, scheme: Scheme = SCHEME) -> dict[str, Entry]:
        (tmp_path / "blob").write_bytes(data)
        return {entry.path: entry for entry in install(tmp_path / "blob", "tool.whl", scheme, Budget(0))}

    return made


def with_folders(found: Iterable[Entry]) -> list[Entry]:
    return normalise(found, is_root=False)


FULL = wheel(
    "my-tool",
    {
        "my_tool/__init__.py": "def main():\n    return 7\n",
        "my_tool/bin/helper": b"\x7fELF",
        "my_tool.pth": "import x\n",
        "{data}/scripts/run-it": "#!python -E\nprint(1)\n",
        "{data}/scripts/shell": "#!/bin/sh\n",
        "{data}/data/share/man/man1/tool.1": "man",
        "{data}/headers/tool.h": "#define X",
        "{data}/purelib/pure.py": "",
        "{data}/platlib/plat/x.so": b"\x7fELF",
        "my_tool-1.0.dist-info/INSTALLER": "pip\n",
        "my_tool-1.0.dist-info/RECORD.jws": "{}",
    },
    entry_points="[console_scripts]\nmy-tool = my_tool:main\nother = my_tool.sub:App.run [extra]\n"
    "[gui_scripts]\nshow = my_tool:main\n[other]\nx = y\n",
    modes={"my_tool/bin/helper": 0o755},
)


def test_every_part_has_its_place(installed: Install) -> None:
    info = f"{SITE}/my_tool-1.0.dist-info"
    assert set(installed(FULL)) == {
        *(
            f"{SITE}/{name}"
            for name in ("my_tool/__init__.py", "my_tool/bin/helper", "my_tool.pth", "pure.py", "plat/x.so")
        ),
        *(f"usr/local/bin/{name}" for name in ("my-tool", "other", "show", "run-it", "shell")),
        *("usr/local/share/man/man1/tool.1", "usr/local/include/my_tool/tool.h"),
        *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "INSTALLER", "entry_points.txt")),
    }


def test_modes_are_0644_or_0755(installed: Install) -> None:
    tree = installed(FULL)
    executable = {path for path, entry in tree.items() if entry.mode == 0o755}
    scripts = {f"usr/local/bin/{name}" for name in ("my-tool", "other", "show", "run-it", "shell")}
    assert executable == {f"{SITE}/my_tool/bin/helper", *scripts}
    assert {entry.mode for path, entry in tree.items() if path not in executable} == {0o644}


def test_scripts_name_the_images_interpreter(installed: Install) -> None:
    tree = installed(FULL)
    assert content(tree["usr/local/bin/run-it"]) == b"#!/usr/bin/python3\nprint(1)\n"
    assert content(tree["usr/local/bin/shell"]) == b"#!/bin/sh\n"
    assert content(tree["usr/local/bin/other"]).startswith(b"#!/usr/bin/python3\n")
    assert b"from my_tool.sub import App\n" in content(tree["usr/local/bin/other"])
    assert b"sys.exit(App.run())" in content(tree["usr/local/bin/other"])
    other = installed(FULL, Scheme(SITE, interpreter="/usr/bin/python3.12"))
    assert content(other["usr/local/bin/my-tool"]).startswith(b"#!/usr/bin/python3.12\n")


def test_the_record_lists_every_file_with_its_hash_and_size(installed: Install) -> None:
    tree = installed(FULL)
    text = content(tree[f"{SITE}/my_tool-1.0.dist-info/RECORD"]).decode()
    rows = {row[0]: row[1:] for row in csv.reader(text.splitlines())}
    found = {str(Path("/", SITE, name).resolve())[1:]: row for name, row in rows.items()}
    assert found.keys() == tree.keys()
    for path, (digest, size) in found.items():
        if path.endswith("/RECORD"):
            assert (digest, size) == ("", "")
        else:
            assert (digest, size) == (record_hash(content(tree[path])), str(len(content(tree[path]))))
    assert "../../../bin/my-tool" in rows
    assert text.splitlines() == sorted(text.splitlines(), key=lambda line: line.split(",")[0])


def test_files_that_a_careless_record_leaves_out_are_listed_all_the_same(installed: Install) -> None:
    data = wheel("tool", {"tool/a.py": "a", "tool/b.py": "b"}, unrecorded=frozenset({"tool/b.py"}))
    rows = content(installed(data)[f"{SITE}/tool-1.0.dist-info/RECORD"]).decode().splitlines()
    assert f"tool/b.py,{record_hash(b'b')},1" in rows
    data = wheel("tool", {"tool/a.py": "a"}, record=b"tool/a.py,,\ntool/gone.py,sha256=x,1\n")
    rows = content(installed(data)[f"{SITE}/tool-1.0.dist-info/RECORD"]).decode().splitlines()
    assert f"tool/a.py,{record_hash(b'a')},1" in rows
    assert not [row for row in rows if "gone" in row]


def test_importlib_metadata_finds_the_distribution_and_all_its_files(installed: Install, tmp_path: Path) -> None:
    write(with_folders(installed(FULL).values()), tmp_path / "root")
    (found,) = importlib.metadata.distributions(path=[str(tmp_path / "root" / SITE)])
    assert (found.metadata["Name"], found.version, found.read_text("INSTALLER")) == ("my-tool", "1.0", "builder\n")
    assert found.files
    for file in found.files:
        data = Path(str(file.locate())).read_bytes()
        if file.hash is not None:
            digest = hashlib.new(file.hash.mode, data).digest()
            assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
    assert {point.name for point in found.entry_points if point.group == "console_scripts"} == {"my-tool", "other"}


def test_a_console_script_runs(installed: Install, tmp_path: Path) -> None:
    write(with_folders(installed(FULL).values()), tmp_path / "root")
    script = tmp_path / "root/usr/local/bin/my-tool"
    done = subprocess.run([sys.executable, script], env={"PYTHONPATH": str(tmp_path / "root" / SITE)}, check=False)
    assert done.returncode == 7


def test_it_is_what_uv_installs(installed: Install, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed")
    (tmp_path / "my_tool-1.0-py3-none-any.whl").write_bytes(FULL)
    command: list[Any] = [uv, "pip", "install", "--offline", "--no-deps", "--no-cache", "--quiet", "--no-config"]
    command += ["--python", sys.executable, "--target", tmp_path / "uv", tmp_path / "my_tool-1.0-py3-none-any.whl"]
    subprocess.run(command, check=True)
    theirs = {p.relative_to(tmp_path / "uv").as_posix(): p for p in (tmp_path / "uv").rglob("*") if p.is_file()}
    tree = installed(FULL)
    compared = 0
    for path, entry in tree.items():
        name = path.removeprefix(f"{SITE}/")
        if name in theirs and not name.endswith(("/RECORD", "/INSTALLER")):
            assert theirs[name].read_bytes() == content(entry)
            assert theirs[name].stat().st_mode & 0o111 == entry.mode & 0o111
            compared += 1
    assert compared >= 8
    scripts = {path.rpartition("/")[2] for path in tree if path.startswith("usr/local/bin/")}
    assert scripts == {path.name for name, path in theirs.items() if name.startswith("bin/")}


CUDA = wheel(
    "cuda",
    {"nvidia/cu13/bin/nvcc": "x", "nvidia/cu13/lib/a.so": "y", "other/x": "z"},
    modes={"nvidia/cu13/bin/nvcc": 0o755},
)


def test_a_part_of_a_wheel_can_be_put_elsewhere_without_metadata(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(CUDA)
    tree = {
        entry.path: entry
        for entry in extract(tmp_path / "blob", "cuda.whl", "nvidia/cu13", "usr/local/cuda", Budget(0))
    }
    assert {path: entry.mode for path, entry in tree.items()} == {
        "usr/local/cuda/bin/nvcc": 0o755,
        "usr/local/cuda/lib/a.so": 0o644,
    }


def test_a_part_that_no_wheel_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cuda.whl").write_bytes(CUDA)
    wheels = [{"file": "cuda.whl", "strip": part, "into": "usr/x"} for part in ("nvidia/cu13/bin", "nvidia/cu14")]
    spec = {"root": False, "debs": [], "wheels": wheels, "scheme": None, "files": [], "shared": []}
    with Spool(str(tmp_path)) as spool, fails(UnpackError, "wheel-part-missing") as caught:
        entries(spec, lambda item: tmp_path / item["file"], spool)
    assert "nvidia/cu14" in str(caught.value)


def corrupt(data: bytes) -> bytes:
    """The wheel with one byte of a file's compressed content changed."""
    start = data.index(b"tool/big.py") + len("tool/big.py") + 200
    return data[:start] + bytes([data[start] ^ 0xFF]) + data[start + 1 :]


BIG = wheel("tool", {"tool/big.py": b"".join(hashlib.sha256(bytes([n])).digest() for n in range(200))})
LINK = archive({"tool/l": b"x", "tool-1.0.dist-info/RECORD": b""}, {"tool/l": 0o120777})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a zip file",
        BIG[:-50],
        BIG[: len(BIG) // 2],
        corrupt(BIG),
        LINK,
        archive({"tool/a.py": b""}),
        archive({"a-1.dist-info/RECORD": b"", "b-1.dist-info/RECORD": b""}),
        archive({"tool-1.0.dist-info/METADATA": b""}),
        archive({"tool-1.0.dist-info/RECORD": b"\xff\xfe"}),
        wheel("tool", {"../evil": "x"}),
        wheel("tool", {"tool/../../evil": "x"}),
        wheel("tool", {"{data}/scripts/../../evil": "x"}),
        wheel("tool", {"{data}/elsewhere/x": "x"}),
        wheel("tool", {}, entry_points="[console_scripts]\n../x = a:b\n"),
        wheel("tool", {}, entry_points="[console_scripts]\nx = a:b; import os\n"),
        wheel("tool", {}, entry_points="[console_scripts]\nx = a\n"),
        wheel("tool", {}, entry_points="[console_scripts]\n. = a:b\n"),
        wheel("tool", {}, entry_points="[console_scripts\n"),
        wheel("tool", {".": "x"}),
        wheel("tool", {"tool-1.0.dist-info/entry_points.txt": b"\xff"}),
    ],
)
def test_a_damaged_or_malicious_wheel_is_named(installed: Install, data: bytes) -> None:
    with pytest.raises(UnpackError) as caught:
        for entry in installed(data).values():
            content(entry)
    assert str(caught.value).startswith("tool.whl")


@pytest.mark.parametrize("library", [zlib, isal_zlib], ids=["zlib", "isal"])
def test_content_that_cannot_be_inflated_is_named(
    installed: Install, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "inflater", library)
    text = b"".join(b"%d " % number for number in range(9000))
    data = bytearray(wheel("tool", {"tool.py": text}))
    place = data.index(zlib.compress(text)[2:40])
    assert content(installed(bytes(data))[f"{SITE}/tool.py"]) == text
    data[place : place + 64] = b"\xff" * 64
    with fails(UnpackError, "archive-damaged") as caught:
        content(installed(bytes(data))[f"{SITE}/tool.py"])
    assert "tool.py" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("tool-1.0.dist-info/RECORD", 9 << 20),
        ("tool-1.0.dist-info/entry_points.txt", 2 << 20),
        ("{data}/scripts/x", 33 << 20),
    ],
)
def test_a_member_that_grows_in_memory_is_refused(installed: Install, name: str, size: int) -> None:
    large = bytes(size)
    data = wheel("tool", {}, record=large) if name.endswith("RECORD") else wheel("tool", {name: large})
    with fails(UnpackError, "wheel-member-too-large"):
        installed(data)


def test_an_encrypted_or_exotic_member_is_named(installed: Install) -> None:
    flagged = bytearray(BIG)
    for start in (BIG.index(b"PK\x03\x04") + 6, BIG.index(b"PK\x01\x02") + 8):
        flagged[start] |= 1
    with fails(UnpackError, "archive-unreadable") as caught:
        [content(entry) for entry in installed(bytes(flagged)).values()]
    assert str(caught.value).startswith("tool.whl")


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tool.whl"
    path.write_bytes(wheel("tool", {"tool/a.py": "a"}))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as made:
        made.writestr("tool/a.py", "b")
    with fails(UnpackError, "layer-path-twice"):
        with_folders(install(path, "tool.whl", SCHEME, Budget(0)))


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [(b"PK\x01\x02", 28, bytes(2)), (b"PK\x05\x06", 16, b"\xf0\xff\xff\x0f")],
    ids=["name", "place"],
)
def test_a_wheel_with_a_damaged_table_is_refused(tmp_path: Path, header: bytes, field: int, value: bytes) -> None:
    """An empty name ended in an IndexError of zipfile, a place before the file in an OSError."""
    data = bytearray(wheel("demo", {"demo/x.py": "x"}))
    place = data.rindex(header) + field
    data[place : place + len(value)] = value
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(data)
    with pytest.raises(UnpackError):
        install(path, path.name, Scheme("usr/lib/x"), Budget(0))
