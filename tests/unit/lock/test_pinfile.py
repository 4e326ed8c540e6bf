"""Setting a pin in the file of a base changes the digests and their evidence, and no other line or comment."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builder.errors import InvalidError
from builder.lock.pinfile import with_pin
from builder.model.base import Base, Pin
from builder.model.yamlfile import build, parse_yaml
from builder.text import is_plain_line
from tests.support.errors import fails

BASES = Path(__file__).resolve().parents[3] / "recipes/bases"
HEAD = "# first\nname: x\nfamily: ngc\ntitle: X   # as it is called\nentrypoint: pass-through\n"
IMAGE = "nvcr.io/a/b:1"
OLD, NEW, TOP = (f"sha256:{letter * 64}" for letter in "abc")
PIN = Pin(image=IMAGE, index=TOP, manifest=NEW, confidence="high", evidence=('said: "x" # not a comment', "ü"))


def loaded(text: str) -> Base:
    return build(parse_yaml(text, "x.yaml"), Base, where="x.yaml", text=text)


def changed(before: str, after: str) -> list[str]:
    """The removed and added lines, marked - and +."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


FORMS = {
    "as shipped": f"pin:\n  image: {IMAGE}\n  index: {TOP}\n  manifest: {OLD}\n  confidence: low\n"
    "  evidence:\n    - a\n",
    "unpinned": f"pin:\n  image: {IMAGE}\n  confidence: none\n",
    "image alone": f"pin:\n  image: {IMAGE}",
    "image alone, something after it": f"pin:\n  image: {IMAGE}   # moved\n# here\nnotes: [a]\n",
    "null": f"pin:\n  image: {IMAGE}\n  index:\n  manifest:   # none yet\n  evidence: []\n",
    "another order": f"pin:\n  evidence: [a,\n    b]\n  manifest: {OLD}\n  image: {IMAGE}\n",
    "flow": f"pin: {{image: '{IMAGE}', confidence: none}}  # short\nnotes: []\n",
    "flow over lines": f"pin: {{\n  image: {IMAGE},\n  manifest: {OLD},\n}}\n",
    "quoted keys": f'"pin":\n    "image": "{IMAGE}"\n    "manifest": "{OLD}"\n',
    "comments between": f"pin:\n  # a\n  image: {IMAGE}\n  # b\n  manifest: {OLD}  # c\n  # d\n"
    "  evidence:\n  # e\n  - a  # f\n  # g\n  - >-\n    folded\n    text\n  # h\n",
    "block scalar": f"pin:\n  image: {IMAGE}\n  manifest: |-\n    {OLD}\n  confidence: low\n",
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_write_a_pin(form: str, ends: str) -> None:
    text = (HEAD + FORMS[form]).replace("\n", ends)
    after = with_pin(text, PIN, "x.yaml")
    assert loaded(after) == loaded(text).model_copy(update={"pin": PIN})
    assert after.startswith(HEAD.replace("\n", ends))
    for mark in "abcdefgh":
        assert after.count(f"# {mark}") == text.count(f"# {mark}")
    for comment in ("# first", "# as it is called", "# moved", "# here", "# none yet", "# short"):
        assert (comment in after) == (comment in text)
    assert ends == "\n" or "\n" not in after.replace("\r\n", "")
    assert with_pin(after, PIN, "x.yaml") == after


def test_the_lines_that_change() -> None:
    text = HEAD + FORMS["as shipped"] + "notes:\n  - one\n"
    assert sorted(changed(text, with_pin(text, PIN, "x.yaml"))) == sorted(
        [
            f"-   manifest: {OLD}",
            f"+   manifest: {NEW}",
            "-   confidence: low",
            "+   confidence: high",
            "-     - a",
            '+     - "said: \\"x\\" # not a comment"',
            '+     - "ü"',
        ]
    )
    alone = PIN.model_copy(update={"index": None})
    assert "+   index: null" in changed(text, with_pin(text, alone, "x.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}notes: [&m {OLD}]\npin:\n  image: {IMAGE}\n  manifest: *m\n",
        f"notes: []\n{HEAD}pin: &p\n  <<: {{image: {IMAGE}}}\n  manifest: {OLD}\n",
    ],
    ids=["alias", "merge"],
)
def test_a_pin_with_values_elsewhere_in_the_file_is_not_editable(text: str) -> None:
    assert loaded(text).pin is not None
    with fails(InvalidError, "pin-not-editable") as caught:
        with_pin(text, PIN, "x.yaml")
    assert f"set pin.manifest to {NEW}" in caught.value.next


@pytest.mark.parametrize("path", sorted(BASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_base_can_be_pinned(path: Path) -> None:
    text = path.read_text("utf-8")
    if "\npin:" not in text:
        return
    base = loaded(text)
    assert base.pin is not None
    pin = PIN.model_copy(update={"image": base.pin.image})
    after = with_pin(text, pin, path.name)
    assert loaded(after) == base.model_copy(update={"pin": pin})
    rest = [line for line in changed(text, after) if not line[1:].strip().startswith(("- ", "index:", "manifest:"))]
    assert {line[1:].strip().partition(":")[0] for line in rest} <= {"confidence", "evidence", "seal"}
    assert [line for line in text.splitlines() if "#" in line and "evidence" not in line and '"' not in line] == [
        line for line in after.splitlines() if "#" in line and "evidence" not in line and '"' not in line
    ]


@given(
    st.sampled_from(sorted(FORMS)),
    st.none() | st.just(TOP),
    st.lists(st.text(max_size=20).filter(is_plain_line), min_size=1, max_size=3),
)
@example("another order", None, ["\ufeff"])
def test_any_evidence_survives(form: str, index: str | None, evidence: list[str]) -> None:
    pin = PIN.model_copy(update={"index": index, "evidence": tuple(evidence)})
    text = HEAD + FORMS[form]
    assert loaded(with_pin(text, pin, "x.yaml")).pin == pin
