"""The study of time series, at its smallest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments import series
from experiments.elastic_series import accumulate, barycenter, dtw_matrix

TIME = np.linspace(0.0, 1.0, 30)


def write_set(folder: Path) -> Path:
    """Two classes: one bump or two."""
    rng = np.random.default_rng(0)
    (folder / "Bumps").mkdir(parents=True)
    for part, n in (("TRAIN", 16), ("TEST", 20)):
        lines = []
        for k in range(n):
            centers = ((0.5,), (0.35, 0.7))[k % 2]
            bumps = sum(np.exp(-(((TIME - c - 0.04 * rng.normal()) / 0.06) ** 2)) for c in centers)
            values = np.asarray(bumps) + 0.02 * rng.normal(size=30)
            lines.append(",".join(f"{v:.5f}" for v in values) + f":{k % 2}")
        (folder / "Bumps" / f"Bumps_{part}.ts").write_text("@data\n" + "\n".join(lines))
    return folder


def test_a_smoke_run_is_complete_and_resumable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    options = ["--data", str(write_set(tmp_path)), "--sets", "Bumps", "--smoke",
               "--results", str(tmp_path / "results")]  # fmt: skip
    assert series.main([*options, "--methods", "1-NN, Euclid", "1-NN, DTW"]) == 0
    assert series.main(options) == 0
    printed = capsys.readouterr().out
    assert printed.count("Bumps, 1-NN, Euclid") == 1  # what is there is not run again
    files = sorted((tmp_path / "results").glob("*.json"))
    assert len(files) == len(series.METHODS)
    for file in files:
        record = json.loads(file.read_text())
        assert 0.0 <= record["error"] <= 1.0 and record["smoke"] and record["versions"]
    assert "| 1-NN, learned warps |" in printed and "(1) |" in printed


def test_sets_that_are_nowhere(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"NoSuchSet was not found.*pip install"):
        series.find_series("NoSuchSet", tmp_path)


def test_dtw_against_the_definition() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6)), rng.normal(size=(2, 6))

    def least(i: int, j: int) -> float:
        if i < 0 and j < 0:
            return 0.0
        if i < 0 or j < 0:
            return float("inf")
        cost = float(((a[:, i] - b[:, j]) ** 2).sum())
        return cost + min(least(i - 1, j - 1), least(i - 1, j), least(i, j - 1))

    assert accumulate(a, b, 6)[-1, -1] == pytest.approx(least(5, 5))
    assert dtw_matrix(a[None], b[None], 0)[0, 0] == pytest.approx(float(((a - b) ** 2).sum()))
    same = np.repeat(a[None], 3, axis=0)
    np.testing.assert_allclose(barycenter(same, 2), a)
