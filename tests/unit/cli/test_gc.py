"""`builder gc` as a user runs it."""

from __future__ import annotations

import json

import pytest

from builder.cli.stored.gc import age
from builder.errors import UsageError
from tests.support.cli import Cli
from tests.support.errors import fails


def test_removed_and_kept_data_are_reported(online: Cli) -> None:
    digest = online("build", "--recipe", "tiny").out.strip()
    online.small.files["recipes/tiny.yaml"]["layers"].remove("settings")
    newer = online("build", "--recipe", "tiny").out.strip()
    assert newer != digest
    preview = json.loads(online("gc", "--dry-run", "--json").out)
    assert preview["dry_run"] is True
    done = json.loads(online("gc", "--json").out)
    assert done == {**preview, "dry_run": False}
    assert done["removed"]["images"]["count"] == 1
    assert [image["digest"] for image in done["images"]] == [newer]
    assert done["freed"] > 0
    again = online("gc")
    assert again.out.endswith(f"0 B freed at {online.folder / 'store'}\n")
    assert f"kept: tiny on tiny, {newer[:19]}" in again.err
    assert online("build", "--recipe", "tiny", "--offline").out.strip() == newer


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1.5d", "9999999d"])
def test_an_invalid_age_is_wrong_usage(text: str) -> None:
    with fails(UsageError, "age-invalid"):
        age(text)


def test_ages() -> None:
    assert [age(text) for text in (None, "0s", "90s", "2h", "30d", "2w")] == [None, 0, 90, 7200, 2592000, 1209600]


def test_wrong_usage_is_2(cli: Cli) -> None:
    cli("gc", "--older-than", "soon").failed(2, "age-invalid")
