"""Progress: bars on terminals and in notebooks, lines in logs, nothing for short work."""

from __future__ import annotations

import io
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from dreamwarp.core import progress
from dreamwarp.core.progress import Meter, silenced, track, tracked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# No fixtures: pytest puts standard error in place between those and the test.


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    return sys.stderr  # type: ignore[return-value]


def open_log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A log in which a second of patience and between lines is a hundredth."""
    monkeypatch.setattr(progress, "LOG_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.002)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    return sys.stderr  # type: ignore[return-value]


# -- on a terminal


@pytest.mark.parametrize("in_bytes", [False, True])
def test_long_work_shows_a_bar(monkeypatch: pytest.MonkeyPatch, in_bytes: bool) -> None:
    terminal = open_terminal(monkeypatch)
    with Meter("reading", 10, in_bytes=in_bytes) as meter:
        meter.advance(4)
        meter.advance(6)
    words = terminal.getvalue()
    assert "reading" in words and ("10 bytes of 10 bytes" if in_bytes else "10 of 10") in words


def test_rates_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)
    with Meter("samples", 10) as meter:
        time.sleep(0.05)
        meter._first = (0.0, 0)  # an update, however busy the machine is
        meter.advance(5)
        meter._update()
    assert "per second" in terminal.getvalue()
    numbers = [progress.describe_number(number) for number in (0, 7, 0.123, 9.87, 10, 28_712.4)]
    assert numbers == ["0", "7", "0.12", "9.9", "10", "28,712"]


def test_bars_share_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with Meter("outside", 2) as outside, Meter("inside", 3) as inside:
        inside.advance(3)
        outside.advance(2)
        time.sleep(0.5)
    words = terminal.getvalue()
    assert "outside" in words and "inside" in words
    assert words.endswith("\x1b[?25h\r") or "\x1b[?25h" in words[-40:]  # the cursor is back


def test_life_shows_while_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with Meter("aligning", 100):
        time.sleep(3 * progress.TICK_SECONDS)
        assert "0 of 100" in terminal.getvalue()


def test_a_bar_goes_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        assert [1 // k for k in tracked([2, 1, 0], 3, "reading")]
    assert "2 of 3" in terminal.getvalue() and progress._active == []


def test_waiting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with track(None, "waiting for npm"):
        time.sleep(2 * progress.TICK_SECONDS)
    assert "waiting for npm" in terminal.getvalue()


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Meter("reading", 10) as meter:
        meter.advance(10)
    assert sys.stderr.getvalue() == ""


# -- in a log


def test_short_work_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_PATIENCE_SECONDS", 5.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with track(None, "waiting"), Meter("reading", 10) as meter:
        meter.advance(10)
    assert sys.stderr.getvalue() == ""


def test_a_log_has_few_lines_with_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(monkeypatch)
    with track(300, "aligning") as advance:
        for _ in range(100):
            advance(3)
            time.sleep(0.01)
    lines = log.getvalue().splitlines()
    assert 4 <= len(lines) <= 8
    assert all(line.startswith("dreamwarp: aligning: ") for line in lines)
    assert any("per second, about" in line and line.endswith(" s left") for line in lines)
    assert "300 of 300 (100%) after " in lines[-1]
    assert "\x1b" not in log.getvalue() and "\r" not in log.getvalue()


def test_the_gap_between_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_GAP_SECONDS", 0.06)
    log = open_log(monkeypatch)
    with Meter("waiting", None):
        time.sleep(0.6)
    assert 6 <= len(log.getvalue().splitlines()) <= 12


def test_what_an_earlier_run_has_done_does_not_count_for_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_log(monkeypatch)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.1)
    with Meter("samples", 1000) as meter:
        meter.advance(900)
        time.sleep(0.2)
        for _ in range(10):
            meter.advance(1)
            time.sleep(0.02)
    rate = meter.rate
    assert rate is not None and rate < 200


@pytest.mark.parametrize("option", [False, lambda done, total: None])
def test_nothing_is_shown_where_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, option: Any
) -> None:
    log = open_log(monkeypatch)
    with track(10, "aligning", option) as advance:
        advance(1)
        time.sleep(0.2)
    assert log.getvalue() == ""


def test_times_and_sizes_in_words() -> None:
    times = [progress.describe_time(seconds) for seconds in (3.2, 99, 600, 20_000)]
    assert times == ["3 s", "99 s", "10 min", "5.6 h"]
    sizes = [progress.describe_bytes(n) for n in (12, 3400, 5.6e6, 7.8e9)]
    assert sizes == ["12 bytes", "3.4 kB", "5.6 MB", "7.8 GB"]


def test_the_thread_goes_with_the_last_meter() -> None:
    def is_there() -> bool:
        return any(thread.name == "dreamwarp-progress" for thread in threading.enumerate())

    with Meter("reading", 10):
        assert is_there()
    deadline = time.monotonic() + 5.0
    while is_there() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_there()


# -- in a notebook


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What a notebook shows in turn. IPython is no dependency: this is what is used of it."""
    contents: list[dict[str, str]] = []

    class Handle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            contents.append(content)

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        contents.append(content)
        return Handle()

    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    shell: Callable[[], Any] = lambda: types.SimpleNamespace(kernel=object())  # noqa: E731
    package.get_ipython, module.display = shell, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    return contents


def test_a_notebook_has_a_bar(shown: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(monkeypatch)
    with Meter("fit <a>", 10) as meter:
        meter.advance(4)
        time.sleep(0.05)
    assert any('<progress value="4" max="10">' in content["text/html"] for content in shown)
    assert "fit &lt;a&gt;" in shown[-1]["text/html"]
    assert shown[-1]["text/plain"].startswith("fit <a>: 4 of 10 (40%) after")
    assert log.getvalue() == ""


# -- notices


class unsilenced:
    """Undo the silence that the fixtures of all tests impose."""

    def __enter__(self) -> None:
        self._before, progress._n_silent = progress._n_silent, 0

    def __exit__(self, *error: object) -> None:
        progress._n_silent = self._before


def test_notices_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(monkeypatch)
    with unsilenced():
        with silenced(None):
            assert progress.notify("compiling")
        with silenced(False):
            assert not progress.notify("compiling")
    assert log.getvalue() == "dreamwarp: compiling\n"
