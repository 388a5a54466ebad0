"""The study of few labels: what chooses, what is told, and what rivals make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dreamwarp as dw
from experiments import few_labels
from experiments.few_labels import PLANS, Results, format_table, load, run_missing, shrink, store
from experiments.rivals import NOTHING, Task, load_task
from experiments.trials import Errors, Plan, Trial

SMALL = {name: shrink(plan) for name, plan in PLANS.items()}


def judge(plan: Plan, trial: Trial) -> Errors:
    """Errors of no classifier: the last candidate of each rival is best, and bad at the test."""
    names = [candidate.name for candidate in plan.rivals[trial.rival]]
    errors: Errors = {"validation": 0.1 / (1 + names.index(trial.candidate)), "test": 0.5}
    return {judge: errors[judge] for judge in plan.judges_of(trial)}


def run_all(plan: Plan, trials: list[Trial]):
    return ((trial, judge(plan, trial)) for trial in trials)


@pytest.fixture(params=SMALL)
def results(monkeypatch, request) -> dict[str, Results]:
    monkeypatch.setitem(few_labels.RUNS, request.param, run_all)
    return {request.param: Results(SMALL[request.param])}


def only(results: dict[str, Results]) -> tuple[str, Results, int]:
    ((name, mine),) = results.items()
    return name, mine, mine.plan.n_labels[0]


def test_candidates_are_chosen_by_validation_images_alone(results):
    lines = list(run_missing(results))
    _, mine, n_labels = only(results)
    plan = mine.plan
    assert len(lines) == len(mine.errors) == len(mine.commits)
    assert {plan.judges_of(trial) for trial in mine.candidates(n_labels)} == {("validation",)}
    finals = mine.finals(n_labels)
    assert {trial.rival for trial in finals} == set(plan.rivals)
    for trial in finals:
        names = [candidate.name for candidate in plan.rivals[trial.rival]]
        assert trial.candidate == names[-1]
        assert "test" in plan.judges_of(trial)


def test_only_what_is_missing_is_run(results, tmp_path: Path):
    (name, mine, _), path, lines = only(results), tmp_path / "results.json", run_missing(results)
    for _ in range(5):
        next(lines)
    store(path, results)
    again = load(path, {name: mine.plan})
    assert again[name].errors == mine.errors
    assert not again[name].complete
    n_rest = len(list(run_missing(again)))
    assert n_rest == len(list(lines))
    assert not list(run_missing(again))
    assert again[name].complete


def test_results_of_other_settings_are_left_out_and_kept(results, tmp_path: Path):
    list(run_missing(results))
    (name, mine, _), path = only(results), tmp_path / "results.json"
    store(path, results)
    found = load(path, PLANS)
    assert not found[name].errors
    store(path, found)
    assert load(path, {name: mine.plan})[name].errors == mine.errors


def test_no_rival_is_told_about_before_all_its_candidates_were_tried(results):
    _, mine, n_labels = only(results)
    mine.errors[str(mine.candidates(n_labels)[0])] = {"validation": 0.2}
    assert {trial.rival for trial in mine.finals(n_labels)} == {
        name for name, candidates in mine.plan.rivals.items() if len(candidates) == 1
    }


def test_the_table_has_a_row_for_every_rival_and_means_over_finals():
    plan = replace(SMALL["ConvNet"], draws=(0, 1), n_finals=2)
    mine, n_labels = Results(plan), plan.n_labels[0]
    mine.errors |= {
        str(trial): errors for trial, errors in run_all(plan, mine.candidates(n_labels))
    }
    for trial in mine.finals(n_labels):
        test = 0.1 + 0.2 * trial.draw + 0.01 * trial.final
        mine.errors[str(trial)] = {"validation": 0.5, "test": test}
    lines = format_table("ConvNet", mine).splitlines()
    assert len(lines) == 2 + len(plan.rivals)
    assert lines[0].endswith("100 without a label | ConvNet, 100 per class, test images | chosen, "
                             "and its error then |")  # fmt: skip
    row = "50.00 (50.00, 50.00) | 20.50 (10.50, 30.50)"
    assert lines[2] == f"| {NOTHING} | {row} |  |"
    assert lines[3] == f"| random elastic | {row} | width 5, amplitude 1: 5.00 |"


def test_finals_share_neither_seeds_nor_samples_with_choices_or_each_other():
    trials = [Trial(10, draw, NOTHING, "", final) for draw in range(3) for final in (None, 0, 1, 2)]
    assert len({trial.seed for trial in trials}) == len(trials)
    starts = {trial.first for trial in trials}
    assert len(starts) == 4
    assert min(np.diff(sorted(starts))) > 10**9


def test_nothing_is_judged_by_what_was_learned_from(monkeypatch):
    X = np.arange(60_000, dtype=np.int32)[:, None]
    data = SimpleNamespace(X=X, y=np.arange(60_000) % 10, X_test=X, y_test=np.arange(60_000) % 10)
    monkeypatch.setattr(dw.data, "mnist", lambda: data)
    load_task.cache_clear()
    task, taught = load_task(10, 0, 59_000, 50), load_task(50, 0, 0)
    load_task.cache_clear()
    assert np.isin(task.X, taught.X).all()
    assert not np.isin(task.validation[0], taught.X).any()
    assert len(task.validation[0]) > 58_000


@pytest.fixture(scope="module")
def task() -> Task:
    digits = dw.data.digits()
    X, y = digits.X[:200], digits.y[:200]  # of fewer it can't be told whether warps help
    return Task(20, 0, X, y, (X, y), (X, y))


@pytest.mark.filterwarnings("ignore:.*could not be aligned")
@pytest.mark.parametrize("rival", list(SMALL["1-NN"].rivals))
def test_samples_depend_on_their_numbers_alone(rival, task):
    make = SMALL["1-NN"].rivals[rival][-1].prepare(task)
    X, y = make(0, 40)
    assert X.shape == (40, 8, 8)
    assert X.dtype == task.X.dtype
    assert set(y) <= set(task.y)
    again, labels = make(25, 10)
    np.testing.assert_array_equal(again, X[25:35])
    np.testing.assert_array_equal(labels, y[25:35])
    if rival != NOTHING:
        assert (X[:, None] != task.X).any(axis=(2, 3)).all()
