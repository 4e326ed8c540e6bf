"""The workflows pass their linters (actionlint, zizmor) and the project's own rules."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.workflows.reading import ACTIONS, BY_NAME, ROOT, WORKFLOWS, read, tool


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
        assert not re.search(r"\bsecrets\b|github\.token|GITHUB_TOKEN|login-action|\benvironment\b", text)
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
    publishing = {("publish", name) for name in ("inputs", "image", "attest", "tag")}
    assert writers == publishing | {("spark", "tag")}
    publish = read(BY_NAME["publish"])
    assert publish["on"]["push"] == {"branches": ["main"]}
    assert publish["jobs"]["changes"]["if"] == "github.ref == 'refs/heads/main'"


def test_the_tag_comes_last() -> None:
    """An image is built on two architectures, tested, compared and signed before its tag is written."""
    found = read(BY_NAME["publish"])["jobs"]
    assert list(found) == ["changes", "inputs", "image", "rebuild", "digests", "attest", "tag"]
    assert found["tag"]["needs"] == ["digests", "attest"]
    assert found["attest"]["needs"] == "digests"
    assert found["digests"]["needs"] == ["changes", "image", "rebuild"]
    # A job with a condition of its own would also run after a failure.
    assert [name for name, job in found.items() if "if" in job] == ["changes", "inputs"]
    assert {found[name]["runs-on"] for name in ("image", "rebuild")} == {"ubuntu-24.04-arm", "ubuntu-24.04"}
    [compare] = [step["run"] for step in found["digests"]["steps"] if "compare" in step.get("run", "")]
    assert all(option in compare for option in ("--builds 2", "--tested", "--published", "--matrix"))
    [build] = [step["env"] for step in found["image"]["steps"] if step.get("run") == "../tool/scripts/ci/build"]
    assert (build["TIERS"], build["REQUIRE"], build["DROP_INPUTS"]) == ("static cpu", "true", "true")


@pytest.mark.parametrize(("workflow", "job"), jobs())
def test_no_login_is_there_while_code_of_images_runs(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    steps = [step.get("uses", step.get("run", "")) for step in job["steps"]]
    logins = [number for number, step in enumerate(steps) if step.startswith("docker/login-action@")]
    tests = re.compile(r"(\.\./tool/)?scripts/(ci/(build|unit)|test)\b")
    builds = [number for number, step in enumerate(steps) if tests.match(step)]
    assert not logins or not builds or max(builds) < min(logins)
    assert not (builds and "id-token" in job["permissions"])


@pytest.mark.parametrize(("workflow", "job"), jobs())
def test_jobs_with_an_identity_run_no_code_of_the_repository(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    if "id-token" in job["permissions"]:
        steps = [step.get("uses", step.get("run", "")) for step in job["steps"]]
        assert not [step for step in steps if step.startswith(("actions/checkout@", "scripts/", "../tool/"))]


def test_uploads_can_be_repeated() -> None:
    """A second run of failed jobs uploads artifacts of the same name."""
    for path in WORKFLOWS:
        for job in read(path)["jobs"].values():
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/upload-artifact@"):
                    assert step["with"]["overwrite"] is True


def test_the_spark_runs_only_what_a_person_starts_for_main() -> None:
    on_spark = [
        (path.stem, name, job)
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
        if "ubuntu" not in str(job["runs-on"]) and "${{" not in str(job["runs-on"])
    ]
    [(workflow, name, job)] = on_spark
    assert (workflow, name) == ("spark", "gpu")
    assert job["runs-on"] == {"group": "spark", "labels": ["self-hosted", "linux", "ARM64", "dgx-spark"]}
    assert job["environment"] == "spark"
    assert job["permissions"] == {"contents": "read"}
    assert job["needs"] == "images"
    spark = read(BY_NAME["spark"])
    assert list(spark["on"]) == ["workflow_dispatch"]
    assert spark["concurrency"] == {"group": "spark", "cancel-in-progress": False}
    assert spark["jobs"]["images"]["if"] == "github.ref == 'refs/heads/main'"


@pytest.mark.parametrize(("path", "name"), [(path, name) for path in WORKFLOWS for name in read(path)["jobs"]])
def test_runners_of_a_matrix_are_hosted(path: Path, name: str) -> None:
    job = read(path)["jobs"][name]
    if job["runs-on"] == "${{ matrix.runner }}":
        matrix = job["strategy"]["matrix"]
        runners = [*matrix["runner"], *(item["runner"] for item in matrix.get("include", []))]
        assert all(runner.startswith("ubuntu-") for runner in runners)


@pytest.mark.parametrize("stem", ["checks", "images"])
def test_one_job_sums_up_for_merge_queues(stem: str) -> None:
    workflow = read(BY_NAME[stem])
    *others, gate = workflow["jobs"]
    assert gate == "gate"
    assert workflow["jobs"]["gate"]["needs"] == others
    assert workflow["jobs"]["gate"]["if"] == "always()"
    assert {"pull_request", "merge_group", "workflow_dispatch"} <= workflow["on"].keys()


def test_published_and_nightly_images_are_built_from_nothing() -> None:
    """A layer from a cache proves nothing: only the workflow of pull requests may take one."""
    assert [path.stem for path in WORKFLOWS if "BUILDER_CACHE" in path.read_text("utf-8")] == ["images"]


def test_the_tag_job_gets_its_digests_from_the_job_digests() -> None:
    [*_, step] = read(BY_NAME["publish"])["jobs"]["tag"]["steps"]
    assert step["run"] == "../tool/scripts/ci/tag"
    assert step["env"] == {"GH_TOKEN": "${{ github.token }}", "IMAGES": "${{ needs.digests.outputs.images }}"}


def test_the_lock_job_runs_nothing_that_it_resolved() -> None:
    update = read(BY_NAME["lock"])["jobs"]["update"]
    assert [step.get("run") for step in update["steps"]] == [None, "scripts/ci/run lock results", None]
    assert update["steps"][1]["env"]["UV_EXCLUDE_NEWER"] == "5 days"


def test_the_action_passes_every_input_as_a_variable() -> None:
    action = read(ROOT / ".github/actions/build/action.yml")
    values = [
        value for step in action["runs"]["steps"] for key in ("env", "with") for value in step.get(key, {}).values()
    ]
    given = {found[1] for value in values if (found := re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value))}
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
