"""Debian packages made in Python."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable, Mapping, Sequence

from tests.support.tars import Content, Folder, tar

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".zst": lambda data: b"\x28\xb5\x2f\xfd" + data,
}

PASSWD = {
    "usr/share/base-passwd/passwd.master": "root::0:0:root:/root:/bin/bash\nnobody:*:65534:65534:nobody:/:/bin/false\n",
    "usr/share/base-passwd/group.master": "root:*:0:\nnogroup:*:65534:\n",
}
"""The files of the package base-passwd, which every root needs."""


def deb(
    package: str,
    files: Mapping[str, Content],
    *,
    version: str = "1",
    architecture: str = "all",
    fields: Mapping[str, str] | None = None,
    conffiles: Sequence[str] = (),
    compression: str = ".xz",
) -> bytes:
    """A package with these files; folders of the paths come with it, as dpkg-deb writes them."""
    control = {"Package": package, "Version": version, "Architecture": architecture, **(fields or {})}
    lines = "".join(f"{name}: {value}\n" for name, value in control.items())
    meta: dict[str, Content] = {"control": lines}
    if conffiles:
        meta["conffiles"] = "".join(f"{path}\n" for path in conffiles)
    compress = _COMPRESS[compression]
    return ar(
        {
            "debian-binary": b"2.0\n",
            f"control.tar{compression}": compress(tar(meta, "./")),
            f"data.tar{compression}": compress(tar(with_folders(files), "./")),
        }
    )


def with_folders(files: Mapping[str, Content]) -> dict[str, Content]:
    """The files with their parent directories before them."""
    made: dict[str, Content] = {}
    for path, content in files.items():
        parts = path.split("/")
        for count in range(1, len(parts)):
            made.setdefault("/".join(parts[:count]), Folder())
        made[path] = content
    return made


def ar(members: Mapping[str, bytes]) -> bytes:
    """An ar archive."""
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return out
