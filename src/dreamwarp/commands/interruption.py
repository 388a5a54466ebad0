"""Ctrl-C: a command ends within a second, whatever it is doing, and leaves nothing half-written.

Python raises KeyboardInterrupt between two of its own instructions. While compiled code runs, that
may be long after the signal, and threads that are still at work hold up the end of the process, as
does the interpreter, which tidies up for a second. So a thread is told of the signal at once, by
the file descriptor that the signal handler writes to. It gives the command a moment to end by
itself, then removes unfinished files and ends the process.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from dreamwarp.core.files import remove_unfinished
from dreamwarp.core.progress import clear_screen

INTERRUPTED = 130
# Time for a command to end by itself.
GRACE_SECONDS = 0.3
# Time for the thread to learn of a signal that the command knows of.
NEWS_SECONDS = 0.1

# Whether there was a signal, how to go on after it, and whether that has been said.
_is_signalled, _is_told = threading.Event(), threading.Event()
_remedies: list[str] = []


@contextmanager
def ending_soon() -> Iterator[None]:
    """Within the block, Ctrl-C ends the process soon."""
    if threading.current_thread() is not threading.main_thread():  # signals are not its business
        yield
        return
    for state in (_is_signalled, _is_told, _remedies):
        state.clear()
    awaiting, telling = socket.socketpair()
    telling.setblocking(False)
    before = signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)
    hook, sys.unraisablehook = sys.unraisablehook, _hide_interruption
    threading.Thread(target=_end_when_told, args=(awaiting,), daemon=True).start()
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(before)
        telling.close()  # which ends the thread, unless it has been told


@contextmanager
def resumable(remedy: str) -> Iterator[None]:
    """Within the block, an interruption is followed by these words on how to go on."""
    _remedies.append(remedy)
    yield
    _remedies.pop()


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _is_signalled.is_set()


def end() -> NoReturn:
    """End a command that was interrupted and has tidied up."""
    clear_screen()
    _tell()
    if _is_signalled.wait(NEWS_SECONDS):
        _exit()
    sys.exit(INTERRUPTED)


def _tell() -> None:
    """Say that the command was interrupted, once."""
    if not _is_told.is_set():
        _is_told.set()
        words = "; ".join(["interrupted", *_remedies])
        print(f"dreamwarp: {words}", file=sys.stderr, flush=True)


def _hide_interruption(error: Any) -> None:
    """Say nothing of an interruption that a callback of LLVM can't pass on: the thread knows."""
    if error.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(error)


def _end_when_told(awaiting: socket.socket) -> None:
    with awaiting:
        while signal_number := awaiting.recv(1):
            if signal_number[0] == signal.SIGINT:
                break
        else:
            return
    _is_signalled.set()
    time.sleep(GRACE_SECONDS)
    remove_unfinished()
    clear_screen()
    _tell()
    _exit()


def _exit() -> NoReturn:
    """End the process without the interpreter's tidying up."""
    with suppress(OSError, ValueError):  # the output is closed
        sys.stdout.flush()
    os._exit(INTERRUPTED)
