"""The scripts of the workflows, run here as they run there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from tests.support.project import ROOT, sample, write_files

DIGEST = "sha256:" + "d" * 64
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

# A `builder` that writes its arguments down and answers from ANSWERS, by the whole command or its name.
FAKE = """
import json, os, sys
from pathlib import Path
with open(os.environ["LOG"], "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
answers = json.loads(os.environ["ANSWERS"])
answer = answers.get(" ".join(sys.argv[1:]), answers.get(sys.argv[1], {}))
for name, content in answer.get("files", {}).items():
    Path(os.environ["BUILDER_PROJECT"], name).write_text(content)
print(answer.get("out", ""))
sys.exit(answer.get("code", 0))
"""

# This repository's `builder`, in a checkout that has none of this repository's recipes.
ONLY_PROJECT = """
import os
from pathlib import Path
__version__ = "0"
__path__ = [{code!r}]
import builder.project
builder.project.search_path = lambda: (Path(os.environ["BUILDER_PROJECT"]),)
"""


class Checkout:
    """A copy of the scripts beside a `builder` that only pretends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.output = folder / "output"
        shutil.copytree(ROOT / "scripts/ci", folder / "scripts/ci", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "scripts/lib.sh", folder / "scripts/lib.sh")
        write_files(folder, {"builder/__init__.py": "", "builder/__main__.py": FAKE})

    def run(
        self, *command: str, answers: Mapping[str, Any] | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "BUILDER_PYTHON": sys.executable,
            "LOG": str(self.log),
            "ANSWERS": json.dumps(answers or {}),
            "GITHUB_OUTPUT": str(self.output),
            **more,
        }
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    def program(self, name: str, text: str = "") -> None:
        """A program on the path that writes its arguments down."""
        path = self.folder / "bin" / name
        write_files(self.folder, {f"bin/{name}": f'#!/bin/sh\necho "{name} $*" >>"$LOG"\n{text}\n'})
        path.chmod(0o755)

    def logged(self) -> list[str]:
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []

    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text("utf-8").splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


PLAN = {"base": {"name": "tiny"}, "layers": []}


def answers(**more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "plan": {"out": json.dumps(PLAN)},
        "build": {"out": DIGEST},
        "test": {"out": "all is well"},
        "push": {"out": f"ghcr.io/someone/images/tiny@{DIGEST}"},
        **more,
    }


class TestBuild:
    def test_builds_tests_and_pushes(self, checkout: Checkout) -> None:
        inputs = {"RECIPE": "tiny", "BASE": "hermetic", "TIERS": "static cpu", "PUSH": "ghcr.io/Someone/images"}
        done = checkout.run("scripts/ci/build", answers=answers(), **inputs)
        assert (done.returncode, done.stdout) == (0, f"{DIGEST}\n")
        assert checkout.logged() == [
            "plan --recipe tiny --base hermetic --json",
            "build --recipe tiny --base hermetic",
            (
                "test --recipe tiny --base hermetic --tier static --tier cpu --junit results/tiny.xml "
                "--html results/tiny.html"
            ),
            "push --recipe tiny --base hermetic ghcr.io/someone/images/tiny",
        ]
        reference = f"ghcr.io/someone/images/tiny@{DIGEST}"
        assert checkout.outputs() == {"digest": DIGEST, "reference": reference}
        record = json.loads((checkout.folder / "results/tiny.json").read_text("utf-8"))
        assert record["digest"] == DIGEST
        assert record["reference"] == reference

    def test_as_the_step_of_the_action(self, checkout: Checkout) -> None:
        import yaml

        action = yaml.safe_load((ROOT / ".github/actions/build/action.yml").read_text("utf-8"))
        [step] = action["runs"]["steps"]
        defaults = {name: str(value.get("default", "tiny")) for name, value in action["inputs"].items()}
        inputs = {name: defaults[value[len("${{ inputs.") : -len(" }}")]] for name, value in step["env"].items()}
        folder = checkout.folder / ".github/actions/build"
        folder.mkdir(parents=True)
        done = checkout.run(
            "bash", "-e", "-c", step["run"], answers=answers(), GITHUB_ACTION_PATH=str(folder), **inputs
        )
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in checkout.logged()] == ["plan", "build", "test"]

    @pytest.mark.parametrize(("command", "code"), [("plan", 4), ("build", 5), ("test", 7), ("push", 6)])
    def test_exit_codes_come_through_and_leave_no_record(self, checkout: Checkout, command: str, code: int) -> None:
        failing = answers(**{command: {"code": code}})
        done = checkout.run("scripts/ci/build", answers=failing, RECIPE="tiny", PUSH="ghcr.io/someone/images")
        assert done.returncode == code
        assert not (checkout.folder / "results/tiny.json").exists()

    def test_another_digest_than_expected(self, checkout: Checkout) -> None:
        done = checkout.run("scripts/ci/build", answers=answers(), RECIPE="tiny", EXPECT="sha256:" + "e" * 64)
        assert done.returncode == 8
        assert not [line for line in checkout.logged() if line.startswith("test")]

    def test_values_are_not_read_as_shell(self, checkout: Checkout) -> None:
        done = checkout.run(
            "scripts/ci/build", answers=answers(), RECIPE="tiny", BASE="$(touch hit)`touch hit`; touch hit"
        )
        assert done.returncode == 0
        assert not (checkout.folder / "hit").exists()


class TestGpuJob:
    """The step of the gpu job in publish.yml, run as it stands there."""

    def step(self) -> dict[str, Any]:
        import yaml

        workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text("utf-8"))
        [step] = [step for step in workflow["jobs"]["gpu"]["steps"] if "run" in step]
        return dict(step)

    def run(self, checkout: Checkout, given: Mapping[str, str], **answer: Any) -> subprocess.CompletedProcess[str]:
        step = self.step()
        names = {name: value[len("${{ ") : -len(" }}")] for name, value in step["env"].items() if "${{" in value}
        fixed = {name: value for name, value in step["env"].items() if "${{" not in value}
        return checkout.run(
            *("bash", "-e", "-c", step["run"]),
            answers=answers(**answer),
            **fixed,
            **{name: given.get(value, "") for name, value in names.items()},
        )

    IMAGE: ClassVar[dict[str, str]] = {
        "matrix.recipe": "tiny",
        "matrix.base": "hermetic",
        "matrix.digest": DIGEST,
        "inputs.serve": "small",
    }

    def test_runs_the_tier_on_the_very_image_and_requires_every_check(self, checkout: Checkout) -> None:
        done = self.run(checkout, self.IMAGE)
        assert done.returncode == 0, done.stderr
        *before, test = checkout.logged()
        assert before == ["plan --recipe tiny --base hermetic --json", "build --recipe tiny --base hermetic"]
        assert test == (
            "test --recipe tiny --base hermetic --tier gpu --require --serve small --junit results/tiny.xml "
            "--html results/tiny.html"
        )

    def test_a_peer_and_nccl_tests_come_from_variables(self, checkout: Checkout) -> None:
        spark = {"vars.SPARK_PEER": "192.168.100.11", "vars.SPARK_NCCL_TESTS": "/opt/all reduce_perf"}
        self.run(checkout, {**self.IMAGE, **spark, "inputs.serve": "recipe"})
        assert checkout.logged()[-1] == (
            "test --recipe tiny --base hermetic --tier gpu --require --serve recipe --peer 192.168.100.11 "
            "--nccl-tests /opt/all reduce_perf --junit results/tiny.xml --html results/tiny.html"
        )

    def test_another_image_is_not_tested(self, checkout: Checkout) -> None:
        done = self.run(checkout, {**self.IMAGE, "matrix.digest": "sha256:" + "e" * 64})
        assert done.returncode == 8
        assert not [line for line in checkout.logged() if line.startswith("test")]

    def test_what_fails_or_was_not_run_fails_the_job(self, checkout: Checkout) -> None:
        done = self.run(checkout, self.IMAGE, test={"code": 7, "out": "device not run"})
        assert done.returncode == 7
        assert not (checkout.folder / "results/tiny.json").exists()

    def test_its_options_are_those_of_the_command(self) -> None:
        from typer.testing import CliRunner

        from builder.cli.app import app

        shown = CliRunner().invoke(app, ["test", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        assert all(option in shown for option in ("--serve", "--peer", "--nccl-tests", "--require", "--tier"))


class TestChanges:
    """Which comparison each event asks for."""

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
            ("schedule", "", "--all"),
            ("workflow_dispatch", "", "--all"),
            ("workflow_dispatch", "tiny", "--recipe tiny"),
        ],
    )
    def test_without_asking(self, asked: Checkout, event: str, recipe: str, expected: str) -> None:
        done = asked.run("scripts/ci/changes", GITHUB_EVENT_NAME=event, RECIPE=recipe)
        assert (done.stdout.strip(), done.returncode) == (expected, 0)

    @pytest.mark.parametrize("published", ["", "0" * 40, "HEAD"])
    def test_a_push_is_compared_with_what_was_published(self, asked: Checkout, published: str) -> None:
        head = git(asked.folder, "rev-parse", "HEAD")
        commit = head if published == "HEAD" else published
        asked.program("gh", f"echo {commit}")
        more = {"GITHUB_EVENT_NAME": "push", "GITHUB_REPOSITORY": "someone/images", "GITHUB_REF_NAME": "main"}
        done = asked.run("scripts/ci/changes", **more)
        assert done.stdout.strip() == (f"--against {head}" if published == "HEAD" else "--all")
        assert "--status success" in asked.logged()[0]

    def test_github_does_not_answer(self, asked: Checkout) -> None:
        asked.program("gh", "exit 1")
        more = {"GITHUB_EVENT_NAME": "push", "GITHUB_REPOSITORY": "someone/images", "GITHUB_REF_NAME": "main"}
        assert asked.run("scripts/ci/changes", **more).returncode == 1


class TestMatrix:
    def test_only_what_a_commit_changes(self, tmp_path: Path) -> None:
        """Two recipes with the real `builder`; one gets another variable."""
        made = sample()
        tiny = made.files["recipes/tiny.yaml"] | {"layers": ["placed", "entrypoint"]}
        other = tiny | {"name": "other"}
        made.files |= {"recipes/tiny.yaml": tiny, "recipes/other.yaml": other}
        project = made.write(tmp_path).roots[0]
        write_files(project, {"builder/__init__.py": ONLY_PROJECT.format(code=str(ROOT / "builder"))})
        git(project, "init", "-q")
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "one")
        write_files(project, {"recipes/other.yaml": other | {"env": {"LAST": "another word"}}})
        command = ["scripts/ci/run", "matrix", "--project", str(project), "--against", "HEAD"]
        environment = os.environ | {"BUILDER_PYTHON": sys.executable, "GITHUB_OUTPUT": str(tmp_path / "output")}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"include": [{"recipe": "other", "base": "hermetic"}]}
        assert (tmp_path / "output").read_text("utf-8").splitlines()[-1] == "count=1"

    @pytest.fixture
    def matrix(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.syspath_prepend(str(ROOT / "scripts/ci"))
        import matrix  # type: ignore[import-not-found]

        yield matrix
        for name in ("matrix", "common"):
            sys.modules.pop(name, None)

    def test_bases(self, matrix: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def recipe(name: str, base: str, pinned: bool, *compatible: str) -> dict[str, Any]:
            return {"name": name, "base": base, "pinned": pinned, "compatible": compatible}

        bases = [{"name": "made", "family": "hermetic"}, {"name": "bought", "family": "ngc"}]
        recipes = [
            recipe("own", "made", True),
            recipe("also", "bought", False, "made"),
            recipe("vendor", "bought", True),
            recipe("lost", "bought", False),
        ]
        monkeypatch.setattr(matrix, "builder", lambda *words, root: json.dumps(bases if "bases" in words else recipes))
        assert matrix.targets(ROOT) == {"own": "hermetic", "also": "hermetic", "vendor": "bought"}
        assert capsys.readouterr().err == "lost: left out, bought is not pinned\n"

    @pytest.mark.parametrize("path", ["builder/code.py", "docs/page.md"])
    def test_code_alone_builds_the_canary(
        self, matrix: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
    ) -> None:
        git(tmp_path, "init", "-q")
        write_files(tmp_path, {path: "one\n"})
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", "one")
        write_files(tmp_path, {path: "two\n"})
        monkeypatch.setattr(matrix, "signatures", lambda root, found, workers: found)
        found = matrix.affected(tmp_path, {"one": "hermetic", "bird": "hermetic"}, "HEAD", "bird")
        assert found == ({"bird": "hermetic"} if path.startswith("builder") else {})


class TestRegistry:
    """Tags and comparisons, against a registry that has two manifests."""

    BLOB: ClassVar = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 2}
    MANIFEST = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": BLOB, "layers": []}).encode()

    @pytest.fixture
    def held(self) -> dict[str, bytes]:
        return {}

    @pytest.fixture
    def registry(self, held: dict[str, bytes]) -> Iterator[str]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = held.get(self.path.removeprefix("/v2/"))
                absent = 403 if "secret" in self.path else 404
                self.send_response(200 if data is not None or self.path == "/v2/" else absent)
                self.send_header("Content-Type", MANIFEST_TYPE)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data or b"")

            do_HEAD = do_GET

            def do_PUT(self) -> None:
                held[self.path.removeprefix("/v2/")] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.MANIFEST).hexdigest()}"

    def record(self, folder: Path, recipe: str, registry: str = "", digest: str = "", plan: str = "a" * 64) -> None:
        digest = digest or self.digest
        reference = f"{registry}/team/{recipe}@{digest}" if registry else None
        record = {"recipe": recipe, "base": "tiny", "plan": plan, "digest": digest, "reference": reference}
        write_files(folder, {f"{recipe}.json": record})

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"BUILDER_PYTHON": sys.executable}
        environment = {name: value for name, value in environment.items() if not name.startswith("GITHUB_")}
        return subprocess.run(
            ["scripts/ci/run", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    def test_tags(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        for recipe in ("one", "two"):
            held[f"team/{recipe}/manifests/{self.digest}"] = self.MANIFEST
            self.record(tmp_path / recipe, recipe, registry)
        done = self.run("tag", str(tmp_path))
        assert done.returncode == 0, done.stderr
        for recipe in ("one", "two"):
            assert held[f"team/{recipe}/manifests/latest"] == self.MANIFEST
            assert held[f"team/{recipe}/manifests/plan-{'a' * 16}"] == self.MANIFEST

    def test_no_tag_when_one_image_is_missing(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        held[f"team/one/manifests/{self.digest}"] = self.MANIFEST
        for recipe in ("one", "two"):
            self.record(tmp_path / recipe, recipe, registry)
        assert self.run("tag", str(tmp_path)).returncode == 4
        assert list(held) == [f"team/one/manifests/{self.digest}"]

    def test_equal_digests(self, tmp_path: Path) -> None:
        for machine in ("amd64", "arm64"):
            self.record(tmp_path / machine, "one")
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "2 built | equal" in done.stderr) == (0, True)

    def test_different_digests(self, tmp_path: Path) -> None:
        self.record(tmp_path / "amd64", "one")
        self.record(tmp_path / "arm64", "one", digest=DIGEST)
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "**differ**" in done.stderr) == (8, True)

    def test_published(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        self.record(tmp_path, "one")
        published = ("--published", f"{registry}/team")
        done = self.run("compare", str(tmp_path), *published)
        assert (done.returncode, "not published" in done.stderr) == (0, True)
        held[f"team/one/manifests/plan-{'a' * 16}"] = self.MANIFEST
        assert self.run("compare", str(tmp_path), *published).returncode == 0
        held[f"team/one/manifests/plan-{'a' * 16}"] = self.MANIFEST + b"\n"
        assert self.run("compare", str(tmp_path), *published).returncode == 8

    def test_a_registry_that_does_not_say(self, registry: str, tmp_path: Path) -> None:
        self.record(tmp_path, "one")
        assert self.run("compare", str(tmp_path), "--published", f"{registry}/secret").returncode == 6

    @pytest.mark.parametrize("program", ["compare", "tag"])
    def test_nothing_to_do(self, program: str, tmp_path: Path) -> None:
        assert self.run(program, str(tmp_path)).returncode == 2


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
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "one")
        git(folder, "remote", "add", "origin", str(origin))
        return checkout

    def lock(
        self, project: Checkout, files: Mapping[str, str], changes: Any = (), failed: Any = (), pinned: Any = ()
    ) -> subprocess.CompletedProcess[str]:
        """changes and failed: of what was locked. pinned: bases that were not; one of them never can be."""
        update = {"changes": [*changes], "failed": [*failed]}
        bases = {"changes": [*pinned], "failed": [*self.FAILED]}
        answers = {
            self.UPDATE: {"out": json.dumps(update), "files": files, "code": 6 if failed else 0},
            self.BASES: {"out": json.dumps(bases), "code": 6},
        }
        return project.run("scripts/ci/run", "lock", "results", answers=answers)

    @pytest.mark.parametrize("opened", [False, True])
    def test_from_the_lock_to_the_pull_request(self, project: Checkout, opened: bool) -> None:
        changed = {"recipes/locks/tools.json": "new\n", "recipes/locks/more.json": "new\n"}
        files = changed | {"scripts/ci/matrix.py": "not for the pull request\n"}
        done = self.lock(project, files, self.CHANGES, pinned=self.PINNED)
        assert done.returncode == 0, done.stderr
        assert project.logged() == [self.UPDATE, self.BASES, "lock --check"]
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
        last = project.logged()[-1]
        assert last.startswith("gh pr edit lock-update" if opened else "gh pr create --head lock-update --base main")
        assert git(project.folder, "diff", "--name-only", "main", "origin/lock-update").split() == [
            "recipes/locks/more.json",
            "recipes/locks/tools.json",
        ]

    def test_nothing_changed(self, project: Checkout) -> None:
        assert self.lock(project, {}).returncode == 0
        assert project.outputs() == {"changed": "false"}

    def test_what_can_be_resolved_is_proposed_and_the_rest_is_told(self, project: Checkout) -> None:
        done = self.lock(project, {"recipes/locks/tools.json": "new\n"}, self.CHANGES, self.FAILED)
        assert done.returncode == 0, done.stderr
        assert project.outputs() == {"changed": "true"}
        assert "| lost | no \\| connection |" in (project.folder / "results/table.md").read_text("utf-8")

    def test_nothing_could_be_resolved(self, project: Checkout) -> None:
        assert self.lock(project, {}, failed=self.FAILED).returncode == 6
        assert project.outputs() == {"changed": "false"}

    def test_builder_itself_fails(self, project: Checkout) -> None:
        done = project.run("scripts/ci/run", "lock", "results", answers={"lock": {"code": 3}})
        assert done.returncode == 3


class TestTools:
    """What the scripts run, with tools that only say that they were called."""

    def test_lint(self, checkout: Checkout) -> None:
        for name in ("ruff", "mypy", "zizmor", "actionlint"):
            checkout.program(name)
        done = checkout.run("scripts/ci/lint", BUILDER_DEV=str(checkout.folder))
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in checkout.logged()] == ["ruff", "mypy", "actionlint", "zizmor"]

    def test_unit(self, checkout: Checkout) -> None:
        checkout.program("python")
        assert checkout.run("scripts/ci/unit", "-x", BUILDER_DEV=str(checkout.folder)).returncode == 0
        assert checkout.logged() == ["python -m pytest tests/unit -x"]

    def test_a_program_that_does_not_exist(self, checkout: Checkout) -> None:
        done = checkout.run("scripts/ci/run", "nothing")
        assert done.returncode == 1
        assert "needs the name of a program" in done.stderr
