"""Figures are saved, and leave matplotlib's global state alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dreamwarp.report import figures


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_figures_are_saved_by_suffix(tmp_path: Path, name: str) -> None:
    path = figures.save_figure(figures.new_figure(1, 1), tmp_path / name)
    assert path.stat().st_size > 100
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in one of \.pdf, \.png, \.svg"):
        figures.save_figure(figures.new_figure(1, 1), tmp_path / "a.txt")


def test_drawing_leaves_global_state_alone(run_python: Any) -> None:
    code = "import sys, dreamwarp.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert run_python("-c", code).returncode == 0
