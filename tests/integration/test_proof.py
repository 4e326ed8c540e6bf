"""`scripts/ci/run proof`: builds, rebuilds, varies, and writes a page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.engine.buildah import BuildahEngine
from tests.support.cli import Cli
from tests.support.project import ROOT


def proof(cli: Cli, *words: str) -> subprocess.CompletedProcess[str]:
    environment = cli.environment({"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]})
    script = [sys.executable, str(ROOT / "scripts/ci/proof.py"), *words]
    return subprocess.run(script, cwd=cli.folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not BuildahEngine().probe().usable, reason="buildah cannot be used here")
def test_a_record_of_real_rebuilds_becomes_a_page(online: Cli) -> None:
    online.write()
    image = ("--recipe", "tiny", "--base", "tiny", "--engine", "buildah")
    done = proof(online, "run", *image, "--vary", "umask", "--results", "proof")
    assert done.returncode == 0, done.stderr
    (path,) = (online.folder / "proof").iterdir()
    record = json.loads(path.read_text())
    assert online("build", "--recipe", "tiny").out.strip() == record["images"]["tiny"]
    assert {"root", "wheels-alpha", "placed"} <= {layer["name"] for layer in record["layers"].values()}
    assert all(layer["same"] and len(layer["varied"]) == 4 for layer in record["layers"].values()), record

    page = proof(online, "write", "proof")
    assert page.returncode == 0 and f"| tiny | tiny | `{record['images']['tiny']}` |" in page.stdout, page.stderr
    assert proof(online, "write", "nothing").returncode == 2
    # Another machine made other bytes of one layer, and the image.
    key = next(iter(record["layers"]))
    record["layers"][key] |= {"digest": "sha256:" + "1" * 64}
    Path(path.with_name("arm64-docker.json")).write_text(json.dumps(record | {"architecture": "arm64"}))
    assert proof(online, "write", "proof").returncode == 8
    # One variation changed a layer.
    record["layers"][key] |= {"digest": "sha256:" + "1" * 64, "changed": ["time 2001"]}
    path.unlink()
    path.with_name("arm64-docker.json").write_text(json.dumps(record))
    page = proof(online, "write", "proof")
    assert page.returncode == 8 and "time 2001 |" in page.stdout
