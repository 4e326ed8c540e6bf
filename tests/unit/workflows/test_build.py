"""Building one image: the step of the workflows and of the action."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from tests.support.project import ROOT, write_files
from tests.unit.workflows.checkout import DIGEST, Checkout, answers


class TestBuild:
    def test_builds_and_tests_tier_by_tier(self, checkout: Checkout) -> None:
        inputs = {"RECIPES": "tiny other", "BASE": "hermetic", "TIERS": "static cpu", "REQUIRE": "true"}
        done = checkout.run("scripts/ci/build", answers=answers(), **inputs)
        assert (done.returncode, done.stdout) == (0, f"{DIGEST}\n{DIGEST}\n"), done.stderr
        assert [line.partition(" --junit")[0] for line in checkout.logged()] == [
            "plan --recipe tiny --base hermetic --json",
            "plan --recipe other --base hermetic --json",
            "build --recipe tiny --base hermetic",
            "build --recipe other --base hermetic",
            "test --recipe tiny --base hermetic --tier static --require",
            "test --recipe other --base hermetic --tier static --require",
            "test --recipe tiny --base hermetic --tier cpu --require",
            "gc --keep-inputs",
            "test --recipe other --base hermetic --tier cpu --require",
            "gc --keep-inputs",
        ]
        record = json.loads((checkout.folder / "results/tiny.json").read_text("utf-8"))
        assert record["digest"] == DIGEST
        assert record["tested"] == ["static", "cpu"]
        assert record["reference"] is None

    def test_without_require_nothing_counts_as_tested(self, checkout: Checkout) -> None:
        checkout.run("scripts/ci/build", answers=answers(), RECIPE="tiny", TIERS="static cpu")
        assert json.loads((checkout.folder / "results/tiny.json").read_text("utf-8"))["tested"] == []

    def test_layers_of_a_cache_are_taken_by_a_policy(self, checkout: Checkout) -> None:
        checkout.run("scripts/ci/build", answers=answers(), RECIPE="tiny", TIERS="", POLICY="team.yaml")
        assert checkout.logged()[-1] == "build --recipe tiny --policy team.yaml"

    def test_one_failing_image_does_not_stop_the_others(self, checkout: Checkout) -> None:
        report = "--junit results/tiny-static.xml --html results/tiny-static.html"
        failing = answers(**{f"test --recipe tiny --tier static {report}": {"code": 7, "out": "nccl fail"}})
        done = checkout.run("scripts/ci/build", answers=failing, RECIPES="tiny other", TIERS="static cpu")
        assert done.returncode == 7
        assert not (checkout.folder / "results/tiny.json").exists()
        assert (checkout.folder / "results/other.json").exists()
        assert not [line for line in checkout.logged() if "tiny --tier cpu" in line]

    INPUT: ClassVar = {"kind": "wheel", "name": "a", "sha256": "a" * 64, "size": 9}

    def test_inputs_are_dropped_before_the_cpu_tier(self, checkout: Checkout) -> None:
        blob = checkout.folder / "store/blobs/sha256" / ("a" * 64)
        write_files(checkout.folder, {str(blob.relative_to(checkout.folder)): "inputs..."})
        plan = {"out": json.dumps({"base": {"name": "tiny"}, "layers": [{"inputs": [self.INPUT]}]})}
        checkout.run("scripts/ci/build", answers=answers(plan=plan), RECIPE="tiny", TIERS="static cpu")
        assert blob.exists()
        done = checkout.run(
            "scripts/ci/build", answers=answers(plan=plan), RECIPE="tiny", TIERS="static cpu", DROP_INPUTS="true"
        )
        assert (done.returncode, blob.exists()) == (0, False)

    @pytest.mark.parametrize(
        ("plan", "tiers"),
        [
            ({"base": {"name": "tiny"}, "layers": [{"inputs": [INPUT | {"size": 10**15}]}]}, ""),
            (
                {"base": {"name": "bought", "image": "nvcr.io/a"}, "layers": [{"inputs": [INPUT | {"size": 10**15}]}]},
                "cpu",
            ),
        ],
    )
    def test_a_disk_that_is_too_small(self, checkout: Checkout, plan: Any, tiers: str) -> None:
        found = answers(plan={"out": json.dumps(plan)})
        done = checkout.run("scripts/ci/build", answers=found, RECIPE="tiny", TIERS=tiers)
        assert (done.returncode, "GB are needed" in done.stderr) == (5, True)
        assert not [line for line in checkout.logged() if line.startswith("build")]

    def test_as_the_step_of_the_action(self, checkout: Checkout) -> None:
        import yaml

        action = yaml.safe_load((ROOT / ".github/actions/build/action.yml").read_text("utf-8"))
        step = action["runs"]["steps"][0]
        defaults = {name: str(value.get("default", "tiny")) for name, value in action["inputs"].items()}
        inputs = {name: defaults[value[len("${{ inputs.") : -len(" }}")]] for name, value in step["env"].items()}
        folder = checkout.folder / ".github/actions/build"
        folder.mkdir(parents=True)
        done = checkout.run(
            "bash", "-e", "-c", step["run"], answers=answers(), GITHUB_ACTION_PATH=str(folder), **inputs
        )
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in checkout.logged()] == ["plan", "build", "test"]

    @pytest.mark.parametrize(("command", "code"), [("plan", 4), ("build", 5), ("test", 7)])
    def test_exit_codes_come_through_and_leave_no_record(self, checkout: Checkout, command: str, code: int) -> None:
        failing = answers(**{command: {"code": code}})
        done = checkout.run("scripts/ci/build", answers=failing, RECIPE="tiny")
        assert done.returncode == code
        assert not (checkout.folder / "results/tiny.json").exists()

    def test_the_summary_has_the_table_of_failures(self, checkout: Checkout) -> None:
        summary = checkout.folder / "summary"
        failing = answers(test={"code": 7, "out": "nccl-chosen static fail"})
        done = checkout.run("scripts/ci/build", answers=failing, RECIPE="tiny", GITHUB_STEP_SUMMARY=str(summary))
        assert done.returncode == 7
        assert "nccl-chosen static fail" in summary.read_text("utf-8")

    def test_another_digest_than_expected(self, checkout: Checkout) -> None:
        done = checkout.run("scripts/ci/build", answers=answers(), RECIPE="tiny", EXPECT="sha256:" + "e" * 64)
        assert done.returncode == 8
        assert not [line for line in checkout.logged() if line.startswith("test")]

    def test_values_are_not_evaluated_by_the_shell(self, checkout: Checkout) -> None:
        done = checkout.run(
            "scripts/ci/build", answers=answers(), RECIPE="tiny", BASE="$(touch hit)`touch hit`; touch hit"
        )
        assert done.returncode == 0
        assert not (checkout.folder / "hit").exists()


class TestGpuJob:
    """The step of the gpu job in spark.yml, run with its own text."""

    def step(self) -> dict[str, Any]:
        import yaml

        workflow = yaml.safe_load((ROOT / ".github/workflows/spark.yml").read_text("utf-8"))
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

    def test_runs_the_tier_on_the_published_image_and_requires_every_check(self, checkout: Checkout) -> None:
        done = self.run(checkout, self.IMAGE)
        assert done.returncode == 0, done.stderr
        *before, test = checkout.logged()
        assert before == ["plan --recipe tiny --base hermetic --json", "build --recipe tiny --base hermetic"]
        assert test == (
            "test --recipe tiny --base hermetic --tier gpu --require --serve small --junit results/tiny-gpu.xml "
            "--html results/tiny-gpu.html"
        )

    def test_a_peer_and_nccl_tests_come_from_variables(self, checkout: Checkout) -> None:
        spark = {"vars.SPARK_PEER": "192.168.100.11", "vars.SPARK_NCCL_TESTS": "/opt/all reduce_perf"}
        self.run(checkout, {**self.IMAGE, **spark, "inputs.serve": "recipe"})
        assert checkout.logged()[-1] == (
            "test --recipe tiny --base hermetic --tier gpu --require --serve recipe --peer 192.168.100.11 "
            "--nccl-tests /opt/all reduce_perf --junit results/tiny-gpu.xml --html results/tiny-gpu.html"
        )

    def test_another_image_is_not_tested(self, checkout: Checkout) -> None:
        done = self.run(checkout, {**self.IMAGE, "matrix.digest": "sha256:" + "e" * 64})
        assert done.returncode == 8
        assert not [line for line in checkout.logged() if line.startswith("test")]

    def test_failed_and_not_run_checks_fail_the_job(self, checkout: Checkout) -> None:
        done = self.run(checkout, self.IMAGE, test={"code": 7, "out": "device not run"})
        assert done.returncode == 7
        assert not (checkout.folder / "results/tiny.json").exists()

    def test_its_options_are_those_of_the_command(self) -> None:
        from typer.testing import CliRunner

        from builder.cli.app import app

        shown = CliRunner().invoke(app, ["test", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        assert all(option in shown for option in ("--serve", "--peer", "--nccl-tests", "--require", "--tier"))
