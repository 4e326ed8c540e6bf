"""`builder gc` as a user runs it."""

from __future__ import annotations

import json

import pytest

from builder.cli.stored.gc import age, space
from builder.errors import UsageError
from tests.support.cli import Cli
from tests.support.errors import fails


def test_removed_and_kept_data_are_reported(online: Cli) -> None:
    digest = online("build", "--recipe", "tiny").out.strip()
    online.small.files["recipes/tiny.yaml"]["layers"].remove("placed")
    newer = online("build", "--recipe", "tiny").out.strip()
    assert newer != digest
    preview = json.loads(online("gc", "--dry-run", "--json").out)
    assert preview["dry_run"] is True
    shown = online("gc", "-n").out.splitlines()
    assert [line.split()[0] for line in shown].count("images") == 2, "by name, and in the sum"
    assert f"{digest[:19]}  tiny on tiny" in shown[0]
    assert {item["name"] for item in preview["gone"] if item["kind"] == "layers"} == {"placed"}
    assert sum(item["size"] for item in preview["gone"]) == preview["freed"]
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
    cli("gc", "--max-used-space", "much").failed(2, "size-invalid")


def test_sizes() -> None:
    texts = ("0B", "500MB", "1.5 GB", "2TB", "3kB")
    assert [space(text) for text in (None, *texts)] == [None, 0, 500_000_000, 1_500_000_000, 2 * 10**12, 3000]
    for text in ("", "5", "GB", "-1GB", "1gb", "1e3GB", "1GiB"):
        with fails(UsageError, "size-invalid"):
            space(text)


def test_a_store_gets_smaller_than_a_size(online: Cli) -> None:
    older = online("build", "--recipe", "tiny").out.strip()
    online.small.files["recipes/tiny.yaml"]["layers"].remove("placed")
    newer = online("build", "--recipe", "tiny").out.strip()
    roomy = json.loads(online("gc", "--max-used-space", "1GB", "--dry-run", "--json").out)
    assert [image["digest"] for image in roomy["images"]] == [newer], "as without a size"
    tight = json.loads(online("gc", "--max-used-space", "0B", "--dry-run", "--json").out)
    assert tight["images"] == [] and {item["name"] for item in tight["gone"]} >= {"tiny on tiny", "placed"}
    assert online("build", "--recipe", "tiny", "--offline").out.strip() == newer != older, "a dry run deletes nothing"
    done = json.loads(online("gc", "--max-used-space", "0B", "--json").out)
    assert sum(total["size"] for total in done["kept"].values()) == 0
    assert online("fsck").code == 0
