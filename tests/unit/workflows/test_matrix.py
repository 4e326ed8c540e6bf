"""The build matrix: the images that a workflow run builds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from tests.support.cli import run_here
from tests.support.project import ROOT, sample, write_files
from tests.unit.workflows.checkout import Checkout, git

PUSH = {
    "GITHUB_EVENT_NAME": "push",
    "GITHUB_REPOSITORY": "someone/images",
    "GITHUB_REF_NAME": "main",
    "GITHUB_WORKFLOW_REF": "someone/images/.github/workflows/theirs.yml@refs/heads/main",
}


class TestChanges:
    """The comparison for each event."""

    @pytest.fixture
    def asked(self, checkout: Checkout) -> Checkout:
        (checkout.folder / "scripts/ci/matrix.py").write_text('import sys\nprint(" ".join(sys.argv[1:]))\n')
        git(checkout.folder, "init", "-q")
        git(checkout.folder, "commit", "-q", "--allow-empty", "-m", "one")
        return checkout

    @pytest.mark.parametrize(
        ("event", "recipe", "expected"),
        [
            ("pull_request", "", "--against HEAD^1"),
            ("merge_group", "", "--against HEAD^1"),
            ("schedule", "", "--all"),
            ("workflow_dispatch", "", "--all"),
            ("workflow_dispatch", "tiny", "--recipe tiny"),
        ],
    )
    def test_events_without_a_comparison(self, asked: Checkout, event: str, recipe: str, expected: str) -> None:
        done = asked.run("scripts/ci/changes", GITHUB_EVENT_NAME=event, RECIPE=recipe)
        assert (done.stdout.strip(), done.returncode) == (f"--project . {expected}", 0)

    def test_a_branch_that_a_workflow_opened_is_compared_with_main(self, asked: Checkout) -> None:
        main = git(asked.folder, "rev-parse", "HEAD")
        git(asked.folder, "update-ref", "refs/remotes/origin/main", main)
        git(asked.folder, "commit", "-q", "--allow-empty", "-m", "two")
        done = asked.run("scripts/ci/changes", GITHUB_EVENT_NAME="workflow_dispatch", AGAINST="origin/main")
        assert done.stdout.strip() == f"--project . --against {main}"

    @pytest.mark.parametrize("published", ["", "0" * 40, "HEAD"])
    def test_a_push_is_compared_with_the_last_published_commit(self, asked: Checkout, published: str) -> None:
        head = git(asked.folder, "rev-parse", "HEAD")
        commit = head if published == "HEAD" else published
        asked.program("gh", f"echo {commit}")
        done = asked.run("scripts/ci/changes", **PUSH)
        assert done.stdout.strip() == "--project . " + (f"--against {head}" if published == "HEAD" else "--all")
        # The workflow of the caller, where another repository calls `publish`.
        assert "--workflow theirs.yml " in asked.logged()[0]
        assert "--status success" in asked.logged()[0]

    def test_github_does_not_answer(self, asked: Checkout) -> None:
        asked.program("gh", "exit 1")
        assert asked.run("scripts/ci/changes", **PUSH).returncode == 1


class TestMatrix:
    def test_only_what_a_commit_changes(self, matrix: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Two recipes with the real `builder` in this process; one gets another variable."""
        one_at_a_time = Lock()

        def builder(*words: str, root: Path) -> str:
            environ = {"BUILDER_PROJECT": str(root), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
            with one_at_a_time:
                done = run_here(words, environ=environ, folder=tmp_path)
            assert done.code == 0, done.err
            return done.out

        monkeypatch.setattr(matrix, "builder", builder)
        made = sample()
        tiny = made.files["recipes/tiny.yaml"] | {"layers": ["placed", "entrypoint"]}
        other = tiny | {"name": "other"}
        made.files |= {"recipes/tiny.yaml": tiny, "recipes/other.yaml": other}
        project = made.write(tmp_path).roots[0]
        git(project, "init", "-q")
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "one")
        write_files(project, {"recipes/other.yaml": other | {"env": {"LAST": "another word"}}})
        found = matrix.affected(project, {"tiny": "tiny", "other": "tiny"}, "HEAD", "")
        assert matrix.groups(project, found) == [{"group": "tiny", "base": "tiny", "recipes": "other"}]

    def test_a_revision_that_does_not_exist(self, checkout: Checkout) -> None:
        git(checkout.folder, "init", "-q")
        bases = {"list bases --json": {"out": "[]"}, "list --json": {"out": "[]"}}
        done = checkout.run("scripts/ci/run", "matrix", "--against", "nothing", answers=bases)
        assert (done.returncode, done.stderr) == (2, "matrix: nothing is not a commit of this checkout\n")

    def test_recipes_on_one_base_are_one_job(self, checkout: Checkout) -> None:
        names = ("a", "b", "c")
        recipes = [{"name": name, "base": "made", "pinned": True, "compatible": []} for name in (*names, "shipped")]
        write_files(checkout.folder, {f"recipes/{name}.yaml": {"name": name} for name in names})
        found = {
            "list bases --json": {"out": json.dumps([{"name": "made", "family": "hermetic"}])},
            "list --json": {"out": json.dumps(recipes)},
        }
        for recipe, base in (("a", "made-1"), ("b", "made-2"), ("c", "made-1")):
            plan = {"out": json.dumps({"base": {"name": base}})}
            found[f"plan --recipe {recipe} --base hermetic --json"] = plan
        done = checkout.run("scripts/ci/run", "matrix", "--all", "--project", str(checkout.folder), answers=found)
        assert json.loads(done.stdout)["include"] == [
            {"group": "made-1", "base": "hermetic", "recipes": "a c"},
            {"group": "made-2", "base": "hermetic", "recipes": "b"},
        ]

    @pytest.fixture
    def matrix(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.syspath_prepend(str(ROOT / "scripts/ci"))
        import matrix  # type: ignore[import-not-found]

        yield matrix
        for name in ("matrix", "common"):
            sys.modules.pop(name, None)

    def test_bases(
        self, matrix: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def recipe(name: str, base: str, pinned: bool, *compatible: str) -> dict[str, Any]:
            return {"name": name, "base": base, "pinned": pinned, "compatible": compatible}

        bases = [{"name": "made", "family": "hermetic"}, {"name": "bought", "family": "ngc"}]
        recipes = [
            recipe("own", "made", True),
            recipe("also", "bought", False, "made"),
            recipe("vendor", "bought", True),
            recipe("lost", "bought", False),
        ]
        write_files(tmp_path, {f"recipes/{item['name']}.yaml": item for item in recipes})
        recipes.append(recipe("shipped", "made", True))
        monkeypatch.setattr(matrix, "builder", lambda *words, root: json.dumps(bases if "bases" in words else recipes))
        assert matrix.targets(tmp_path) == {"own": "hermetic", "also": "hermetic", "vendor": "bought"}
        assert capsys.readouterr().err == "lost: omitted, base bought is not pinned\n"

    @pytest.mark.parametrize(
        ("path", "canary", "expected"),
        [
            ("builder/code.py", "bird", {"bird"}),
            ("docs/page.md", "bird", set()),
            # In a repository with only recipes: it calls another commit of the workflow.
            (".github/workflows/images.yml", "nothing", {"one", "bird"}),
        ],
    )
    def test_code_alone_builds_the_canary_or_else_all(
        self,
        matrix: Any,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        path: str,
        canary: str,
        expected: set[str],
    ) -> None:
        git(tmp_path, "init", "-q")
        write_files(tmp_path, {path: "one\n"})
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", "one")
        write_files(tmp_path, {path: "two\n"})
        monkeypatch.setattr(matrix, "signatures", lambda root, found, workers: found)
        found = matrix.affected(tmp_path, {"one": "hermetic", "bird": "hermetic"}, "HEAD", canary)
        assert found.keys() == expected
