"""The likely cause of a layer's difference, from the files that differ and the content of the first of them."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from builder.engine.process import output
from builder.smoke.image.index import LayerIndex
from builder.verify.cause import Data, Finding, examine
from builder.verify.elfdiff import Budget
from builder.verify.files import FileDifference, extract, other_order

_WHEEL = re.compile(r"(?:.*/)?([^/]+)-([^/-]+)\.dist-info/(?:RECORD|METADATA|WHEEL)")
_SECONDS, _REPORT = 120, 1 << 20
"""Time and bytes that diffoscope may take."""
_DPKG = "var/lib/dpkg/status"


def cause_of_layer(first: LayerIndex, second: LayerIndex, files: Sequence[FileDifference]) -> str:
    """The first differing file, its section and the likely cause, as one line; "" when there is none to name.

    Reads the two layers once more, for the content of that file. Raises as `extract`.
    """
    if not files:
        path = other_order(first, second)
        return f"order: another order of files, first at {path}" if path is not None else ""
    if wheel := _wheel(files):
        return wheel
    if any(file.path.startswith(_DPKG) for file in files):
        return "another Debian package: the list of installed packages differs"
    content = next((file for file in files if file.in_content), None)
    if content is not None:
        return str(next(examined(first, second, [content.path]), "")) or ""
    if all(file.only_time for file in files):
        return f"time: files have another modification time, first {files[0].path}"
    return str(files[0])


def _wheel(files: Sequence[FileDifference]) -> str:
    """Another wheel writes another RECORD: by hand, only the file itself is changed."""
    found = [match for file in files if (match := _WHEEL.fullmatch(file.path))]
    if not found:
        return ""
    versions = sorted({match[2] for match in found if match[1] == found[0][1]})
    return f"another wheel of {found[0][1]} ({' and '.join(versions)})"


def examined(
    first: LayerIndex, second: LayerIndex, paths: Sequence[str], budget: Budget | None = None
) -> Iterator[Finding]:
    """Compare the contents of files that both layers have, in the order of the paths. budget: of other files, too."""
    budget = budget or Budget()
    pairs = [(path, first.entries[path].source, second.entries[path].source) for path in paths]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        ours = extract(first.blob, {one for _, one, _ in pairs}, folder)
        theirs = extract(second.blob, {other for _, _, other in pairs}, folder)
        for path, one, other in pairs:
            if one in ours and other in theirs:
                yield examine(path, _mapped(ours[one], stack), _mapped(theirs[other], stack), budget)


def diffoscope(first: LayerIndex, second: LayerIndex, path: str) -> str:
    """What diffoscope says about a file that both layers have; "" where it is not installed, or takes too long."""
    program = shutil.which("diffoscope")
    if program is None:
        return ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # No temporary name is in what it prints: it would differ in each run.
        for layer, label in ((first, "first"), (second, "second")):
            for copy in extract(layer.blob, {layer.entries[path].source}, folder).values():
                copy.rename(folder / label)
        command = [program, "--no-progress", "--max-text-report-size", str(_REPORT), "first", "second"]
        try:
            return output(command, timeout=_SECONDS, limit=2 * _REPORT, folder=folder).text
        except (OSError, subprocess.SubprocessError):
            return ""


def _mapped(path: Path, stack: ExitStack) -> Data:
    """The bytes of a file, not in memory."""
    if path.stat().st_size == 0:
        return b""
    with path.open("rb") as file:
        return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
