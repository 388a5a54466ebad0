"""The study of volumes: what it is made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import lab, volumes


def test_dice() -> None:
    a = np.array([True, True, False, False])
    assert volumes.dice(a, a) == 1.0
    assert volumes.dice(a, ~a) == 0.0
    assert volumes.dice(a, np.array([True, False, False, False])) == pytest.approx(2 / 3)


def test_scans_differ_as_their_setting_says() -> None:
    brain = np.linspace(0.0, 1.0, 512).reshape(8, 8, 8)
    seen = {s: volumes.change(brain, s, np.random.default_rng(0)) for s in volumes.SETTINGS}
    relation = {s: np.corrcoef(brain.ravel(), x.ravel())[0, 1] for s, x in seen.items()}
    assert relation["noise"] > relation["noise and bias"] > 0.9 > abs(relation["another modality"])


def test_constructed_classes_are_balanced() -> None:
    X, y = volumes.draw_volumes(2, seed=0)
    assert X.shape == (4, 16, 16, 16) and y.tolist() == [0, 0, 1, 1]


def test_the_tables_hold_what_has_been_run(tmp_path: Path) -> None:
    archive = lab.Archive(tmp_path, protocol=1)
    figures = {
        f"{key} {when}": value
        for key in ("error", "95 %", "grey", "white")
        for when, value in (("before", 2.0), ("after", 0.25))
    }
    archive.keep(volumes.Trial("align", "noise", "mi"), figures, 1.0, "abc")
    assert "| noise | mi | 2.00 → 0.25 |" in volumes.format_table(archive)
    outcome = {"nothing": 0.25, "learned": 0.125, "strength": 1.0}
    archive.keep(volumes.Trial("classify", "1-NN", "both", 1), outcome, 1.0, "abc")
    table = volumes.format_table(archive)
    assert (
        "| nothing | 1 | 25.0 % |" in table and "| learned warps, defaults | 1 | 12.5 % |" in table
    )
