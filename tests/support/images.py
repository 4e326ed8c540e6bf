"""Small images, ELF files and fatbins, made of bytes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

EPOCH = 1577836800


@dataclass(frozen=True)
class Member:
    """A tar member: a file by default."""

    data: bytes = b""
    mode: int = 0o644
    type: bytes = tarfile.REGTYPE
    link: str = ""
    uid: int = 0
    pax: tuple[tuple[str, str], ...] = ()


def folder(mode: int = 0o755, uid: int = 0) -> Member:
    return Member(mode=mode, type=tarfile.DIRTYPE, uid=uid)


def link(target: str) -> Member:
    return Member(mode=0o777, type=tarfile.SYMTYPE, link=target)


def hard(target: str, mode: int = 0o644, uid: int = 0) -> Member:
    return Member(mode=mode, type=tarfile.LNKTYPE, link=target, uid=uid)


def program(data: bytes) -> Member:
    return Member(data, 0o755)


Files = Mapping[str, Member | bytes]


def tar(files: Files, *, parents: bool = True) -> bytes:
    """A tar of these files, with their parent folders before them."""
    members: dict[str, Member] = {}
    for path, what in files.items():
        parts = path.split("/")[:-1] if parents else []
        for depth in range(1, len(parts) + 1):
            members.setdefault("/".join(parts[:depth]), folder())
        members[path] = what if isinstance(what, Member) else Member(what)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, member in members.items():
            info = tarfile.TarInfo(path)
            info.type, info.mode, info.uid, info.linkname, info.mtime = (
                member.type,
                member.mode,
                member.uid,
                member.link,
                EPOCH,
            )
            info.size, info.pax_headers = len(member.data), dict(member.pax)
            archive.addfile(info, io.BytesIO(member.data))
    return out.getvalue()


def pack(data: bytes, how: str) -> bytes:
    if how == "zstd":
        return zstandard.ZstdCompressor(3).compress(data)
    return gzip.compress(data, 1, mtime=0) if how == "gzip" else data


def layout(
    where: Path,
    layers: Sequence[Files | bytes],
    *,
    how: str = "zstd",
    architecture: str = "arm64",
    history: Sequence[Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Path:
    """An OCI layout of one image. A layer given as bytes is taken as a tar."""
    blobs = where / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def put(data: bytes, media_type: str) -> dict[str, Any]:
        value = hashlib.sha256(data).hexdigest()
        (blobs / value).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{value}", "size": len(data)}

    def put_json(value: Any, kind: str) -> dict[str, Any]:
        return put(json.dumps(value).encode(), f"application/vnd.oci.image.{kind}.v1+json")

    tars = [layer if isinstance(layer, bytes) else tar(layer) for layer in layers]
    kind = "application/vnd.oci.image.layer.v1.tar" + ("" if how == "plain" else f"+{how}")
    described = [put(pack(data, how), kind) for data in tars]
    config = {
        "os": "linux",
        "architecture": architecture,
        "config": settings,
        **({"history": history} if history is not None else {}),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put_json(config, "config"),
        "layers": described,
    }
    index = {"schemaVersion": 2, "manifests": [put_json(manifest, "manifest")]}
    (where / "index.json").write_text(json.dumps(index))
    (where / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return where


def fatbin(*entries: tuple[int, int, int], version: int = 1, ptx: tuple[int, int] = (9, 0)) -> bytes:
    """A container with (kind, architecture, flags) entries: kind 1 is PTX, 2 a cubin. ptx: the version of the PTX."""
    body = b""
    for kind, arch, flags in entries:
        payload = b"\x7fCODE" + b"\0" * 19
        header = 64 if kind == 1 else 112
        body += (
            struct.pack("<HHIQ8xHHI8xQ", kind, 0x101, header, len(payload), ptx[1], ptx[0], arch, flags).ljust(
                header, b"\0"
            )
            + payload
        )
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(body)) + body


def elf(
    *,
    machine: int = 183,
    soname: str = "",
    needed: Sequence[str] = (),
    rpath: str = "",
    runpath: str = "",
    versions: Mapping[str, Sequence[str]] = {},
    provides: Sequence[str] = (),
    gpu: bytes = b"",
    more: bytes = b"",
    code: bytes = b"",
    comment: bytes = b"",
) -> bytes:
    """A shared object with nothing but the sections that are read."""
    strings = bytearray(b"\0")

    def text(value: str) -> int:
        strings.extend(value.encode() + b"\0")
        return len(strings) - len(value) - 1

    tags = [(1, text(name)) for name in needed]
    for tag, value in ((14, soname), (15, rpath), (29, runpath)):
        tags += [(tag, text(value))] if value else []
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    need = b""
    for number, (library, names) in enumerate(versions.items(), 1):
        end = number == len(versions)
        need += struct.pack("<HHIII", 1, len(names), text(library), 16, 0 if end else 16 + 16 * len(names))
        for place, name in enumerate(names, 1):
            need += struct.pack("<IHHII", 0, 0, place + 1, text(name), 0 if place == len(names) else 16)
    define = b""
    for place, name in enumerate(provides, 1):
        define += struct.pack("<HHHHIII", 1, 0, place, 1, 0, 20, 0 if place == len(provides) else 28)
        define += struct.pack("<II", text(name), 0)
    # name, type, link (number of the string table), info, content
    sections = [
        (".dynstr", 3, 0, 0, bytes(strings)),
        (".dynamic", 6, 1, 0, dynamic),
        (".gnu.version_r", 0x6FFFFFFE, 1, len(versions), need),
        (".gnu.version_d", 0x6FFFFFFD, 1, len(provides), define),
        (".nv_fatbin", 1, 0, 0, gpu),
        (".rodata", 1, 0, 0, more),
        (".text", 1, 0, 0, code),
        (".comment", 1, 0, 0, comment),
    ]
    sections = [section for section in sections if section[4]]
    names = b"\0" + b"".join(section[0].encode() + b"\0" for section in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, 0, 0, names))
    body = b""
    headers = b"\0" * 64
    for name, kind, linked, info, content in sections:
        body += b"\0" * (-len(body) % 8)
        entry = 16 if kind == 6 else 0
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        headers += struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, 64 + len(body), len(content), linked, info, 8, entry)
        body += content
    body += b"\0" * (-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections) + 1, len(sections)
    )
    return ident + head + body + headers


def ld_cache(entries: Mapping[str, str]) -> bytes:
    """An /etc/ld.so.cache."""
    rows, strings = bytearray(), bytearray()
    base = 48 + 24 * len(entries)
    for name, path in entries.items():
        key = base + len(strings)
        strings += name.encode() + b"\0"
        rows += struct.pack("<IIIIQ", 0x0A03, key, base + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    return b"glibc-ld.so.cache1.1" + struct.pack("<II20x", len(entries), len(strings)) + bytes(rows + strings)


SITE = "usr/lib/python3/dist-packages"


def record(files: Mapping[str, Member | bytes]) -> bytes:
    """The RECORD of a distribution in SITE with these files."""
    lines = []
    for path, what in files.items():
        data = what if isinstance(what, bytes) else what.data
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{path.removeprefix(SITE + '/')},sha256={digest},{len(data)}\n")
    return "".join(lines).encode()


def distribution(name: str, version: str, files: Files | None = None) -> dict[str, Member | bytes]:
    """The files of a Python distribution in SITE, with metadata and RECORD."""
    info = f"{SITE}/{name}-{version}.dist-info"
    made = {**(files or {}), f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n".encode()}
    return {**made, f"{info}/RECORD": record(made)}


SM_121 = (2, 121, 0x1008011)


def gb10(**changes: Member | bytes | None) -> list[dict[str, Member | bytes]]:
    """The layers of a healthy little image: a root, a torch and a Triton, and our NCCL over them.

    changes: files to put in or, when None, to leave out, by their path with `__` for `/` (top layer).
    """
    nccl = elf(soname="libnccl.so.2", gpu=fatbin(SM_121), versions={"libc.so.6": ["GLIBC_2.34"]})
    torch = elf(needed=["libnccl.so.2"], rpath="$ORIGIN/../../nvidia/nccl/lib")
    root: dict[str, Member | bytes] = {
        "bin": link("usr/bin"),
        "lib": link("usr/lib"),
        "tmp": folder(0o1777),
        "usr/bin/su": Member(elf(), 0o4755),
        "usr/bin/env": program(elf()),
        "usr/lib/aarch64-linux-gnu/libc.so.6": elf(provides=["GLIBC_2.17", "GLIBC_2.34", "GLIBC_2.36"]),
    }
    wheels: dict[str, Member | bytes] = {
        f"{SITE}/torch/lib/libtorch_cuda.so": torch,
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": elf(gpu=fatbin((2, 120, 0x1008011), (1, 120, 0x8011))),
        **distribution("triton", "3.6.0"),
        f"{SITE}/triton/backends/nvidia/bin/ptxas": program(elf(more=b"release 12.8, V12.8.93\0sm_120a\0")),
        f"{SITE}/triton/backends/nvidia/bin/ptxas-blackwell": program(elf(more=b"release 12.9, V12.9.86\0sm_121a\0")),
        **distribution("vllm", "0.20.0"),
    }
    mine = {path: what for path, what in wheels.items() if "dist-info" not in path}
    wheels |= distribution("torch", "2.11.0", mine)
    ours: dict[str, Member | bytes] = {
        "opt/nccl/lib/libnccl.so.2.29.7": nccl,
        "opt/nccl/lib/libnccl.so.2": link("libnccl.so.2.29.7"),
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": link("/opt/nccl/lib/libnccl.so.2"),
    }
    for name, what in changes.items():
        path = name.replace("__", "/")
        for layer in (root, wheels, ours):
            layer.pop(path, None)
        if what is not None:
            ours[path] = what
    return [root, wheels, ours]
