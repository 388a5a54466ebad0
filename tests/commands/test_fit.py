"""``dreamwarp fit``: its file, words and exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from dreamwarp import WarpModel, cli
from dreamwarp.commands.options import parse_amount, parse_cells


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return exit_.value.code or 0


@pytest.fixture
def data(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.normal(size=(24, 14, 14)), axis=2)
    np.savez(tmp_path / "data.npz", X=X, y=np.array(["a", "b"])[np.arange(24) % 2])
    return str(tmp_path / "data.npz")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_model_is_written(tmp_path: Path, data: str, capsys: Any) -> None:
    out = tmp_path / "new" / "model.dwm"
    options = ["--cells", "2x3", "--neighbors", "2", "--strength", "0.7", "--kind", "low-rank"]
    assert run("fit", data, "-o", str(out), *options) == 0
    words = capsys.readouterr().out
    assert re.search(r"24 samples of 14 x 14 float64, 2 classes", words)
    assert re.search(r"\d+ pairs aligned, strength 0\.7; model written to .*model\.dwm", words)
    model = WarpModel.load(out)
    assert model.space.cells == (2, 3) and model.classes == ("a", "b")
    assert model.kind == "low-rank" and model.strength == 0.7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cells", "4by4"], r"cells must be 1 to 3 whole numbers with x between them.*'4by4'"),
        (["--strength", "much"], r"strength must be a number or auto, got 'much'"),
        (["--neighbors", "0"], r"Invalid value for '--neighbors'"),
        (["--method", "magic"], r"Invalid value for '--method'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    tmp_path: Path, data: str, capsys: Any, arguments: list[str], message: str
) -> None:
    assert run("fit", data, "-o", str(tmp_path / "model.dwm"), *arguments) == 2
    assert re.fullmatch(rf"dreamwarp: .*{message}.*\n", capsys.readouterr().err)
    assert not (tmp_path / "model.dwm").exists()


def test_cells_and_strengths() -> None:
    assert parse_cells("16") == (16,) and parse_cells("4x5x6") == (4, 5, 6)
    assert parse_amount("strength", "auto") == "auto" and parse_amount("sigma", "0.5") == 0.5
    for text in ("", "x", "4x", "4x4x4x4", "-4"):
        with pytest.raises(typer.BadParameter, match=r"cells must be 1 to 3 whole numbers"):
            parse_cells(text)
