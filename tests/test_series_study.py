"""The study of time series, at its smallest."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from experiments import lab, series, tasks
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


def test_all_methods_and_the_tables(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    archive = lab.Archive(tmp_path / "results", protocol=1)
    setup = series.SMOKE._replace(folder=write_set(tmp_path))
    for method in series.METHODS:
        trial = series.Trial("Bumps", method, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of single alignments
            outcome = series.run(trial, setup)
        json.dumps(outcome)
        archive.keep(trial, outcome, 1.0, "abc")
    table = series.format_table(archive)
    for title in series.ROWS.values():
        assert f"| {title} | " in table
    assert "| error in % | Bumps |" in table and "(1) |" in table
    assert "| 1-NN | strength chosen, by draw |" in table


def test_draws_keep_the_number_of_labels_and_differ(tmp_path: Path) -> None:
    setup = series.SMOKE._replace(folder=write_set(tmp_path))
    first, second = (series.load_task("Bumps", draw, setup) for draw in (0, 1))
    assert np.bincount(first.y).tolist() == np.bincount(second.y).tolist() == [8, 8]
    assert len(first.y_test) == len(second.y_test) == 20
    assert not np.array_equal(first.X, second.X)
    np.testing.assert_allclose(first.X.mean(), 0.0, atol=1e-9)


def test_long_series_are_averaged() -> None:
    X = np.arange(2 * 600.0).reshape(1, 2, 600)
    short = tasks.shorten(X)
    assert short.shape == (1, 2, 200)
    np.testing.assert_allclose(short[0, 0, :2], [1.0, 4.0])
    np.testing.assert_array_equal(tasks.shorten(X[..., :100]), X[..., :100])


def test_sets_that_are_nowhere(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"NoSuchSet was not found.*pip install"):
        tasks.find_series("NoSuchSet", tmp_path)


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


def test_dtw_is_that_of_aeon() -> None:
    distances = pytest.importorskip("aeon.distances", reason="compares with aeon")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 40))
    for window in (0, 4, 40):
        theirs = distances.dtw_distance(a, b, window=window / 40)
        assert dtw_matrix(a[None], b[None], window)[0, 0] == pytest.approx(theirs)
