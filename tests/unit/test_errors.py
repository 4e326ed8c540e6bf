"""Errors keep their class, their id and their other attributes when some of their parts are replaced."""

from __future__ import annotations

from builder.errors import NetworkError, PinError


class SlowDownError(NetworkError):
    """An error whose constructor takes other arguments than BuilderError's."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many requests", id="slow-down", where="registry.example")
        self.seconds = seconds


def test_replaced_changes_the_named_parts_only() -> None:
    error = PinError("got a, expected b", id="content-mismatch", where="x", cause="old")
    other = error.replaced(cause="new", next="builder lock")
    assert type(other) is PinError
    assert (other.what, other.id, other.where, other.cause, other.next) == (
        error.what,
        error.id,
        "x",
        "new",
        "builder lock",
    )
    assert error.cause == "old"


def test_replaced_keeps_the_attributes_of_a_subclass() -> None:
    other = SlowDownError(2.5).replaced(where="mirror.example")
    assert isinstance(other, SlowDownError)
    assert (other.seconds, other.id, str(other)) == (2.5, "slow-down", "mirror.example: too many requests [slow-down]")
