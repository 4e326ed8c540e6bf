"""Downloads a vLLM source distribution and updates the option table that is read from it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from builder.atomic import write_file
from builder.errors import InvalidError, NetworkError, PinError, UsageError
from builder.inputs.fetch import new_session
from builder.inputs.hosts import wheel_indexes
from builder.inputs.index import project_files
from builder.inputs.mirrors import redact
from builder.inputs.transfer import TransferError, save
from builder.knowledge.extract import dump, extract
from builder.knowledge.table import Table, folders, load_table, read_table
from builder.store.blobs import hash_of

_EXAMPLE = "name a released version, for example vllm==0.33.0"


def fetch_sdist(version: str, folder: Path, expected: str | None = None) -> Path:
    """The path of vLLM's source distribution in `folder`, downloaded when it is missing or has another hash.

    expected: its sha256; without it, the hash that the index lists. Nothing is built or executed. Raises PinError,
    NetworkError.
    """
    path = folder / f"vllm-{version}.tar.gz"
    if expected and _is(path, expected):
        return path
    index = wheel_indexes()[0]
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new_session() as session:
            packages = project_files(session, index, "vllm")
            found = next((p for p in packages if p.package_type == "sdist" and p.version == version), None)
            if found is None:
                what = f"the package index has no source distribution of vllm {version}"
                raise PinError(what, id="vllm-sdist-missing", where=redact(index), next=_EXAMPLE)
            digest = (found.digests or {}).get("sha256")
            if expected and digest != expected:
                raise _changed("is not the file that the option table was read from", index)
            if digest is None or not _is(path, digest):
                folder.mkdir(parents=True, exist_ok=True)
                seen, _ = save(session, found.url, part)
                if digest is not None and seen != digest:
                    raise _changed("is not the file that the package index lists", index)
                part.replace(path)
    except TransferError as error:
        what = f"cannot fetch vllm {version}"
        raise NetworkError(what, id="vllm-sdist-unreachable", where=redact(index), cause=error.detail) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _changed(what: str, index: str) -> PinError:
    return PinError(f"the source distribution of vllm {what}", id="vllm-sdist-changed", where=redact(index))


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and hash_of(path).hex == sha256


def update_table(version: str, folder: Path) -> Table | None:
    """Write the option table of `version`; returns it if it changed. folder: where the source distribution goes.

    Raises UsageError when `version` is not a released version, PinError, NetworkError, InvalidError.
    """
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise UsageError(f"vllm=={version} is not a released version", id="vllm-version-unreleased", next=_EXAMPLE)
    sdist = fetch_sdist(version, folder)
    try:
        table = extract(version, sdist)
    except InvalidError as error:
        advice = error.next or "before 0.18 the layout differs; for a newer version adapt builder/knowledge/extract.py"
        raise error.replaced(what=f"vllm {version}: {error.what}", next=advice) from None
    if table == load_table(version):
        return None
    write_file(folders()[0] / f"{version}.yaml", dump(table).encode("utf-8"))
    read_table.cache_clear()
    return table
