"""Wheels made in Python."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence

from builder.model.lock import Wheel


def wheel_name(name: str, version: str = "1.0") -> str:
    """The file name of a pure wheel."""
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def wheel(
    name: str,
    files: Mapping[str, bytes | str],
    *,
    version: str = "1.0",
    entry_points: str = "",
    modes: Mapping[str, int] | None = None,
    record: bytes | None = None,
    unrecorded: frozenset[str] = frozenset(),
    requires: Sequence[str] = (),
) -> bytes:
    """A wheel with these files. `{data}` in a path is the wheel's data folder. modes: by path, else 0644.

    record: instead of the right one; unrecorded: paths that the record leaves out.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    all_files: dict[str, bytes] = {}
    for path, content in files.items():
        all_files[path.replace("{data}", f"{stem}.data")] = content.encode() if isinstance(content, str) else content
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    all_files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode()
    all_files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if entry_points:
        all_files[f"{info}/entry_points.txt"] = entry_points.encode()
    if record is None:
        rows = [f"{p},{record_hash(d)},{len(d)}\n" for p, d in all_files.items() if p not in unrecorded]
        record = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    all_files[f"{info}/RECORD"] = record
    return archive(all_files, modes)


def archive(files: Mapping[str, bytes], modes: Mapping[str, int] | None = None) -> bytes:
    """A zip file with these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for path, data in files.items():
            member = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            mode = (modes or {}).get(path, 0o644)
            member.external_attr = (mode if mode & 0o170000 else mode | 0o100000) << 16
            made.writestr(member, data)
    return out.getvalue()


def record_hash(data: bytes) -> str:
    """A hash as RECORD spells it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def wheel_of(data: bytes, name: str = "a", size: int | None = None) -> Wheel:
    """The lock's entry of a wheel with these bytes."""
    sha256 = hashlib.sha256(data).hexdigest()
    return Wheel(name=name, version="1", file=f"{name}-1-py3-none-any.whl", sha256=sha256, size=size or len(data))
