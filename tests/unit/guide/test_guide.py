"""The committed documents equal the generated ones, and have every row of the reference documents."""

from __future__ import annotations

from pathlib import Path

import yaml

from builder.guide.pages import documents
from builder.knowledge.rule import find_rule
from builder.project import Project
from tests.support.shipped import pages

ROOT = Path(__file__).resolve().parents[3]
PROJECT = Project((ROOT,))


def test_committed_is_generated() -> None:
    made = documents(PROJECT)
    assert pages().keys() == made.keys()
    assert [path for path in made if pages()[path] != made[path]] == [], "run: python -m builder.guide"


def test_every_row_of_the_three_documents_is_present() -> None:
    rows = yaml.safe_load((ROOT / "builder/guide/symptoms.yaml").read_text("utf-8"))
    count = {
        source: sum(source in row["source"] for row in rows)
        for source in ("gb10-native-installer", "spark-vllm-guide section 12", "dual-spark-minimax-m2.7")
    }
    assert count["gb10-native-installer"] >= 8
    assert count["spark-vllm-guide section 12"] >= 13
    assert count["dual-spark-minimax-m2.7"] >= 7
    names = yaml.safe_load((ROOT / "builder/guide/sources.yaml").read_text("utf-8"))
    for row in rows:
        # A comma in a text without quotes makes two keys of it.
        assert set(row) in ({"symptom", "cause", "fix", "source"}, {"symptom", "cause", "fix", "source", "rule"})
        assert all(isinstance(text, str) for text in row.values())
        assert any(name in row["source"] for name in (*names, "docs/gpu-tier.md")), row["source"]
        if "rule" in row:
            assert find_rule(row["rule"])


def test_a_page_has_the_notes_and_rules_of_every_profile() -> None:
    for name in PROJECT.recipe_names():
        page = pages()[f"recipes/{name}.md"]
        for profile in PROJECT.recipe(name).profiles.values():
            assert not [text for text in (*profile.notes, *filter(None, profile.rules.values())) if text not in page]
