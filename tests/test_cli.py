"""The command's words and exit codes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import dreamwarp
from dreamwarp import cli, demo

PNG = b"\x89PNG\r\n"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return exit_.value.code or 0


def test_version(capsys: Any) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"dreamwarp {dreamwarp.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_commands(capsys: Any, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 0
    assert re.search(r"demo\s+Warp real digits", capsys.readouterr().out)


def test_help_of_a_command_has_examples(capsys: Any) -> None:
    assert run("demo", "--help") == 0
    words = capsys.readouterr().out
    assert "dreamwarp demo --seed 7 --output out/seven.svg" in words
    assert "--seed" in words


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
    assert_one_line(capsys.readouterr(), message)


def test_a_picture_that_cant_be_written_is_one_line_and_code_1(capsys: Any, tmp_path: Path) -> None:
    assert run("demo", "--output", str(tmp_path / "demo.txt")) == 1
    assert_one_line(capsys.readouterr(), r"must end in one of \.pdf, \.png, \.svg")


def test_a_missing_part_is_one_line_and_code_1(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "dreamwarp.demo", None)
    assert run("demo") == 1
    assert_one_line(capsys.readouterr(), r"dreamwarp\.demo")


def assert_one_line(captured: Any, message: str) -> None:
    assert captured.out == ""
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", captured.err)


def test_demo_writes_a_picture(capsys: Any, tmp_path: Path) -> None:
    picture = tmp_path / "out" / "demo.png"
    assert run("demo", "--seed", "3", "--output", str(picture)) == 0
    words = capsys.readouterr()
    assert words.err == ""
    assert re.search(r"1,797 handwritten digits", words.out)
    assert re.search(r"images per second", words.out)
    assert words.out.endswith(f"picture written to {picture}\n")
    assert picture.read_bytes().startswith(PNG)
    assert [path.name for path in picture.parent.iterdir()] == ["demo.png"]


def test_the_seed_fixes_the_warps() -> None:
    space = dreamwarp.WarpSpace((4, 4))
    few = demo.draw_smooth_theta(space, 2, seed=3)
    np.testing.assert_allclose(few, demo.draw_smooth_theta(space, 5, seed=3)[:2], atol=1e-12)
    assert not np.allclose(few, demo.draw_smooth_theta(space, 2, seed=4))


def test_interruption_is_code_130_and_leaves_nothing(
    capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    def interrupted(figure: Figure, path: Path, **options: Any) -> None:
        path.write_bytes(PNG)
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    monkeypatch.setattr(demo, "time_warps", lambda *arguments, **options: None)
    assert run("demo", "--output", str(tmp_path / "demo.png")) == cli.INTERRUPTED
    assert capsys.readouterr().err == "dreamwarp: interrupted\n"
    assert list(tmp_path.iterdir()) == []
