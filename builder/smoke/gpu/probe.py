"""Running the programs of `builder.smoke.probes` in a container, and parsing their output."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from builder.serve.spec import Container
from builder.smoke import probes
from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.gpu.docker import CompletedContainer, Docker
from builder.smoke.probes.say import MARK

_BOOT = """
import base64, io, runpy, sys, tempfile, zipfile
folder = tempfile.mkdtemp()
zipfile.ZipFile(io.BytesIO(base64.b64decode(sys.argv.pop(1)))).extractall(folder)
sys.path.insert(0, folder)
runpy.run_module("probes." + sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def probe_container(served: Container, name: str, argument: str = "", env: dict[str, str] | None = None) -> Container:
    """The container that serves a recipe, changed to run a probe: without port, weights and secrets.

    The programs are an argument, so that no folder must be shared with the container or the peer.
    """
    return replace(
        served,
        name=f"{served.name}-{name.replace('_', '-')}",
        env=tuple(sorted({**dict(served.env), **(env or {})}.items())),
        secrets=(),
        mounts=(),
        ports=None,
        entrypoint="python3",
        command=("-c", _BOOT, packed(), name, *([argument] if argument else [])),
        serves=False,
    )


@cache
def packed() -> str:
    """The probes as a zip in base64."""
    data = io.BytesIO()
    folder = Path(probes.__file__).parent
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.glob("*.py")):
            archive.writestr(f"probes/{path.name}", path.read_bytes())
    return base64.b64encode(data.getvalue()).decode()


def ask(docker: Docker, container: Container, timeout: float) -> dict[str, Any]:
    """The result of a probe. Raises CheckFailed when it broke, CheckNotRun when the image has nothing to probe."""
    return read(docker.run(container, timeout), timeout)


def read(done: CompletedContainer, timeout: float) -> dict[str, Any]:
    """The result in a probe's output. Raises CheckFailed, and CheckNotRun when the probe reports nothing to probe."""
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        tail = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])[-600:]
        how = f"did not end within {timeout:g} s" if done.code is None else f"ended with {done.code} and no result"
        raise CheckFailed(f"the probe {how}" + (f": {tail}" if tail else ""))
    try:
        found = json.loads(lines[-1][len(MARK) :])
    except ValueError as error:
        raise CheckFailed(f"the probe's result is not JSON: {lines[-1][:200]}") from error
    if not isinstance(found, dict):
        raise CheckFailed(f"the probe's result is no object: {lines[-1][:200]}")
    if "not_run" in found:
        raise CheckNotRun(str(found["not_run"]))
    if "error" in found and not isinstance(found["error"], dict):
        raise CheckFailed(str(found["error"]))
    return found
