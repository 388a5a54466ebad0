"""A progress bar for what takes longer than a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

# What callers may ask for; see ``track``.
ProgressOption = bool | Callable[[int, int], None] | None

# Work that ends before this shows no bar.
PATIENCE_SECONDS = 1.0


class Meter:
    """Counts work done, and shows it on a terminal once it has gone on for a while.

    Parameters
    ----------
    title : str
    total : int or None
        Amount of work, if it is known.
    in_bytes : bool
        Show amounts as file sizes.
    """

    def __init__(self, title: str, total: int | None, *, in_bytes: bool = False) -> None:
        self.title, self.total, self.in_bytes, self.done = title, total, in_bytes, 0
        self._start = time.monotonic()
        self._bar: Progress | None = None

    def advance(self, amount: int) -> None:
        """Some work is done."""
        self.done += amount
        if self._bar is None and time.monotonic() - self._start > PATIENCE_SECONDS:
            self._bar = _start_bar(self.title, self.total, in_bytes=self.in_bytes)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done)

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def track(
    total: int, title: str, progress: ProgressOption = None
) -> Iterator[Callable[[int], None]]:
    """Give a function to be called with the amount of work just done.

    Parameters
    ----------
    progress : bool or callable, optional
        False: nobody is told. A callable is called with (done, total). Otherwise a :class:`Meter`.
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
def show_waiting(title: str) -> Iterator[None]:
    """Say on a terminal what is being waited for, where nothing can be counted."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


def _start_bar(title: str, total: int | None, *, in_bytes: bool) -> Progress:
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        """What is done in a second."""

        def render(self, task: progress.Task) -> Text:
            return Text("" if task.speed is None else f"{describe_rate(task.speed)} per second")

    amounts: tuple[progress.ProgressColumn, ...] = (
        (progress.DownloadColumn(), progress.TransferSpeedColumn())
        if in_bytes
        else (progress.MofNCompleteColumn(), Rate())
    )
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        *amounts,
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    bar.add_task(title, total=total)
    bar.start()
    return bar


def describe_rate(rate: float) -> str:
    """A rate in words, with no more digits than it deserves."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def check_progress(progress: object) -> None:
    """Refuse what is not a ``ProgressOption``."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"`progress` must be True, False, None or a function of two numbers, got {progress!r}."
        )
