"""The weekly job that updates the lock and proposes the changes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.project import write_files
from tests.unit.workflows.checkout import DIGEST, Checkout, git

# A scripts/ci/tools.py that logs its arguments, but for --project DIR, and answers from ANSWERS.
TOOLS = """
import json, os, sys
from pathlib import Path
with open(os.environ["LOG"], "a") as file:
    file.write("tools " + " ".join(sys.argv[1:-2]) + "\\n")
answer = json.loads(os.environ["ANSWERS"]).get("tools", {})
for name, content in answer.get("files", {}).items():
    Path(sys.argv[-1], name).write_text(content)
print(answer.get("out", ""))
sys.exit(answer.get("code", 0))
"""


class TestLock:
    CHANGES = (
        {"kind": "debs", "name": "tools", "item": "make", "old": "1", "new": "2"},
        {"kind": "debs", "name": "tools", "item": "gone", "old": "1", "new": None},
    )
    PINNED = ({"kind": "base", "name": "ngc", "item": "manifest", "old": None, "new": DIGEST},)
    FAILED = ({"kind": "base", "name": "lost", "what": "no | connection", "next": "", "code": 6},)
    UPDATE = "lock --update --keep-going --json"
    BASES = "lock bases --keep-going --json"

    @pytest.fixture
    def project(self, checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
        origin = tmp_path_factory.mktemp("origin")
        git(origin, "init", "-q", "--bare")
        folder = checkout.folder
        write_files(folder, {"recipes/locks/tools.json": "old\n", ".gitignore": "/bin\n/log\n/output\n/results\n"})
        write_files(folder, {"scripts/ci/tools.py": TOOLS})
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "one")
        git(folder, "remote", "add", "origin", str(origin))
        return checkout

    def lock(
        self,
        project: Checkout,
        files: Mapping[str, str],
        changes: Any = (),
        failed: Any = (),
        pinned: Any = (),
        tools: Mapping[str, Any] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """changes, failed: of the update. pinned: bases that get their first pin. tools: the answer of tools.py."""
        update = {"changes": [*changes], "failed": [*failed]}
        bases = {"changes": [*pinned], "failed": [*self.FAILED]}
        answers = {
            self.UPDATE: {"out": json.dumps(update), "files": files, "code": 6 if failed else 0},
            self.BASES: {"out": json.dumps(bases), "code": 6},
        }
        answers["tools"] = tools or {"out": json.dumps({"changes": [], "failed": []})}
        return project.run("scripts/ci/run", "lock", "results", answers=answers)

    @pytest.mark.parametrize("opened", [False, True])
    def test_from_the_lock_to_the_pull_request(self, project: Checkout, opened: bool) -> None:
        changed = {"recipes/locks/tools.json": "new\n", "recipes/locks/more.json": "new\n"}
        files = changed | {"scripts/ci/matrix.py": "not for the pull request\n"}
        done = self.lock(project, files, self.CHANGES, pinned=self.PINNED)
        assert done.returncode == 0, done.stderr
        assert project.logged() == [self.UPDATE, self.BASES, "tools --update --json", "lock --check"]
        assert project.outputs() == {"changed": "true"}
        written = (project.folder / "results/table.md").read_text("utf-8")
        assert "| tools | gone | 1 | - |" in written
        assert f"| ngc | manifest | - | {DIGEST} |" in written
        assert "lost" not in written
        git(project.folder, "reset", "-q", "--hard")
        git(project.folder, "clean", "-q", "-d", "--force")

        project.program("gh", 'case "$*" in *"pr list"*) echo "$OPEN" ;; esac')
        done = project.run("scripts/ci/pull-request", "results", OPEN="7" if opened else "")
        assert done.returncode == 0, done.stderr
        *_, last, checks, images = project.logged()
        assert checks == "gh workflow run checks.yml --ref lock-update"
        assert images == "gh workflow run images.yml --ref lock-update"
        assert last.startswith("gh pr edit lock-update" if opened else "gh pr create --head lock-update --base main")
        assert git(project.folder, "diff", "--name-only", "main", "origin/lock-update").split() == [
            "recipes/locks/more.json",
            "recipes/locks/tools.json",
        ]

    def test_tools_are_proposed_when_nothing_else_can_be_resolved(self, project: Checkout) -> None:
        names = ("scripts/requirements.txt", "scripts/dev-requirements.txt")
        write_files(project.folder, dict.fromkeys(names, "a==1\n"))
        git(project.folder, "add", ".")
        git(project.folder, "commit", "-q", "-m", "two")
        rows = [{"kind": "tools", "name": name, "item": "a", "old": "1", "new": "2"} for name in names]
        tools = {"out": json.dumps({"changes": rows, "failed": []}), "files": dict.fromkeys(names, "a==2\n")}
        done = self.lock(project, {}, failed=self.FAILED, tools=tools)
        assert (done.returncode, project.outputs()) == (0, {"changed": "true"}), done.stderr
        written = (project.folder / "results/table.md").read_text("utf-8").splitlines()
        assert written[2:4] == [f"| {name} | a | 1 | 2 |" for name in names]
        git(project.folder, "reset", "-q", "--hard")
        project.program("gh")
        done = project.run("scripts/ci/pull-request", "results")
        assert done.returncode == 0, done.stderr
        assert set(git(project.folder, "diff", "--name-only", "main", "origin/lock-update").split()) == set(names)

    def test_nothing_changed(self, project: Checkout) -> None:
        assert self.lock(project, {}).returncode == 0
        assert project.outputs() == {"changed": "false"}

    def test_changes_are_proposed_and_failures_are_listed(self, project: Checkout) -> None:
        done = self.lock(project, {"recipes/locks/tools.json": "new\n"}, self.CHANGES, self.FAILED)
        assert done.returncode == 0, done.stderr
        assert project.outputs() == {"changed": "true"}
        assert "| lost | no \\| connection |" in (project.folder / "results/table.md").read_text("utf-8")

    def test_any_number_of_changes_fits_into_a_pull_request(self, project: Checkout) -> None:
        change = {"kind": "base", "name": "ngc", "item": "manifest", "old": DIGEST, "new": DIGEST}
        failed = [{**self.FAILED[0], "name": f"lost-{number}", "what": "no\n" * 200} for number in range(40)]
        done = self.lock(project, {"recipes/locks/tools.json": "new\n"}, [change] * 300, failed)
        assert done.returncode == 0, done.stderr
        written = (project.folder / "results/table.md").read_text("utf-8")
        assert len(written) < 65536
        assert written.count("\n… and ") == 2
        assert all(line.startswith(("|", "…", "Not resolved")) for line in written.splitlines() if line)
        count = sum(line.startswith("| ngc |") for line in written.splitlines())
        assert f"… and {300 - count} more." in written

    def test_tools_that_cannot_be_resolved_are_listed_and_set_the_exit_code(self, project: Checkout) -> None:
        failed = [{"kind": "tools", "name": "tools", "what": "uv cannot resolve"}]
        done = self.lock(project, {}, tools={"out": json.dumps({"changes": [], "failed": failed}), "code": 4})
        assert done.returncode == 4
        assert "| tools | uv cannot resolve |" in (project.folder / "results/table.md").read_text("utf-8")

    def test_nothing_could_be_resolved(self, project: Checkout) -> None:
        assert self.lock(project, {}, failed=self.FAILED).returncode == 6
        assert project.outputs() == {"changed": "false"}

    def test_builder_itself_fails(self, project: Checkout) -> None:
        done = project.run("scripts/ci/run", "lock", "results", answers={"lock": {"code": 3}})
        assert done.returncode == 3
