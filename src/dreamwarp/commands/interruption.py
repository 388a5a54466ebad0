"""Ctrl-C: a command ends within a second, whatever it is doing, and leaves no partial files.

Python raises KeyboardInterrupt only between its own instructions, which may be late while compiled
code runs. Running threads and the interpreter's own shutdown delay the exit further. So a thread
learns of the signal at once, through the wakeup file descriptor of the signal handler. It gives the
command a moment to end by itself, then removes unfinished files and exits the process.
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
# Time for the thread to receive the signal.
NEWS_SECONDS = 0.1

# Whether the signal came, whether that was printed, and how to continue.
_is_signalled, _is_printed = threading.Event(), threading.Event()
_printing = threading.Lock()
_remedies: list[str] = []


@contextmanager
def ending_soon() -> Iterator[None]:
    """Within the block, Ctrl-C ends the process without delay."""
    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield
        return
    for state in (_is_signalled, _is_printed, _remedies):
        state.clear()
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    hook, sys.unraisablehook = sys.unraisablehook, _hide_interruption
    threading.Thread(target=_exit_on_signal, args=(receiver,), daemon=True).start()
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(before)
        sender.close()  # ends the thread, unless the signal came


@contextmanager
def resumable(remedy: str) -> Iterator[None]:
    """Within the block, the message about an interruption also says how to continue."""
    _remedies.append(remedy)
    yield
    _remedies.pop()


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _is_signalled.is_set()


def end() -> NoReturn:
    """Exit an interrupted command that has cleaned up."""
    clear_screen()
    _print_once()
    if _is_signalled.wait(NEWS_SECONDS):
        _exit()
    sys.exit(INTERRUPTED)


def _print_once() -> None:
    """Print that the command was interrupted, unless printed before."""
    with _printing:  # no thread exits while the other prints
        if not _is_printed.is_set():
            _is_printed.set()
            words = "; ".join(["interrupted", *_remedies])
            print(f"dreamwarp: {words}", file=sys.stderr, flush=True)


def _hide_interruption(error: Any) -> None:
    """Ignore a KeyboardInterrupt raised in an LLVM callback: the thread handles the signal."""
    if error.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(error)


def _exit_on_signal(receiver: socket.socket) -> None:
    with receiver:
        while signal_number := receiver.recv(1):
            if signal_number[0] == signal.SIGINT:
                break
        else:
            return
    _is_signalled.set()
    time.sleep(GRACE_SECONDS)
    remove_unfinished()
    clear_screen()
    _print_once()
    _exit()


def _exit() -> NoReturn:
    """Exit the process without the interpreter's shutdown."""
    with suppress(OSError, ValueError):  # the output is closed
        sys.stdout.flush()
    os._exit(INTERRUPTED)
