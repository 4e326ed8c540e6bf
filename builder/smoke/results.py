"""Result files: one per image digest, beside the image; a tier's new results replace its old ones."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from builder.digest import Digest
from builder.errors import InvalidError
from builder.jsontext import parse_json
from builder.regular import read_regular
from builder.smoke.report import Report, Result, Status
from builder.store.blobs import disk_error
from builder.text import escaped

MEDIA_TYPE = "application/vnd.builder.smoke.results.v1+json"
"""The media type of the file when it is attached to an image, and the type of that artifact."""
LIMIT = 4 << 20
"""bytes"""


def results_folder(layout: Path) -> Path:
    """The folder of results: beside an OCI layout, inside a store."""
    if (layout / "oci-layout").exists():
        # The current folder and its parent have no name of their own.
        named = layout if layout.name not in ("", "..") else layout.resolve()
        return named.parent / f"{named.name}.results"
    return layout / "results"


def results_path(folder: Path, digest: Digest) -> Path:
    """The file of one image."""
    return folder / f"{digest.tag}.json"


def keep_results(report: Report, folder: Path) -> Path:
    """Write results to their file; returns its path. Earlier results of tiers that did not run now stay.

    Raises EngineError when the folder cannot be written.
    """
    path = results_path(folder, report.digest)
    whole = Report(report.digest)
    ran = {result.tier for result in report.results}
    if (before := read_results(folder, report.digest)) is not None:
        whole.results = [result for result in before.results if result.tier not in ran]
        whole.notes = [note for note in before.notes if note not in report.notes] if whole.results else []
    whole.add(report)
    order = ["static", "cpu", "gpu"]
    whole.results.sort(key=lambda result: order.index(result.tier) if result.tier in order else len(order))
    text = _text(whole)
    try:
        parse_json(text.encode())
    except ValueError:
        # An image decides how much there is to say about it; what cannot be read again would be no results.
        whole.results = [replace(result, details=None) for result in whole.results]
        text = _text(whole)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".partial-", dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise disk_error(error, folder) from error
    return path


def _text(report: Report) -> str:
    return escaped(json.dumps(report.as_dict(), indent=1, ensure_ascii=False)) + "\n"


def read_results(folder: Path, digest: Digest) -> Report | None:
    """The results of one image, None without a file. Raises InvalidError when the file is damaged."""
    path = results_path(folder, digest)
    try:
        data = read_regular(path, LIMIT)
    except FileNotFoundError:
        return None
    except OSError:
        data = b""
    return parse_results(data, digest, str(path))


def parse_results(data: bytes, digest: Digest, where: str) -> Report:
    """The results of one image, from a file. where: for the message. Raises InvalidError."""
    try:
        found: dict[str, Any] = parse_json(data)
        names = {field.name for field in fields(Result)}
        results = [Result(**{name: row[name] for name in names & set(row)}) for row in found["results"]]
        texts = [text for item in results for text in (item.id, item.kind, item.tier, item.message)]
        typed = all(isinstance(text, str) for text in texts)
        if not typed or not all(isinstance(item.seconds, int | float) for item in results):
            raise ValueError
        if found["digest"] != digest or not {result.status for result in results} <= set(get_args(Status)):
            raise ValueError
        return Report(digest, results, [str(note) for note in found["notes"]])
    except (ValueError, KeyError, TypeError):
        raise InvalidError(
            "not results of this image", id="results-invalid", where=where, next="remove the file and test again"
        ) from None
