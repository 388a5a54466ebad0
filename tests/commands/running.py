"""Run commands in this process, and check what they print."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dreamwarp import cli


def run(*arguments: str) -> int:
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return int(exit_.value.code or 0)


def one_line(capsys: Any, message: str, *, out: str = "") -> None:
    """Check that a command printed one matching line on standard error, and ``out`` before."""
    printed = capsys.readouterr()
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", printed.err), printed.err
    assert re.fullmatch(out, printed.out), printed.out
