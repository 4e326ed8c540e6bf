"""The issue forms are valid for GitHub: known field types, unique ids, a label for each field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_is_valid(path: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "labels", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_forms_for_failing_images_ask_for_versions_and_logs() -> None:
    asked = {field.get("id") for field in yaml.safe_load((FORMS[0].parent / "spark.yml").read_text("utf-8"))["body"]}
    assert {"version", "recipe", "digest", "doctor", "checks", "log"} <= asked
