"""The line that shows how far a push is."""

from __future__ import annotations

import pytest

from builder.cli.image import sending
from builder.digest import Digest

ONE, OTHER = Digest.of(b"one"), Digest.of(b"other")


def test_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = [100.0]
    monkeypatch.setattr(sending, "now", lambda: clock[0])
    with sending.Sending() as shown:
        shown.expect(400_000_000)
        clock[0] += 5
        shown.moved(ONE, 50_000_000)
        shown.moved(OTHER, 50_000_000)
        assert shown.text() == "100.0 MB of 400.0 MB, 20.0 MB/s, about 15 s more"
        assert not capsys.readouterr().err
        clock[0] += 5
        shown.moved(ONE, 100_000_000)
        assert capsys.readouterr().err == "  150.0 MB of 400.0 MB, 15.0 MB/s, about 17 s more\n"
        shown.moved(OTHER, 300_000_000)
    assert capsys.readouterr().err == "  sent 400.0 MB of 400.0 MB, 40.0 MB/s, in 10.0 s\n"


def test_nothing_to_send_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with sending.Sending() as shown:
        shown.expect(0)
    assert capsys.readouterr().err == ""
