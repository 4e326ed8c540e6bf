"""The workflows pass their linters (actionlint, zizmor) and the project's own rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github/actions").glob("*/action.yml"))
BY_NAME = {path.stem: path for path in WORKFLOWS}


def read(path: Path) -> dict[str, Any]:
    """A workflow. YAML 1.1 reads its key `on` as true."""
    data = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(data, dict)
    if True in data:
        data["on"] = data.pop(True)
    return data


def jobs() -> list[Any]:
    return [
        pytest.param(read(path), job, id=f"{path.stem}.{name}")
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
    ]


def steps() -> list[Any]:
    found = [(path.stem, step) for path in WORKFLOWS for job in read(path)["jobs"].values() for step in job["steps"]]
    found += [(path.parent.name, step) for path in ACTIONS for step in read(path)["runs"]["steps"]]
    return [pytest.param(step, id=f"{name}-{number}") for number, (name, step) in enumerate(found)]


def tool(name: str) -> str | None:
    """A program beside this interpreter, else on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def test_actionlint() -> None:
    program = tool("actionlint")
    assert program is not None, "a fork of actionlint is in scripts/dev-requirements.txt"
    done = subprocess.run([program, "-no-color"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_zizmor() -> None:
    program = tool("zizmor")
    assert program is not None, "zizmor is in scripts/dev-requirements.txt"
    command = [program, "--offline", "--no-progress", "--color", "never", "--strict-collection", ".github"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_action_is_a_listed_commit(path: Path) -> None:
    listed = {pin["uses"]: pin["version"] for pin in yaml.safe_load((ROOT / ".github/pins.yaml").read_text("utf-8"))}
    for uses, version in re.findall(r"(?m)^[\s-]*uses:\s*(\S+)(?:\s+#\s*(\S+))?", path.read_text("utf-8")):
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", uses)
        assert listed.get(uses) == version


def test_every_listed_action_is_used() -> None:
    listed = {pin["uses"] for pin in yaml.safe_load((ROOT / ".github/pins.yaml").read_text("utf-8"))}
    text = "".join(path.read_text("utf-8") for path in WORKFLOWS)
    assert {uses for uses in listed if uses in text} == listed


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_grant_no_permission_by_default(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}


@pytest.mark.parametrize(("workflow", "job"), jobs())
def test_every_job_has_permissions_and_a_timeout(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    assert job["permissions"]
    assert job["timeout-minutes"] <= 300
    checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize(("workflow", "job"), jobs())
def test_pull_requests_get_no_secret(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    triggers = workflow["on"]
    assert "pull_request_target" not in triggers
    assert "workflow_run" not in triggers
    if "pull_request" in triggers:
        text = json.dumps([workflow.get("env"), job])
        assert not re.search(r"\bsecrets\b|github\.token|GITHUB_TOKEN|login-action", text)
        assert job["permissions"] == {"contents": "read"}
        assert "self-hosted" not in str(job["runs-on"])


@pytest.mark.parametrize("step", steps())
def test_shell_steps_are_one_line_without_expressions(step: dict[str, Any]) -> None:
    """Longer ones are scripts, which run anywhere; expressions in shell would let their values be read as code."""
    command = step.get("run", "")
    assert "\n" not in command.strip()
    assert "${{" not in command
    for script in re.findall(r"scripts/ci/[\w-]+", command):
        assert (ROOT / script).stat().st_mode & 0o111
    for program in re.findall(r"scripts/ci/run (\w+)", command):
        assert (ROOT / f"scripts/ci/{program}.py").is_file()


def test_only_publishing_writes_packages_and_only_for_main() -> None:
    writers = {
        (path.stem, name)
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
        if job["permissions"].get("packages") == "write"
    }
    assert writers == {("publish", "image"), ("publish", "tag")}
    publish = read(BY_NAME["publish"])
    assert publish["on"]["push"] == {"branches": ["main"]}
    assert publish["jobs"]["changes"]["if"] == "github.ref == 'refs/heads/main'"


def test_the_tag_comes_last() -> None:
    found = read(BY_NAME["publish"])["jobs"]
    assert list(found) == ["changes", "image", "digests", "gpu", "tag"]
    assert found["tag"]["needs"] == ["digests", "gpu"]
    assert found["digests"]["needs"] == "image"
    assert found["gpu"]["runs-on"] == ["self-hosted", "linux", "ARM64", "dgx-spark"]
    assert "workflow_dispatch" in found["gpu"]["if"]


def test_the_tag_job_gets_its_digests_from_the_job_digests() -> None:
    [*_, step] = read(BY_NAME["publish"])["jobs"]["tag"]["steps"]
    assert step == {
        "run": 'scripts/ci/run tag "$IMAGES"',
        "env": {"IMAGES": "${{ needs.digests.outputs.images }}"},
    }


def test_the_action_passes_every_input_as_a_variable() -> None:
    action = read(ROOT / ".github/actions/build/action.yml")
    [step] = action["runs"]["steps"]
    given = {re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1] for value in step["env"].values()}  # type: ignore[index]
    assert given == set(action["inputs"])


def test_bots_leave_locked_files_alone() -> None:
    renovate = json.loads((ROOT / ".github/renovate.json").read_text("utf-8"))
    # pyproject.toml pins what writes the bytes of layers.
    ours = {"recipes/locks/**", "recipes/bases/**", "scripts/**/*requirements.txt", "pyproject.toml"}
    assert ours <= set(renovate["ignorePaths"])
    dependabot = read(ROOT / ".github/dependabot.yml")
    for update in dependabot["updates"]:
        if update["package-ecosystem"] != "github-actions":
            assert update["open-pull-requests-limit"] == 0
            assert update["ignore"] == [{"dependency-name": "*"}]


@pytest.mark.parametrize("name", ["requirements.txt", "dev-requirements.txt"])
def test_requirements_are_hashed_and_name_no_host(name: str) -> None:
    text = (ROOT / "scripts" / name).read_text("utf-8")
    assert "://" not in text
    for entry in re.split(r"\n(?=[a-z])", re.sub(r"(?m)^#.*\n", "", text)):
        assert re.match(r"[a-z0-9-]+==\S+", entry)
        assert "--hash=sha256:" in entry


@pytest.mark.parametrize(
    ("name", "group"),
    [("requirements.txt", None), ("dev-requirements.txt", "dev")],
)
def test_requirements_satisfy_pyproject(name: str, group: str | None) -> None:
    """`scripts/ci/run tools` writes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    requested = project["dependency-groups"][group] if group else project["project"]["dependencies"]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (ROOT / "scripts" / name).read_text("utf-8"), re.M))
    for requirement in map(Requirement, requested):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


def test_tests_run_with_the_versions_that_users_get() -> None:
    names = ("requirements.txt", "dev-requirements.txt")
    run, test = ({*re.findall(r"^[a-z0-9-]+==\S+", (ROOT / "scripts" / name).read_text(), re.M)} for name in names)
    assert run <= test
