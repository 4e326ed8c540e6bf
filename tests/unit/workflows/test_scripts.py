"""The scripts of the workflows: the tools that they call, with fake tools that record their calls."""

from __future__ import annotations

import re

from tests.unit.workflows.checkout import Checkout


class TestTools:
    """The tools that each script calls, recorded by fakes."""

    def test_lint(self, checkout: Checkout) -> None:
        for name in ("ruff", "mypy", "lint-imports", "python", "zizmor", "actionlint"):
            checkout.program(name)
        done = checkout.run("scripts/ci/lint", BUILDER_DEV=str(checkout.folder))
        assert done.returncode == 0, done.stderr
        ran = [line.split()[0] for line in checkout.logged()]
        assert ran == ["ruff", "ruff", "mypy", "lint-imports", "python", "actionlint", "zizmor"]
        assert checkout.logged()[1] == "ruff format --check ."

    def test_unit(self, checkout: Checkout) -> None:
        checkout.program("python")
        assert checkout.run("scripts/ci/unit", "-x", BUILDER_DEV=str(checkout.folder)).returncode == 0
        (line,) = checkout.logged()
        assert re.fullmatch(r"python -m pytest --numprocesses=\d+ --dist=loadgroup tests/unit -x", line)

    def test_fast_needs_neither_root_nor_packages_nor_an_engine(self, checkout: Checkout) -> None:
        for name in ("ruff", "mypy", "lint-imports", "zizmor", "actionlint", "python", "sudo", "apt-get", "docker"):
            checkout.program(name)
        done = checkout.run("scripts/test", "--fast", "-x", BUILDER_DEV=str(checkout.folder))
        assert done.returncode == 0, done.stderr
        ran = [line.split()[0] for line in checkout.logged()]
        assert ran == ["ruff", "ruff", "mypy", "lint-imports", "python", "actionlint", "zizmor", "python"]
        assert checkout.logged()[-1].endswith("tests/unit -m not network -x")

    def test_an_unknown_program_is_an_error(self, checkout: Checkout) -> None:
        done = checkout.run("scripts/ci/run", "nothing")
        assert done.returncode == 1
        assert "needs the name of a program" in done.stderr
