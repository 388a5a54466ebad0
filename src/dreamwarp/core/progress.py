"""Progress of long work: bars on terminals (by rich) and in notebooks, lines in logs.

Work is counted where it is done, by ``Meter.advance``, which costs next to nothing. A thread looks
at all meters a few times a second and shows them, so that a bar moves even
while nothing can be counted. Everything goes to standard error, except in notebooks.

Why a layer of our own: rich and tqdm write no lines for logs, and need ipywidgets in notebooks.
"""

from __future__ import annotations

import atexit
import html
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# What callers may ask for; see ``track``.
ProgressOption = bool | Callable[[int, int], None] | None

# Work that ends before this shows no bar, and leaves no line in a log.
PATIENCE_SECONDS, LOG_PATIENCE_SECONDS = 1.0, 5.0
# Time between two looks at what has been done.
TICK_SECONDS = 0.2
# Lines of a log come after three times as long as the one before, but at least as often as this
# many over the whole work, as far as that is known: about ten lines, be it a minute or a day.
LOG_LINES = 8


class Meter:
    """Counts work done, and shows it once it has gone on for a while.

    Parameters
    ----------
    title : str
    total : int or None
        Amount of work, if it is known.
    in_bytes : bool
        Show amounts as file sizes.
    patience : float, optional
        Seconds until it shows. Default: 1 for a bar, 5 for a line in a log.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        *,
        in_bytes: bool = False,
        patience: float | None = None,
    ) -> None:
        self.title, self.total, self.in_bytes, self.done = title, total, in_bytes, 0
        self.patience = patience
        self._start = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._view: View | None = None

    def advance(self, amount: int) -> None:
        """Count work just done."""
        self.done += amount

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float | None:
        """Work per second, without work done before the first look, such as by an earlier run."""
        if self._first is None:
            return None
        seconds, done = self.seconds - self._first[0], self.done - self._first[1]
        return done / seconds if seconds > 0.0 and done > 0 else None

    def refresh(self) -> None:
        """Show progress, if it is time. Called by the watching thread."""
        if self._first is None:
            self._first = self.seconds, self.done
        if self._view is None:
            patience = self.patience
            if patience is None:
                patience = PATIENCE_SECONDS if shows_bars() else LOG_PATIENCE_SECONDS
            if self.seconds <= patience:
                return
            self._view = _choose_view(self)
        with suppress(OSError, ValueError):  # the output is closed
            self._view.update(self)

    def hide(self) -> None:
        """Take it off the screen."""
        view, self._view = self._view, None
        if view is not None:
            with suppress(OSError, ValueError):
                view.close(self)

    def __enter__(self) -> Meter:
        _watch.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _watch.remove(self)


@contextmanager
def track(
    total: int, title: str, progress: ProgressOption = None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount of work just done.

    Parameters
    ----------
    progress : bool or callable, optional
        False: show nothing. A callable is called with (done, total). Otherwise a :class:`Meter`.
    """
    done = 0

    def tell(amount: int) -> None:
        nonlocal done
        done += amount
        if callable(progress):
            progress(done, total)

    if progress is False or callable(progress):
        yield tell
        return
    with Meter(title, total) as meter:
        yield meter.advance


@contextmanager
def show_waiting(title: str, progress: ProgressOption = None) -> Iterator[None]:
    """Show a title and the time, where nothing can be counted."""
    if progress is False or callable(progress):
        yield
        return
    with Meter(title, None, patience=0.0 if shows_bars() else None):
        yield


# -- the thread that watches


class _Watch:
    """Shows meters from a thread of its own, which is there as long as there are meters."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._meters: list[Meter] = []
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def add(self, meter: Meter) -> None:
        with self.lock:
            if meter not in self._meters:
                self._meters.append(meter)
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(
                    target=self._look, name="dreamwarp-progress", daemon=True
                )
                self._thread.start()

    def remove(self, meter: Meter) -> None:
        """Show a meter for the last time, and forget it."""
        with self.lock:
            if meter in self._meters:
                self._meters.remove(meter)
                meter.refresh()
                meter.hide()
            if not self._meters:
                self._wake.set()

    def clear(self) -> None:
        with self.lock:
            for meter in list(self._meters):
                self.remove(meter)

    def _look(self) -> None:
        while True:
            self._wake.wait(TICK_SECONDS)
            with self.lock:
                if not self._meters:
                    self._thread = None
                    return
                for meter in list(self._meters):
                    meter.refresh()


_watch = _Watch()


def clear_screen() -> None:
    """Remove all meters from the screen, before the process ends."""
    _watch.clear()


atexit.register(clear_screen)


def _forget() -> None:
    """Drop the meters of the parent after a fork: the child has no thread to show them."""
    global _watch
    _watch, _Bar._block = _Watch(), None


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget)


# -- notices

_n_silent = 0


@contextmanager
def silenced(progress: ProgressOption = False) -> Iterator[None]:
    """Show no notice of compiling within the block, if ``progress`` is False."""
    global _n_silent
    amount = 1 if progress is False else 0
    with _watch.lock:
        _n_silent += amount
    try:
        yield
    finally:
        with _watch.lock:
            _n_silent -= amount


class Notice(Meter):
    """Shows that background work, such as compiling, goes on; it may pause and resume.

    ``begin`` and ``end`` may come from several threads. It shows once ``patience`` seconds have
    been spent on it in all, and goes when it has paused for a while.
    """

    PAUSE_SECONDS = 1.0

    def __init__(self, title: str, *, patience: float) -> None:
        super().__init__(title, None, patience=patience)
        self._depth, self._spent, self._since = 0, 0.0, 0.0

    @property
    def seconds(self) -> float:
        """Time spent, without pauses."""
        return self._spent + (time.monotonic() - self._since if self._depth else 0.0)

    def begin(self) -> None:
        """Begin work. It ends after as many calls of ``end``."""
        with _watch.lock:
            if self._depth == 0:
                self._since = time.monotonic()
            self._depth += 1
            _watch.add(self)

    def end(self) -> None:
        """End or pause work."""
        with _watch.lock:
            now = time.monotonic()
            self._depth -= 1
            if self._depth == 0:
                self._spent += now - self._since
                self._since = now

    def refresh(self) -> None:
        """Show or hide the notice."""
        if self._depth == 0 and time.monotonic() - self._since > self.PAUSE_SECONDS:
            _watch.remove(self)
        elif _n_silent == 0 and self._depth:
            super().refresh()

    def hide(self) -> None:
        """Hide the notice. A log continues where it stopped."""
        if isinstance(self._view, _Cell | _Bar):
            super().hide()


# -- how it is shown


class View(Protocol):
    """Shows a meter."""

    def update(self, meter: Meter) -> None:
        """Show how far it is."""

    def close(self, meter: Meter) -> None:
        """Show the end."""


def shows_bars() -> bool:
    """Whether there is a terminal or a notebook, rather than a log."""
    return _is_terminal() or _notebook_display() is not None


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _choose_view(meter: Meter) -> View:
    display = _notebook_display()
    if display is not None:
        return _Cell(display)
    return _Bar(meter) if _is_terminal() else _Lines()


def _notebook_display() -> Callable[..., Any] | None:
    """IPython's ``display``, where this process is the kernel of a notebook."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if find_shell is None or getattr(find_shell(), "kernel", None) is None:
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    return display


class _Lines:
    """A plain line now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def update(self, meter: Meter) -> None:
        seconds = meter.seconds
        if seconds < self._next:
            return
        _write_line(meter, describe_progress(meter))
        left = seconds_left(meter)
        gap = 2.0 * seconds if left is None else min(2.0 * seconds, (seconds + left) / LOG_LINES)
        self._next = seconds + max(gap, LOG_PATIENCE_SECONDS)

    def close(self, meter: Meter) -> None:
        _write_line(meter, describe_end(meter))


def _write_line(meter: Meter, words: str) -> None:
    print(f"dreamwarp: {meter.title}: {words}", file=sys.stderr, flush=True)


class _Cell:
    """A bar in the output of a notebook's cell: plain HTML."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def update(self, meter: Meter) -> None:
        known = f' value="{meter.done}" max="{meter.total}"' if meter.total else ""
        self._show(meter.title, describe_progress(meter), f"<progress{known}></progress> ")

    def close(self, meter: Meter) -> None:
        self._show(meter.title, describe_end(meter), "")

    def _show(self, title: str, words: str, bar: str) -> None:
        content = {
            "text/plain": f"{title}: {words}",
            "text/html": f"<div>{html.escape(title)} {bar}{html.escape(words)}</div>",
        }
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class _Bar:
    """A line at the foot of a terminal; all bars are lines of one block."""

    _block: Progress | None = None

    def __init__(self, meter: Meter) -> None:
        if _Bar._block is None:
            _Bar._block = _make_block()
            _Bar._block.start()
        self._task: TaskID = _Bar._block.add_task(meter.title, total=meter.total, words="")

    def update(self, meter: Meter) -> None:
        if _Bar._block is not None:
            _Bar._block.update(
                self._task, completed=meter.done, total=meter.total,
                words=describe_progress(meter), refresh=True,
            )  # fmt: skip

    def close(self, meter: Meter) -> None:
        if _Bar._block is None:
            return
        _Bar._block.remove_task(self._task)
        if not _Bar._block.tasks:
            _Bar._block.stop()
            _Bar._block = None


def _make_block() -> Progress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.TextColumn("{task.fields[words]}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        # Output redirected to a file must not go to the screen.
        redirect_stdout=sys.stdout.isatty(),
    )


# -- in words


def describe_progress(meter: Meter) -> str:
    """How much is done, how fast, and how long the rest will take."""
    left, rate, parts = seconds_left(meter), meter.rate, [describe_amount(meter)]
    if rate is not None:
        parts.append(f"{(describe_bytes if meter.in_bytes else describe_rate)(rate)} per second")
    parts.append(
        f"{describe_time(meter.seconds)} so far"
        if left is None
        else f"about {describe_time(left)} left"
    )
    return ", ".join(part for part in parts if part)


def describe_end(meter: Meter) -> str:
    """How much was done, and how long it took."""
    return f"{describe_amount(meter)} after {describe_time(meter.seconds)}".strip()


def seconds_left(meter: Meter) -> float | None:
    """Estimated time left, or None."""
    rate = meter.rate
    return None if meter.total is None or rate is None else (meter.total - meter.done) / rate


def describe_amount(meter: Meter) -> str:
    """What is done of how much; nothing where nothing is counted."""
    show = describe_bytes if meter.in_bytes else "{:,}".format
    if meter.total is None:
        return show(meter.done) if meter.done else ""
    share = f" ({meter.done / meter.total:.0%})" if meter.total else ""
    return f"{show(meter.done)} of {show(meter.total)}{share}"


def describe_bytes(n: float) -> str:
    """A file's size in words."""
    from rich.filesize import decimal

    return decimal(int(n))


def describe_rate(rate: float) -> str:
    """A rate in words, with no more digits than it deserves."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def describe_time(seconds: float) -> str:
    """A time in words, with no more digits than it deserves."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = seconds / 60.0
    return f"{minutes:.0f} min" if minutes < 99.5 else f"{minutes / 60.0:.1f} h"


def check_progress(progress: object) -> None:
    """Raise if ``progress`` is not a ``ProgressOption``."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"`progress` must be True, False, None or a function of two numbers, got {progress!r}."
        )
