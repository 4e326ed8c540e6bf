"""A repository of kilobytes whose files are gigabytes: git has as much memory as it needs for an honest one."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import zlib
from pathlib import Path
from threading import Event

import pytest

from builder.engine import git as program
from builder.errors import NetworkError
from builder.lock import git
from builder.verify import checkout
from tests.support.errors import fails

_PIECE = (1 << 24) - 1
"""Bytes that one instruction of a delta copies at most."""


def varying(number: int) -> bytes:
    """A size, as a delta holds it."""
    return bytes([number & 127 | 128]) + varying(number >> 7) if number > 127 else bytes([number])


def packed(kind: int, data: bytes, base: bytes = b"") -> bytes:
    size, head = len(data) >> 4, kind << 4 | len(data) & 15
    first = bytes([head | 128]) + varying(size) if size else bytes([head])
    return first + base + zlib.compress(data, 9)


def identity(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data, usedforsecurity=False).digest()


def repository(folder: Path, pieces: int) -> str:
    """A bare repository of one commit with a file of so many pieces; the commit."""
    small, large = bytes(_PIECE), bytes(_PIECE * pieces)
    recipes = b"100644 a.yaml\0" + identity(b"blob", small) + b"100644 b.yaml\0" + identity(b"blob", large)
    tree = b"40000 recipes\0" + identity(b"tree", recipes)
    who = b"a <a@example.com> 1 +0000"
    top = identity(b"tree", tree).hex().encode()
    commit = b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (top, who, who)
    delta = varying(_PIECE) + varying(_PIECE * pieces) + b"\xf0\xff\xff\xff" * pieces
    objects = [packed(1, commit), packed(2, tree), packed(2, recipes), packed(3, small)]
    pack = b"PACK" + struct.pack(">II", 2, 5) + b"".join(objects) + packed(7, delta, identity(b"blob", small))
    name = identity(b"commit", commit).hex()
    for words in (["init", "--quiet", "--bare"], ["index-pack", "--stdin"], ["update-ref", "refs/tags/v1", name]):
        data = pack + hashlib.sha1(pack, usedforsecurity=False).digest() if "--stdin" in words else b""
        subprocess.run(["git", f"--git-dir={folder}", *words], input=data, stdout=subprocess.DEVNULL, check=True)
    return name


def test_deltas_take_no_more_memory_than_git_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """17 kB took 1.5 GB, and could take any number."""
    assert program.MEMORY == 400 << 20
    commit = repository(tmp_path / "served", pieces=8)
    monkeypatch.setattr(program, "MEMORY", 100 << 20)
    for number in range(2):
        with fails(NetworkError, ("git-tag-unreadable", "project-not-fetched")[number]) as failed:
            if number:
                checkout.project_of(f"file://{tmp_path}/served@{commit}", tmp_path)
            else:
                git.read_tag(f"file://{tmp_path}/served", "v1", tmp_path / "git", Event())
        assert "Out of memory" in failed.value.cause


def test_a_large_file_without_deltas_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MEMORY", 60 << 20)
    origin = tmp_path / "origin"
    for words in (["init", "-q", str(origin)], ["-C", str(origin), "add", "."]):
        (origin / "a").write_bytes(bytes(100 << 20)) if words[0] == "-C" else None
        subprocess.run(["git", "-c", "core.bigFileThreshold=1m", *words], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "-C", str(origin), *who, "commit", "-qm", "x"], check=True)
    subprocess.run(["git", "-C", str(origin), "tag", "v1"], check=True)
    assert git.read_tag(f"file://{origin}", "v1", tmp_path / "git", Event())[0]
