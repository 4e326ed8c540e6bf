"""Programs and libraries for arm64 of a few instructions: real ones, that the kernel (or qemu) and ld.so load."""

from __future__ import annotations

import struct

_ADDRESS = 0x400000


def arm64_program(text: bytes, status: int) -> bytes:
    """A static program that prints `text` (below 64 KiB) and exits with `status`."""
    code = [
        0xD2800020,  # mov x0, 1
        0x10000001 | (8 << 5),  # adr x1, 32 bytes on, where the text is
        0xD2800002 | (len(text) << 5),  # mov x2, length
        0xD2800808,  # mov x8, 64: write
        0xD4000001,  # svc 0
        0xD2800000 | (status << 5),  # mov x0, status
        0xD2800BA8,  # mov x8, 93: exit
        0xD4000001,  # svc 0
        0xD503201F,  # nop
    ]
    body = struct.pack("<9I", *code) + text
    start = 64 + 56
    size = start + len(body)
    header = _header(2, entry=_ADDRESS + start, segments=1)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x10000) + body


def arm64_nccl(version: int, *, gpu: bytes = b"", needed: str = "") -> bytes:
    """A libnccl.so.2 whose ncclGetVersion returns `version` (below 65536). gpu: a fatbin. needed: its DT_NEEDED.

    One segment holds all of it; section headers are there for those who read it without loading it.
    """
    names = b"\0ncclGetVersion\0libnccl.so.2\0" + needed.encode() + b"\0"
    code = struct.pack(
        "<4I",
        0x52800001 | (version << 5),  # mov w1, version
        0xB9000001,  # str w1, [x0]
        0x52800000,  # mov w0, 0: ncclSuccess
        0xD65F03C0,  # ret
    )
    parts: list[tuple[str, int, int, bytes]] = []  # name, type, number of the section with its names, content
    place = 64 + 2 * 56
    places: dict[str, int] = {}

    def add(name: str, kind: int, content: bytes, link: int = 0) -> None:
        nonlocal place
        places[name] = place
        content = content.ljust(-(-len(content) // 16) * 16, b"\0")
        parts.append((name, kind, link, content))
        place += len(content)

    add(".dynstr", 3, names)
    # One bucket, two symbols: the chain begins with the second and ends with it.
    add(".hash", 5, struct.pack("<5I", 1, 2, 1, 0, 0))
    add(".text", 1, code)
    symbol = struct.pack("<IBBHQQ", 1, 0x12, 0, 3, places[".text"], len(code))
    add(".dynsym", 11, bytes(24) + symbol, 1)
    tags = [(14, 16), (4, places[".hash"]), (5, places[".dynstr"]), (6, places[".dynsym"]), (10, len(names)), (11, 24)]
    tags += [(1, 16 + len("libnccl.so.2") + 1)] if needed else []
    add(".dynamic", 6, b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)]), 1)
    if gpu:
        add(".nv_fatbin", 1, gpu)
    titles = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    add(".shstrtab", 3, titles)
    rows = b"\0" * 64
    for name, kind, link, content in parts:
        title = titles.index(b"\0" + name.encode() + b"\0") + 1
        at, entry, info = places[name], {6: 16, 11: 24}.get(kind, 0), 1 if kind == 11 else 0
        rows += struct.pack("<IIQQQQIIQQ", title, kind, 2, at, at, len(content), link, info, 16, entry)
    dynamic = next(content for name, _, _, content in parts if name == ".dynamic")
    at = places[".dynamic"]
    segments = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, place, place, 0x10000)
    segments += struct.pack("<IIQQQQQQ", 2, 6, at, at, at, len(dynamic), len(dynamic), 8)
    header = _header(3, sections=(place, len(parts) + 1), segments=2)
    return header + segments + b"".join(content for *_, content in parts) + rows


def _header(kind: int, *, entry: int = 0, segments: int, sections: tuple[int, int] = (0, 0)) -> bytes:
    start, count = sections
    last = count - 1 if count else 0
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return ident + struct.pack("<HHIQQQIHHHHHH", kind, 183, 1, entry, 64, start, 0, 64, 56, segments, 64, count, last)
