"""Attached SBOMs against a plan whose steps install Python distributions."""

from __future__ import annotations

from typing import Any

import pytest

from builder.attest.inventory import expected
from builder.verify.statements import CYCLONEDX, _problem
from tests.support.fixtures import MakePlan
from tests.support.project import Sample

OWN = "pkg:pypi/twice@1.0"


def document(listed: dict[str, str]) -> dict[str, Any]:
    """A CycloneDX document that lists these purls with their hashes."""
    rows = [{"purl": purl, "hashes": [{"alg": "SHA-256", "content": sha256}]} for purl, sha256 in listed.items()]
    return {"bomFormat": "CycloneDX", "components": rows}


@pytest.mark.parametrize(
    ("step", "more", "refused"),
    [
        ("python3 setup.py /usr/lib/python3/dist-packages", {OWN: ""}, False),
        ("python3 setup.py /usr/lib/python3/dist-packages", {OWN: "0" * 64}, True),
        ("python3 setup.py /usr/lib/python3/dist-packages", {"pkg:deb/debian/twice@1.0": ""}, True),
        ("make", {OWN: ""}, True),
        ("mkdir -p /out/usr/lib/python3/dist-packages/nvidia/nccl", {OWN: ""}, True),
    ],
)
def test_only_steps_that_install_python_may_add_distributions(
    small: Sample, make_plan: MakePlan, step: str, more: dict[str, str], refused: bool
) -> None:
    path = "dockerfiles/layers/compiled/Dockerfile.j2"
    small.files[path] = small.files[path].replace("make -f", f"{step} && make -f")
    plan = make_plan()
    listed = expected(plan)
    assert _problem(CYCLONEDX, document(listed), plan, {}) == ""
    said = _problem(CYCLONEDX, document(listed | more), plan, {})
    assert said == (f"it lists what is not in the image: {next(iter(more))}" if refused else "")
