"""Another repository calls `publish`: the scripts of the commit that the call names run on the caller's recipes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from tests.unit.workflows.reading import BY_NAME, ROOT, read, tool


def test_every_job_has_both_checkouts() -> None:
    publish = read(BY_NAME["publish"])
    assert publish["on"]["workflow_call"]["inputs"].keys() == publish["on"]["workflow_dispatch"]["inputs"].keys()
    assert publish["defaults"] == {"run": {"working-directory": "project"}}
    for name, job in publish["jobs"].items():
        checkouts = {
            step["with"]["path"]: {key: step["with"].get(key) for key in ("repository", "ref")}
            for step in job["steps"]
            if step.get("uses", "").startswith("actions/checkout@")
        }
        ours = {"repository": "${{ job.workflow_repository }}", "ref": "${{ job.workflow_sha }}"}
        project = {"repository": None, "ref": None}
        assert checkouts == ({} if name == "attest" else {"project": project, "tool": ours})
        for step in job["steps"]:
            if "scripts/" in step.get("run", ""):
                assert step["run"].startswith("../tool/scripts/ci/")
            if "upload-artifact@" in step.get("uses", ""):
                assert step["with"]["path"].startswith("project/")


def test_the_example_of_the_documents(tmp_path: Path) -> None:
    text = (ROOT / "docs/publish.md").read_text("utf-8")
    examples = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", text, re.S)]
    [job] = [job for example in examples for job in example["jobs"].values() if "uses" in job]
    assert re.fullmatch(r"OWNER/builder/\.github/workflows/publish\.yml@COMMIT", job["uses"])
    needed: dict[str, str] = {}
    for each in read(BY_NAME["publish"])["jobs"].values():
        for scope, level in each["permissions"].items():
            needed[scope] = max(level, needed.get(scope, ""))
    assert job["permissions"] == needed
    program = tool("actionlint")
    assert program is not None
    for number, part in enumerate(re.findall(r"```yaml\n(.*?)```", text, re.S)):
        path = tmp_path / f"{number}.yml"
        path.write_text(part.replace("COMMIT", "0" * 40), "utf-8")
        done = subprocess.run([program, "-no-color", path], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
