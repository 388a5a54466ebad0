"""Progress shows on a terminal, after a moment, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from dreamwarp import progress
from dreamwarp.progress import Meter, show_waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("in_bytes", [False, True])
def test_long_work_shows_a_bar(monkeypatch: pytest.MonkeyPatch, in_bytes: bool) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Meter("reading", 10, in_bytes=in_bytes) as meter:
        meter.advance(4)
        meter.advance(6)
    words = sys.stderr.getvalue()
    assert "reading" in words and ("10/10 bytes" if in_bytes else "10/10") in words


def test_rates_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    with Meter("samples", 10) as meter:
        for _ in range(10):
            meter.advance(1)
    assert "per second" in sys.stderr.getvalue()
    rates = [progress.describe_rate(rate) for rate in (0.123, 9.87, 28_712.4)]
    assert rates == ["0.12", "9.9", "28,712"]


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Meter("reading", 10) as meter:
        meter.advance(10)
    assert sys.stderr.getvalue() == ""


def test_what_is_no_terminal_stays_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with show_waiting("waiting"), Meter("reading", 10) as meter:
        meter.advance(10)
    assert sys.stderr.getvalue() == ""


def test_waiting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_waiting("waiting for npm"):
        pass
    assert "waiting for npm" in sys.stderr.getvalue()
