"""Tar archives are read as container engines read them; what two programs read differently is refused."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from builder.unpack import tar as tarreader
from builder.unpack.entry import UnpackError, clean_path
from builder.unpack.tar import Archive
from tests.support.errors import fails
from tests.support.limits import ends
from tests.support.oddtars import AMBIGUOUS, DAMAGED, END, READ, file, pax, renamed

Members = list[tuple[str, bytes, int, str, bytes]]


def read(data: bytes) -> Members:
    """Path, type, mode, link and content of all members."""
    stream = io.BytesIO(data)
    found: Members = []
    for member in Archive(stream, "x.tar"):
        content = stream.read(member.size)
        assert len(content) == member.size
        found.append((clean_path(member.name, ""), member.type, member.mode & 0o7777, member.linkname, content))
    return found


def read_by_python(data: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
        return [
            (
                clean_path(member.name, ""),
                tarfile.REGTYPE if member.isreg() else member.type,
                member.mode & 0o7777,
                member.linkname if member.issym() or member.islnk() else "",
                archive.extractfile(member).read() if member.isreg() else b"",  # type: ignore[union-attr]
            )
            for member in archive
        ]


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_what_programs_read_differently_is_refused(data: bytes) -> None:
    with fails(UnpackError, "tar-ambiguous"):
        read(data)


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive_is_refused(data: bytes) -> None:
    if data == DAMAGED["half a file"]:
        # The member itself can be read; its content, and what comes after it, cannot.
        with pytest.raises(AssertionError):
            read(data)
    with fails(UnpackError, "archive-damaged"):
        list(Archive(io.BytesIO(data), "x.tar"))


@pytest.mark.parametrize(("data", "expected"), READ.values(), ids=READ)
def test_unusual_archives_that_all_read_alike_are_read(data: bytes, expected: dict[str, str | bytes]) -> None:
    members = read(data)
    files = {path: content for path, kind, _, _, content in members if kind == tarfile.REGTYPE}
    found: dict[str, str | bytes] = {
        path: link if kind == tarfile.SYMTYPE else files[link] if kind == tarfile.LNKTYPE else content
        for path, kind, _, link, content in members
    }
    assert found == expected
    assert members == read_by_python(data)


def test_the_comment_of_a_global_header_is_known_where_it_is_expected() -> None:
    data = pax({"comment": "a" * 40}, b"g") + READ["a prefix"][0]
    archive = Archive(io.BytesIO(data), "x.tar", may_comment=True)
    assert archive.comment is None
    assert [member.name for member in archive] == ["usr/share/file"]
    assert archive.comment == "a" * 40
    for data in AMBIGUOUS.values():
        if data != AMBIGUOUS["a global header removes the file of its name"]:
            with fails(UnpackError, "tar-ambiguous"):
                list(Archive(io.BytesIO(data), "x.tar", may_comment=True))


def test_extended_records_are_of_one_member_only() -> None:
    data = pax({"path": "usr/a", "uid": "70000", "SCHILY.xattr.user.a": "b"}) + READ["a prefix"][0]
    (first,) = Archive(io.BytesIO(data), "x.tar")
    assert (first.name, first.uid, first.pax_headers["SCHILY.xattr.user.a"]) == ("usr/a", 70000, "b")
    both = pax({"path": "usr/a"}) + READ["a prefix"][0][:1024] + READ["a full name"][0]
    assert [name for name, *_ in read(both)] == ["usr/a", "usr/" + "n" * 96]


def _changed(chance: random.Random, data: bytes) -> bytes:
    """A few bytes of headers changed, with valid checksums."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(min(len(out), 2048))
        out[place] = chance.choice([0, 32, 48, 49, 55, 0x80, 0xFF, *b"xgLKS15/.", chance.randrange(256)])
    return renamed(bytes(out), b"usr")


def test_what_is_read_is_what_python_and_gnu_tar_read(tmp_path: Path) -> None:
    """Changed archives are refused, or all programs read the same."""
    program = shutil.which("tar")
    chance = random.Random(11)
    accepted = 0
    for number in range(3000):
        data = _changed(chance, chance.choice([data for data, _ in READ.values()]))
        try:
            members = read(data)
        except (UnpackError, AssertionError):
            continue
        accepted += 1
        assert members == read_by_python(data), number
        if program and accepted % 10 == 0:
            (tmp_path / "x.tar").write_bytes(data)
            listed = subprocess.run(
                [program, "--quoting-style=literal", "-tf", tmp_path / "x.tar"], capture_output=True, check=False
            ).stdout
            names = [clean_path(name.decode("utf-8", "surrogateescape"), "") for name in listed.split(b"\n")[:-1]]
            assert names == [path for path, *_ in members] or any("\n" in path for path, *_ in members), number
    assert accepted > 200


def test_headers_of_many_records_are_read_in_time() -> None:
    """Each record copied the rest of its header: a package of some megabytes took hours."""
    member = pax({f"{number:06}": "" for number in range(80_000)}) + READ["a full name"][0][:1024]

    def work() -> None:
        archive = Archive(io.BytesIO(member * 30 + bytes(1024)), "x.tar")
        assert sum(len(found.pax_headers) for found in archive) == 30 * 80_000

    ends(work)


def test_records_of_extended_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of 52 KB with thirty million of them took a minute."""
    header = pax({f"x{number}": "" for number in range(50)})
    data = b"".join(header + file(b"a%d" % number, b"") for number in range(2)) + END
    monkeypatch.setattr(tarreader, "_MOST_RECORDS", 100)
    assert len(read(data)) == 2
    monkeypatch.setattr(tarreader, "_MOST_RECORDS", 99)
    with fails(UnpackError, "archive-damaged"):
        read(data)
