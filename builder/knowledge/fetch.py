"""Brings a vLLM source distribution here, from the package index that this machine is configured for."""

from __future__ import annotations

import re
from pathlib import Path

from builder.errors import NetworkError, PinError, UsageError
from builder.knowledge.extract import dump, extract
from builder.knowledge.table import FOLDER, Table, load_table
from builder.lock.write import write_file


def fetch_sdist(version: str, folder: Path, expected: str | None = None) -> Path:
    """The path of vLLM's source distribution in `folder`, downloaded when it is not there.

    expected: its sha256; without it, what the index says. Nothing is built or run. Raises PinError, NetworkError.
    """
    import requests
    from pypi_simple import DigestMismatchError, PyPISimple

    from builder.inputs.hosts import wheel_indexes
    from builder.inputs.mirrors import redact

    path = folder / f"vllm-{version}.tar.gz"
    if path.is_file():
        return path
    index = wheel_indexes()[0]
    try:
        with PyPISimple(index) as client:
            packages = client.get_project_page("vllm").packages
            found = next((p for p in packages if p.package_type == "sdist" and p.version == version), None)
            if found is None:
                raise PinError(f"the package index has no source distribution of vllm {version}", where=redact(index))
            if expected and (found.digests or {}).get("sha256") != expected:
                raise PinError(f"{found.filename} is another file than the table was read from", where=redact(index))
            folder.mkdir(parents=True, exist_ok=True)
            client.download_package(found, path, verify=True)
    except (requests.RequestException, DigestMismatchError) as error:
        path.unlink(missing_ok=True)
        raise NetworkError(f"cannot fetch vllm {version}: {type(error).__name__}", where=redact(index)) from error
    return path


def update_table(version: str, folder: Path) -> Table | None:
    """Writes the option table of `version` anew; the table if it changed. folder: where source distributions are kept.

    Raises UsageError for what is no version, PinError, NetworkError, InvalidError.
    """
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise UsageError(f"vllm=={version} is not a released version", next="for example vllm==0.33.0")
    table = extract(version, fetch_sdist(version, folder))
    if table == load_table(version):
        return None
    write_file(FOLDER / f"{version}.yaml", dump(table).encode("utf-8"))
    load_table.cache_clear()
    return table
