"""Strict JSON: what a sender can write to take memory or time is refused before a model reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from builder.errors import InvalidError, NetworkError
from builder.jsontext import first_problem, parse_json
from builder.model.lockfile import load_section
from builder.oci.assemble import parse_base
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.http_registry import image_manifest
from tests.support.limits import ends

MANY = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * MANY + "1]",
        "[" + "{}," * MANY + "{}]",
        '{"a": [' + "[1,2,3]," * MANY + "[]]}",
        "{" + ",".join(f'"{number}": 1' for number in range(MANY)) + "}",
        '"' + "x" * (5 << 20) + '"',
        "[" * MANY,
        '{"a": 1, "a": 2}',
        "[NaN]",
    ],
    ids=lambda text: text[:10],
)
def test_what_no_program_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_what_programs_write_is_read() -> None:
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert len(parse_json("[" + "1," * 10_000 + "1]")) == 10_001


def test_a_lock_of_many_wrong_entries_is_refused_in_time(tmp_path: Path) -> None:
    """Each entry was several errors of a kilobyte: a megabyte took 20 s and 1.6 GB."""
    path = tmp_path / "x.json"
    head = '{"kind": "wheels", "name": "x", "locked": "2026-01-02T03:04:05Z", "wheels": ['
    path.write_text(head + "{}," * 300_000 + "{}]}")
    with limit():
        ends(lambda: refused(path), memory=200 << 20)


def refused(path: Path) -> None:
    with fails(InvalidError, "json-invalid"):
        load_section(path)


def test_a_config_of_many_wrong_layers_is_refused_in_time() -> None:
    config = b'{"os": "linux", "architecture": "arm64", "rootfs": {"diff_ids": [' + b"1," * 2_000_000 + b"1]}}"
    with limit(), fails(NetworkError, "base-config-malformed"):
        parse_base("registry/x", image_manifest(config, b"one"), config)


def test_a_key_that_is_twice_among_many_is_found_in_time() -> None:
    """Each key was counted among all of them: two megabytes took a quarter of an hour."""
    text = "{" + ",".join(f'"{number:06}":0' for number in range(200_000)) + ',"199999":0}'

    def work() -> None:
        with pytest.raises(ValueError, match="'199999' is twice"):
            parse_json(text)

    ends(work)


class Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


def test_the_name_of_a_member_makes_no_line_of_a_message() -> None:
    with pytest.raises(ValidationError) as caught:
        Empty.model_validate({"a\npolicy: image signed by team.pub: yes": 1})
    assert first_problem(caught.value).startswith("a\\npolicy")
