"""The client of a server that may send anything."""

from __future__ import annotations

from builder.smoke.gpu.client import Stream, _take
from tests.support.limits import ends


def test_a_long_answer_is_put_together_once() -> None:
    """Each piece made a copy of all before it: a server could keep the check busy for half an hour."""
    found = Stream()

    def work() -> None:
        for text in ["x" * (4 << 20)] * 8 + ["y"] * 20_000:
            _take(found, {"choices": [{"delta": {"content": text, "reasoning": text}}]})
        assert len(found.content) == len(found.reasoning) == (32 << 20) + 20_000

    ends(work)
