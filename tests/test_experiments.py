"""The study of few labels: what chooses, what is told, and what rivals make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dreamwarp as dw
from experiments import few_labels
from experiments.few_labels import PLANS, Results, format_table, load, run_missing, shrink, store
from experiments.rivals import NOTHING, Task, list_rivals
from experiments.trials import Errors, Plan, Trial

PLAN = shrink(PLANS["1-NN"])


def judge(trial: Trial) -> Errors:
    """Errors of no classifier: the second candidate of each rival is best, and bad at the test."""
    names = [candidate.name for candidate in PLAN.rivals[trial.rival]]
    errors: Errors = {"validation": 0.1 / (1 + names.index(trial.candidate)), "test": 0.5}
    return {judge: errors[judge] for judge in PLAN.judges_of(trial)}


def run_all(plan: Plan, trials: list[Trial]):
    return ((trial, judge(trial)) for trial in trials)


@pytest.fixture
def results(monkeypatch) -> dict[str, Results]:
    monkeypatch.setitem(few_labels.RUNS, "1-NN", run_all)
    return {"1-NN": Results(PLAN)}


def test_candidates_are_chosen_by_validation_images_alone(results):
    lines = list(run_missing(results))
    mine = results["1-NN"]
    assert len(lines) == len(mine.errors)
    assert {PLAN.judges_of(trial) for trial in mine.candidates(10)} == {("validation",)}
    finals = mine.finals(10)
    assert {trial.rival for trial in finals} == set(PLAN.rivals)
    for trial in finals:
        names = [candidate.name for candidate in PLAN.rivals[trial.rival]]
        assert trial.candidate == names[-1]
        assert PLAN.judges_of(trial) == ("test",)


def test_only_what_is_missing_is_run(results, tmp_path: Path):
    path, lines = tmp_path / "results.json", run_missing(results)
    for _ in range(5):
        next(lines)
    store(path, results)
    again = load(path, {"1-NN": PLAN})
    assert again["1-NN"].errors == results["1-NN"].errors
    assert not again["1-NN"].complete
    n_rest = len(list(run_missing(again)))
    assert n_rest == len(list(lines))
    assert not list(run_missing(again))
    assert again["1-NN"].complete


def test_results_of_other_settings_are_left_out(results, tmp_path: Path, capsys):
    list(run_missing(results))
    store(tmp_path / "results.json", results)
    found = load(tmp_path / "results.json", {"1-NN": PLANS["1-NN"]})
    assert not found["1-NN"].errors
    assert "other settings" in capsys.readouterr().out


def test_no_rival_is_told_about_before_all_its_candidates_were_tried(results):
    mine = results["1-NN"]
    mine.errors[str(mine.candidates(10)[0])] = {"validation": 0.2}
    assert {trial.rival for trial in mine.finals(10)} == {
        name for name, candidates in PLAN.rivals.items() if len(candidates) == 1
    }


def test_the_table_has_a_row_for_every_rival(results):
    list(run_missing(results))
    lines = format_table("1-NN", results["1-NN"]).splitlines()
    assert len(lines) == 2 + len(PLAN.rivals)
    assert lines[2] == f"| {NOTHING} | 50.00 (50.00) |  |"
    assert lines[3] == "| random elastic | 50.00 (50.00) | width 3, amplitude 0.7: 5.00 |"


def test_finals_share_neither_seeds_nor_samples_with_choices_or_each_other():
    trials = [Trial(10, draw, NOTHING, "", final) for draw in range(3) for final in (None, 0, 1, 2)]
    assert len({trial.seed for trial in trials}) == len(trials)
    starts = {trial.first for trial in trials}
    assert len(starts) == 4
    assert min(np.diff(sorted(starts))) > 10**9


@pytest.fixture(scope="module")
def task() -> Task:
    digits = dw.data.digits()
    X, y = digits.X[:100], digits.y[:100]
    return Task(10, 0, X, y, (X, y), (X, y))


@pytest.mark.filterwarnings("ignore:.*could not be aligned")
@pytest.mark.parametrize("rival", list(PLAN.rivals))
def test_samples_depend_on_their_numbers_alone(rival, task):
    make = list_rivals(PLAN.grids)[rival][-1].prepare(task)
    X, y = make(0, 40)
    assert X.shape == (40, 8, 8)
    assert X.dtype == task.X.dtype
    assert set(y) <= set(task.y)
    again, labels = make(25, 10)
    np.testing.assert_array_equal(again, X[25:35])
    np.testing.assert_array_equal(labels, y[25:35])
    if rival != NOTHING:
        assert (X[:, None] != task.X).any(axis=(2, 3)).all()
