"""Archives that programs read differently, and unusual ones that all read alike."""

from __future__ import annotations

import tarfile

from tests.support.tars import Hard, Link, tar

END = bytes(1024)
FILE = b"content\n"


def _summed(block: bytes) -> bytes:
    block = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def header(
    name: bytes = b"usr/file",
    size: bytes | int = 0,
    kind: bytes = b"0",
    *,
    mode: bytes = b"0000644\0",
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    uid: bytes = b"0000000\0",
    mtime: bytes = b"13604063400\0",
    rest: bytes = b"",
) -> bytes:
    """One header block with a valid checksum. Fields are padded with NUL."""
    size = b"%011o\0" % size if isinstance(size, int) else size
    block = name.ljust(100, b"\0") + mode.ljust(8, b"\0") + uid + b"0000000\0" + size.ljust(12, b"\0") + mtime
    block += b" " * 8 + kind + link.ljust(100, b"\0") + magic + bytes(80) + prefix.ljust(155, b"\0")
    return _summed(block.ljust(500, b"\0") + rest.ljust(12, b"\0"))


def padded(data: bytes) -> bytes:
    """Data in whole blocks."""
    return data + bytes(-len(data) % 512)


def file(name: bytes = b"usr/file", data: bytes = FILE, **fields: bytes) -> bytes:
    """A member with this content."""
    return header(name, len(data), **fields) + padded(data)  # type: ignore[arg-type]


def pax(records: dict[str, str | bytes], kind: bytes = b"x") -> bytes:
    """An extended header."""
    data = b"".join(map(record, records, records.values()))
    return header(b"PaxHeaders/x", len(data), kind) + padded(data)


def record(key: str, value: str | bytes) -> bytes:
    """`LENGTH KEY=VALUE\\n`, where the length counts itself."""
    text = b" " + key.encode() + b"=" + (value if isinstance(value, bytes) else value.encode()) + b"\n"
    size = len(text)
    while len(str(size)) + len(text) != size:
        size = len(str(size)) + len(text)
    return str(size).encode() + text


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    """GNU's header for a name of any length."""
    return header(b"././@LongLink", len(name) + 1, kind, magic=b"ustar  \0") + padded(name + b"\0")


def base256(value: int, width: int = 12, first: int = 0x80) -> bytes:
    """A number as GNU tar writes those that octal digits cannot hold."""
    return bytes([first]) + value.to_bytes(width - 1, "big")


_NESTED = file(b"usr/hidden")

AMBIGUOUS: dict[str, bytes] = {
    # name: an archive whose members depend on the program
    "a global header names members": pax({"path": "usr/other"}, b"g") + file() + END,
    "a global header sets sizes": pax({"size": "0"}, b"g") + file(data=_NESTED) + END,
    "a global header sets a link": pax({"linkpath": "/etc/passwd"}, b"g") + header(kind=b"2", link=b"x") + END,
    "a global header sets owners": pax({"uid": "5"}, b"g") + file() + END,
    "a global header parts an extended one from its member": pax({"path": "usr/other"})
    + pax({"comment": "x"}, b"g")
    + file()
    + END,
    "a global header removes the file of its name": file(b"PaxHeaders/x") + pax({"comment": "x"}, b"g") + END,
    "two extended headers": pax({"path": "usr/a"}) + pax({"path": "usr/b"}) + file() + END,
    "two long names": long_name(b"usr/a") + long_name(b"usr/b") + file() + END,
    "a long name and an extended header": long_name(b"usr/a") + pax({"path": "usr/b"}) + file() + END,
    "an extended header and a long name": pax({"path": "usr/b"}) + long_name(b"usr/a") + file() + END,
    "an empty path": pax({"path": ""}) + file() + END,
    "an empty size": pax({"size": ""}) + file(data=_NESTED) + END,
    "a path with a NUL": pax({"path": b"usr/a\0b"}) + file() + END,
    "a long name with a NUL": long_name(b"usr/a\0b") + file() + END,
    "an empty long name": long_name(b"") + file() + END,
    "a record twice": header(b"x", 22, b"x") + padded(b"11 path=ab\n11 path=cd\n") + file() + END,
    "a record without end": header(b"x", 11, b"x") + padded(b"12 path=ab\n") + file() + END,
    "a record that ends early": header(b"x", 12, b"x") + padded(b"10 path=abc\n") + file() + END,
    "a record without a key": header(b"x", 8, b"x") + padded(b"8 =abcd\n") + file() + END,
    "a size with a sign": pax({"size": "+8"}) + file(data=_NESTED) + END,
    "a size in words": pax({"size": "1_0"}) + file(data=_NESTED) + END,
    "a sparse file of GNU": header(size=0, kind=b"S", magic=b"ustar  \0") + END,
    "a sparse file of pax": pax({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "usr/other"})
    + file(data=b"0\n")
    + END,
    "a sparse name of pax": pax({"GNU.sparse.name": "usr/other"}) + file() + END,
    "another character set": pax({"hdrcharset": "ISO-IR 8859 1 1998"}) + file() + END,
    "an extended header of Solaris": header(b"x", 18, b"X") + padded(record("path", "usr/b")) + file() + END,
    "a file of contiguous blocks": file(kind=b"7") + END,
    "a type that nobody knows": file(kind=b"Z") + END,
    "a link with content": header(size=len(_NESTED), kind=b"2", link=b"a") + _NESTED + END,
    "a folder with content": header(b"usr/", len(_NESTED), b"5") + _NESTED + END,
    "a hard link with content": file(b"usr/a") + header(b"usr/b", len(_NESTED), b"1", link=b"usr/a") + _NESTED + END,
    "a size behind a NUL": header(size=b"\x0000000001000") + _NESTED + END,
    "a size with an underscore": header(size=b"0000001_000\0") + _NESTED + END,
    "a size with a prefix": header(size=b"0o000001000\0") + _NESTED + END,
    "a size with a sign in octal": header(size=b"+0000001000\0") + _NESTED + END,
    "a negative size": header(size=base256((1 << 88) - 512, first=0xFF)) + _NESTED + END,
    "a size in base 256 with other bits": header(size=base256(1024, first=0x81)) + _NESTED + END,
    "a size beyond 63 bits": header(size=base256(1 << 63)) + END,
    "a size whose end is beyond 63 bits": header(size=base256((1 << 63) - 1)) + END,
    "a name behind a NUL": file(b"usr/a\0b") + END,
    "a link behind a NUL": header(kind=b"2", link=b"a\0b") + END,
    "a prefix in GNU's format": file(b"file", magic=b"ustar  \0", prefix=b"usr/other") + END,
    "a prefix in the oldest format": file(b"file", magic=bytes(8), prefix=b"usr/other") + END,
    "a prefix of star": file(b"file", prefix=b"usr/other", rest=b"\0" * 8 + b"tar\0") + END,
    "an unknown format": file(magic=b"ustar99\0", prefix=b"usr") + END,
    "a mode of another type": file(mode=b"0040755\0") + END,
    "a file with the name of a folder": file(b"usr/file/") + END,
    "a file in the oldest format with the name of a folder": file(b"usr/file/", kind=b"\0") + END,
    "a file in place of the root": file(b"./.") + END,
    "a link without a target": header(kind=b"2") + END,
    "a member after the end": file() + END + _NESTED + END,
    "a member after one empty block": file() + bytes(512) + _NESTED + END,
    "junk after the end": file() + END + bytes(5000) + b"x",
}
DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "no end": file(),
    "half a header": file() + header()[:300],
    "half a file": header(size=5000) + bytes(512),
    "half an extended header": header(b"x", 5000, b"x") + bytes(512),
    "an extended header without a member": file() + pax({"path": "usr/a"}) + END,
    "a wrong checksum": file().replace(b"usr/file", b"usr/fily", 1) + END,
    "no checksum": file()[:148] + b"junkjunk" + file()[156:] + END,
}
READ: dict[str, tuple[bytes, dict[str, str | bytes]]] = {
    # name: (an archive that all programs read alike, its links (text) and files (bytes))
    "an extended name": (pax({"path": "usr/käse"}) + file() + END, {"usr/käse": FILE}),
    "an extended size": (pax({"size": "8"}) + header(size=0) + padded(FILE) + END, {"usr/file": FILE}),
    "an extended attribute": (pax({"SCHILY.xattr.user.a": b"\0\xff"}) + file() + END, {"usr/file": FILE}),
    "a name in bytes": (pax({"hdrcharset": "BINARY", "path": b"usr/\xe9"}) + file() + END, {"usr/\udce9": FILE}),
    "a long name": (long_name(b"usr/" + b"n" * 200) + file() + END, {"usr/" + "n" * 200: FILE}),
    "a long name and a long link": (
        long_name(b"usr/" + b"n" * 200) + long_name(b"l" * 200, b"K") + header(kind=b"2", link=b"x") + END,
        {"usr/" + "n" * 200: "l" * 200},
    ),
    "a prefix": (file(b"file", prefix=b"usr/share") + END, {"usr/share/file": FILE}),
    "a full name": (file(b"usr/" + b"n" * 96) + END, {"usr/" + "n" * 96: FILE}),
    "the oldest format": (file(kind=b"\0", magic=bytes(8)) + END, {"usr/file": FILE}),
    "a size in base 256": (header(size=base256(8)) + padded(FILE) + END, {"usr/file": FILE}),
    "a size without NUL": (header(size=b"000000000010") + padded(FILE) + END, {"usr/file": FILE}),
    "spaces around a number": (header(size=b"         10 ") + padded(FILE) + END, {"usr/file": FILE}),
    "a time before 1970": (file(mtime=base256((1 << 88) - 5, first=0xFF)) + END, {"usr/file": FILE}),
    "a large owner": (file(uid=base256(1 << 24, 8)) + END, {"usr/file": FILE}),
    "a mode with its type": (file(mode=b"0100644\0") + END, {"usr/file": FILE}),
    "one empty block": (file() + bytes(512), {"usr/file": FILE}),
    "many empty blocks": (file() + bytes(20480), {"usr/file": FILE}),
    "a leading slash": (file(b"/usr//./file") + END, {"usr/file": FILE}),
    "links": (
        tar({"usr/a": FILE, "usr/b": Hard("usr/a"), "usr/c": Link("a")}),
        {"usr/a": FILE, "usr/b": FILE, "usr/c": "a"},
    ),
    "GNU's format": (
        tar({"usr/" + "n" * 200: FILE, "usr/c": Link("l" * 150)}, format=tarfile.GNU_FORMAT),
        {"usr/" + "n" * 200: FILE, "usr/c": "l" * 150},
    ),
}
LAYERS: dict[str, bytes] = {
    # name: an archive that is clear, but not as the layer of an image
    "a file twice": file() + file(data=b"other") + END,
    "a file and a folder": file() + header(b"usr/file/", kind=b"5") + END,
    "a folder and a file": header(b"usr/file/", kind=b"5") + file() + END,
    "a file under two spellings": file() + file(b"./usr//file", b"other") + END,
    "a file below a file": file() + file(b"usr/file/x") + END,
    "a file below a link": header(b"usr/l", kind=b"2", link=b"/etc") + file(b"usr/l/x") + END,
    "a link above a file": file(b"usr/l/x") + header(b"usr/l", kind=b"2", link=b"/etc") + END,
    "a file and its whiteout": file() + file(b"usr/.wh.file", b"") + END,
    "a whiteout and its file": file(b"usr/.wh.file", b"") + file() + END,
    "a whiteout above a file": file(b"usr/.wh.l", b"") + file(b"usr/l/x") + END,
    "a whiteout without a name": file(b"usr/.wh.", b"") + END,
    "a whiteout of the folder": file(b"usr/.wh..", b"") + END,
    "a whiteout of the parent": file(b"usr/.wh...", b"") + END,
    "a whiteout of all after its files": file() + file(b"usr/.wh..wh..opq", b"") + END,
    "a folder twice": header(b"usr/", kind=b"5") + header(b"usr/", kind=b"5") + END,
    "a hard link of another mode": file() + header(b"usr/b", kind=b"1", link=b"usr/file", mode=b"0004755\0") + END,
    "a file in a whiteout": file(b"usr/.wh.l/x") + END,
    "a file in a folder of aufs": file(b".wh..wh.plnk/x") + END,
    "a file of aufs": file(b".wh..wh.plnk/x") + file(b".wh..wh.aufs") + END,
}


def renamed(data: bytes, folder: bytes) -> bytes:
    """The archive with another name of three bytes for the folder `usr`, and with valid checksums again."""
    out = bytearray(data.replace(b"usr/", folder + b"/"))
    for start in range(0, len(out) - 511, 512):
        if data[start + 257 : start + 262] == b"ustar" or data[start : start + 512] == _summed(
            data[start : start + 512]
        ):
            out[start : start + 512] = _summed(out[start : start + 512])
    return bytes(out)
