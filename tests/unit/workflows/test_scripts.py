"""The scripts of the workflows, run here as they run there: with tools that only say that they were called."""

from __future__ import annotations

from tests.unit.workflows.checkout import Checkout


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
