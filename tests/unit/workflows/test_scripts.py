"""The scripts of the workflows: the tools that they call, with fake tools that record their calls."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.workflows.checkout import Checkout


class TestTools:
    """The tools that each script calls, recorded by fakes."""

    def test_lint(self, checkout: Checkout) -> None:
        for name in ("ruff", "mypy", "lint-imports", "python", "shellcheck", "zizmor", "actionlint"):
            checkout.program(name)
        done = checkout.run("scripts/ci/lint", BUILDER_DEV=str(checkout.folder))
        assert done.returncode == 0, done.stderr
        ran = [line.split()[0] for line in checkout.logged()]
        assert ran == ["ruff", "ruff", "mypy", "lint-imports", "python", "shellcheck", "actionlint", "zizmor"]
        assert checkout.logged()[1] == "ruff format --check ."

    def test_unit(self, checkout: Checkout) -> None:
        checkout.program("python")
        assert checkout.run("scripts/ci/unit", "-x", BUILDER_DEV=str(checkout.folder)).returncode == 0
        (line,) = checkout.logged()
        assert re.fullmatch(r"python -m pytest --numprocesses=\d+ --dist=loadgroup tests/unit -x", line)

    def test_fast_needs_neither_root_nor_packages_nor_an_engine(self, checkout: Checkout) -> None:
        for name in (
            "ruff",
            "mypy",
            "lint-imports",
            "shellcheck",
            "zizmor",
            "actionlint",
            "python",
            "sudo",
            "apt-get",
            "docker",
        ):
            checkout.program(name)
        done = checkout.run("scripts/test", "--fast", "-x", BUILDER_DEV=str(checkout.folder))
        assert done.returncode == 0, done.stderr
        ran = [line.split()[0] for line in checkout.logged()]
        assert ran == ["ruff", "ruff", "mypy", "lint-imports", "python", "shellcheck", "actionlint", "zizmor", "python"]
        assert checkout.logged()[-1].endswith("tests/unit -m not network -x")

    def test_an_unknown_program_is_an_error(self, checkout: Checkout) -> None:
        done = checkout.run("scripts/ci/run", "nothing")
        assert done.returncode == 1
        assert "needs the name of a program" in done.stderr

    def test_the_list_of_packages_is_read_again_when_a_mirror_fails(self, checkout: Checkout) -> None:
        checkout.program("sudo", 'echo >>tries; [ "$(wc -l <tries)" -gt 2 ]')
        for name in ("apt-get", "dpkg-query", "id"):
            checkout.program(name, "echo 1000")
        command = ". scripts/lib.sh; apt_update"
        done = checkout.run("bash", "-euc", command, BUILDER_RETRY_PAUSE="0")
        assert (done.returncode, done.stderr.count("apt-get update failed")) == (0, 2), done.stderr

    @pytest.mark.parametrize(
        ("results", "passes"),
        [
            ({"lint": "success", "unit": "success"}, True),
            ({"changes": "success", "image": "skipped"}, True),
            ({"lint": "success", "unit": "failure"}, False),
            ({"lint": "success", "unit": "cancelled"}, False),
            ({"changes": "skipped", "image": "skipped"}, False),
            ({}, False),
        ],
    )
    def test_the_gate(self, checkout: Checkout, results: dict[str, str], passes: bool) -> None:
        needs = json.dumps({name: {"result": result, "outputs": {}} for name, result in results.items()})
        done = checkout.run("scripts/ci/gate", NEEDS=needs)
        assert (done.returncode == 0) == passes, done.stdout

    def test_online_audits_are_those_of_zizmor_alone(self, checkout: Checkout) -> None:
        checkout.program("zizmor")
        assert checkout.run("scripts/ci/lint", "--online", BUILDER_DEV=str(checkout.folder)).returncode == 0
        assert checkout.logged() == ["zizmor --no-progress ."]

    @pytest.mark.parametrize(
        ("given", "mirror"), [("", "ghcr.io/someone/images/inputs"), ("a.example/b", "a.example/b")]
    )
    def test_inputs_come_from_the_mirror_of_the_repository(self, checkout: Checkout, given: str, mirror: str) -> None:
        (checkout.folder / "builder/__main__.py").write_text("import os\nprint(os.environ['BUILDER_MIRROR'])\n")
        more = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "Someone/images", "BUILDER_DEB_MIRROR": "x"}
        done = checkout.run("scripts/ci/run", "builder", BUILDER_MIRROR=given, **more)
        assert done.stdout.strip() == mirror, done.stderr

    def test_the_mirror_of_the_inputs_of_all_groups(self, checkout: Checkout) -> None:
        groups = [{"base": "hermetic", "recipes": "a b"}, {"base": "ngc-26.04", "recipes": "c"}]
        run = {"MATRIX": json.dumps({"include": groups}), "MIRROR": "ghcr.io/Someone/images/inputs"}
        first = "mirror ghcr.io/someone/images/inputs --base hermetic --recipe a --recipe b"
        done = checkout.run("scripts/ci/mirror", answers={first: {"code": 6}}, **run)
        assert done.returncode == 6
        assert checkout.logged() == [first, "mirror ghcr.io/someone/images/inputs --base ngc-26.04 --recipe c"]
