"""The command's words and exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dreamwarp
from dreamwarp.augment import precompile
from dreamwarp.core.validation import warn_user
from tests.commands.running import one_line, run


def test_version(capsys: Any) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"dreamwarp {dreamwarp.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_commands(capsys: Any, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 0
    assert re.search(r"demo\s+Learn warps of real digits", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demoo"], r"No such command 'demoo'"),
        (["demo", "--bogus"], r"No such option: --bogus"),
        (["demo", "extra"], r"unexpected extra argument"),
        (["demo", "--seed", "many"], r"Invalid value for '--seed'"),
        (["demo", "--seed", "-1"], r"Invalid value for '--seed'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(capsys: Any, arguments: list[str], message: str) -> None:
    assert run(*arguments) == 2
    one_line(capsys, message)


def test_a_picture_that_cant_be_written_is_one_line_and_code_1(capsys: Any, tmp_path: Path) -> None:
    assert run("demo", "--output", str(tmp_path / "demo.txt")) == 1
    one_line(capsys, r"must end in \.html")


def test_a_missing_part_is_one_line_and_code_1(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "dreamwarp.augment.precompile", None)
    assert run("compile") == 1
    one_line(capsys, r"dreamwarp\.augment\.precompile")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            MemoryError("Unable to allocate 3 TiB"),
            r"not enough memory: Unable to allocate 3 TiB\. Use",
        ),
        (MemoryError(), r"not enough memory: none is left\. Use a smaller set"),
    ],
)
def test_lack_of_memory_is_one_line_and_code_1(
    capsys: Any, monkeypatch: Any, error: MemoryError, message: str
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(precompile, "compile_ahead", fail)
    assert run("compile") == 1
    one_line(capsys, message)


# -- warnings


def test_warnings_are_one_plain_line_and_come_once(capsys: Any, monkeypatch: Any) -> None:
    def warn(*arguments: Any, **options: Any) -> None:
        for _ in range(3):
            warn_user("3 of 9 alignments\nhave not converged. A larger `max_steps` helps.", Mild)
        warn_user("classes are small.", Mild)

    class Mild(RuntimeWarning):
        pass

    warnings.simplefilter("always", Mild)
    monkeypatch.setattr(precompile, "compile_ahead", warn)
    assert run("compile") == 0
    assert capsys.readouterr().err.splitlines() == [
        "dreamwarp: warning: 3 of 9 alignments have not converged. A larger `--max-steps` helps.",
        "dreamwarp: warning: classes are small.",
    ]


def test_warnings_of_a_real_run_show_no_code(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((8, 12, 12))
    np.savez(tmp_path / "a.npz", X=X, y=[0, 0, 0, 0, 1, 1, 1, 2])  # one class is a single sample
    command = [sys.executable, "-m", "dreamwarp", "fit", str(tmp_path / "a.npz")]
    command += ["-o", str(tmp_path / "a.dwm"), "--cells", "2x2", "--strength", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert all(line.startswith("dreamwarp: ") for line in lines)  # on slow machines also progress
    warned = [line for line in lines if line.startswith("dreamwarp: warning: ")]
    assert warned and len(set(warned)) == len(warned)
    assert ".py" not in done.stderr
