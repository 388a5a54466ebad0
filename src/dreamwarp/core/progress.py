"""Progress of long work: a bar on a terminal (by rich) or in a notebook, lines in a log.

Workers call ``Meter.advance``, which only adds a number. Each meter has a thread that redraws it a
few times per second, so a bar moves even while nothing can be counted. Output goes to standard
error, or to the notebook's cell. Rich alone is not enough: it writes no lines to logs, and needs
ipywidgets in notebooks.
"""

from __future__ import annotations

import atexit
import html
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Values of the ``progress`` argument; see ``track``.
ProgressOption = bool | Callable[[int, int], None] | None
Item = TypeVar("Item")

# Work shorter than this shows no bar, or leaves no line in a log.
PATIENCE_SECONDS, LOG_PATIENCE_SECONDS = 1.0, 5.0
# Time between two updates.
TICK_SECONDS = 0.2
# A log gets a line each time the elapsed time doubles, and at least this often.
LOG_GAP_SECONDS = 1800.0

_lock = threading.RLock()  # guards the two below and all drawing
_active: list[Meter] = []
_n_silent = 0


class Meter:
    """Counts work, and shows it if it takes long. Use as a context manager.

    ``total`` is the amount of work, if known. With ``in_bytes``, amounts are shown as file sizes.
    """

    def __init__(self, title: str, total: int | None, *, in_bytes: bool = False) -> None:
        self.title, self.total, self.done = title, total, 0
        self._show_number = describe_bytes if in_bytes else describe_number
        self._start = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._view: _Log | _Cell | _Bar | None = None
        self.closed = threading.Event()  # set when the work has ended

    def advance(self, amount: int) -> None:
        """Count work just done."""
        self.done += amount

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float | None:
        """Work per second. Excludes work counted before the first update, e.g. a resumed part."""
        if self._first is None:
            return None
        seconds, done = self.seconds - self._first[0], self.done - self._first[1]
        return done / seconds if seconds > 0.0 and done > 0 else None

    def describe(self) -> str:
        """Amount done, then rate and estimated time left, or the time taken."""
        show, rate, parts = self._show_number, self.rate, []
        if self.total is not None:
            share = f" ({self.done / self.total:.0%})" if self.total else ""
            parts.append(f"{show(self.done)} of {show(self.total)}{share}")
        elif self.done:
            parts.append(show(self.done))
        if self.closed.is_set():
            return " ".join([*parts, f"after {describe_time(self.seconds)}"])
        if rate is not None:
            parts.append(f"{show(rate)} per second")
        if rate is None or self.total is None:
            parts.append(f"{describe_time(self.seconds)} so far")
        else:
            parts.append(f"about {describe_time((self.total - self.done) / rate)} left")
        return ", ".join(parts)

    def close(self) -> None:
        """Show the final state and remove the bar. May be called twice, and from any thread."""
        with _lock:
            if self in _active:
                _active.remove(self)
                self.closed.set()
                self._update()

    def __enter__(self) -> Meter:
        with _lock:
            _active.append(self)
        threading.Thread(target=self._watch, name="dreamwarp-progress", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _watch(self) -> None:
        while not self.closed.wait(TICK_SECONDS):
            with _lock:
                if not self.closed.is_set():
                    self._update()

    def _update(self) -> None:
        if self._first is None:
            self._first = self.seconds, self.done
        if self._view is None:
            display, is_terminal = _notebook_display(), sys.stderr and sys.stderr.isatty()
            shows_bars = display or is_terminal
            if self.seconds <= (PATIENCE_SECONDS if shows_bars else LOG_PATIENCE_SECONDS):
                return
            self._view = _Cell(display) if display else _Bar(self) if is_terminal else _Log()
        with suppress(OSError, ValueError):  # the output is closed
            self._view.show(self)


@contextmanager
def track(
    total: int | None, title: str, progress: ProgressOption = None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount of work just done.

    ``progress`` False shows nothing, a callable is called with (done, total), otherwise there is a
    :class:`Meter`. ``total`` is None if the work can't be counted.
    """
    done = 0

    def report(amount: int) -> None:
        nonlocal done
        done += amount
        if callable(progress) and total is not None:
            progress(done, total)

    if progress is False or callable(progress):
        yield report
        return
    with Meter(title, total) as meter:
        yield meter.advance


def tracked(
    items: Iterable[Item], total: int, title: str, progress: ProgressOption = None
) -> Iterator[Item]:
    """Yield items; each counts as done when the next one is requested. See :func:`track`."""
    with track(total, title, progress) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def silenced(progress: ProgressOption = False) -> Iterator[None]:
    """Print no notices within the block, if ``progress`` is False."""
    global _n_silent
    amount = 1 if progress is False else 0
    with _lock:
        _n_silent += amount
    try:
        yield
    finally:
        with _lock:
            _n_silent -= amount


def notify(text: str) -> bool:
    """Print a one-line notice, unless silenced; return whether it was printed."""
    if _n_silent:
        return False
    with _lock, suppress(OSError, ValueError):
        print(f"dreamwarp: {text}", file=sys.stderr, flush=True)
    return True


def clear_screen() -> None:
    """Close all meters, before the process ends."""
    for meter in list(_active):
        meter.close()


atexit.register(clear_screen)


def _forget() -> None:
    """After a fork, drop the parent's meters: their threads do not exist in the child."""
    global _lock
    _lock, _Bar.block = threading.RLock(), None
    _active.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget)


# -- views: where a meter is shown


def _notebook_display() -> Callable[..., Any] | None:
    """IPython's ``display`` if this process is a notebook kernel."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if find_shell is None or getattr(find_shell(), "kernel", None) is None:
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    return display


class _Log:
    """Plain lines at growing intervals."""

    _next = 0.0

    def show(self, meter: Meter) -> None:
        seconds = meter.seconds
        if seconds >= self._next or meter.closed.is_set():
            print(f"dreamwarp: {meter.title}: {meter.describe()}", file=sys.stderr, flush=True)
            self._next = seconds + min(max(seconds, LOG_PATIENCE_SECONDS), LOG_GAP_SECONDS)


class _Cell:
    """An HTML bar in the output of a notebook cell."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._handle = display({"text/html": ""}, raw=True, display_id=True)

    def show(self, meter: Meter) -> None:
        known = f' value="{meter.done}" max="{meter.total}"' if meter.total else ""
        bar = "" if meter.closed.is_set() else f"<progress{known}></progress> "
        text = meter.describe()
        content = {
            "text/plain": f"{meter.title}: {text}",
            "text/html": f"<div>{html.escape(meter.title)} {bar}{html.escape(text)}</div>",
        }
        self._handle.update(content, raw=True)


class _Bar:
    """One line of a block of bars at the bottom of the terminal."""

    block: Progress | None = None  # shared by all bars

    def __init__(self, meter: Meter) -> None:
        if _Bar.block is None:
            _Bar.block = _make_block()
            _Bar.block.start()
        self._block = _Bar.block
        self._task: TaskID = self._block.add_task(meter.title, total=meter.total, text="")

    def show(self, meter: Meter) -> None:
        self._block.update(self._task, completed=meter.done, text=meter.describe(), refresh=True)
        if meter.closed.is_set():
            self._block.remove_task(self._task)
            if not self._block.tasks:
                self._block.stop()
                _Bar.block = None


def _make_block() -> Progress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.TextColumn("{task.fields[text]}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        # Output redirected to a file must not go to the screen.
        redirect_stdout=sys.stdout.isatty(),
    )


# -- text


def describe_bytes(n: float) -> str:
    """A file size with its unit."""
    from rich.filesize import decimal

    return decimal(int(n))


def describe_number(number: float) -> str:
    """A count or a rate; below 10, with two significant digits."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def describe_time(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = seconds / 60.0
    return f"{minutes:.0f} min" if minutes < 99.5 else f"{minutes / 60.0:.1f} h"


# -- the ``progress`` argument


def without_callback(progress: ProgressOption) -> ProgressOption:
    """``progress``, or False if it is a callback, which counts the main work only."""
    return False if callable(progress) else progress


def check_progress(progress: object) -> None:
    """Raise if ``progress`` is not a ``ProgressOption``."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"`progress` must be True, False, None or a function of two numbers, got {progress!r}."
        )
