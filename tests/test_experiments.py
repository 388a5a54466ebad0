"""The studies: what tunes, what judges, what is kept, and that each rival does what it says."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from PIL import ImageFont

import dreamwarp as dw
from experiments import (
    choosing,
    deformation_size,
    few_labels,
    fonts,
    known_covariance,
    lab,
    leakage,
    longer,
    paper,
    questions,
    ranks,
    resolution,
    spectrum,
    tasks,
    which_pairs,
)
from experiments.few_labels import TUNING, Trial, list_trials, tune
from experiments.rivals import BY_DEFAULT, RIVALS
from experiments.tasks import Task, load_task


class Numbered(NamedTuple):
    number: int

    def __str__(self) -> str:
        return f"trial {self.number}"


@pytest.fixture
def archive(tmp_path) -> lab.Archive:
    return lab.Archive(tmp_path / "results", protocol=3)


# -- the laboratory


def test_only_what_is_missing_is_run_and_failures_do_not_stop_the_rest(archive, capsys):
    trials = [Numbered(k) for k in (0, 5, 1, 2)]
    archive.keep(trials[2], {"error": 0.5}, 1.0, "abc")
    ran = list(lab.run_missing(archive, lambda: trials, square, n_processes=1))
    assert sorted(result.trial for result in ran) == [(0,), (2,), (5,)]
    assert archive.find(trials[3]) == {"error": 4.0}
    assert archive.find(trials[2]) == {"error": 0.5}
    assert archive.find(trials[1]) is None
    record = json.loads(archive.path(trials[3]).read_text())
    assert record["trial"] == {"number": 2}
    assert {"commit", "versions", "seconds", "protocol"} <= set(record)
    assert lab.tell(ran) == 1
    assert "too large" in capsys.readouterr().err


def square(trial: Numbered) -> dict[str, float]:
    if trial.number > 4:
        raise ValueError("too large")
    return {"error": float(trial.number**2)}


def test_results_of_another_protocol_are_kept_and_not_looked_at(archive):
    archive.keep(Numbered(1), {"error": 0.5}, 1.0, "abc")
    other = lab.Archive(archive.folder, protocol=4)
    assert other.find(Numbered(1)) is None
    assert len(archive.records()) == 1
    assert not other.records()


# -- tuning


def grid_of(name: str) -> list[Trial]:
    return [Trial("mnist-100", "MLP", name, s, TUNING) for s in RIVALS[name].settings]


@pytest.mark.parametrize("best", range(8))
def test_tuning_goes_on_while_the_best_is_at_the_edge(archive, best):
    grid = grid_of("elastic")
    for _ in grid:
        missing, setting = tune(archive, grid)
        if not missing:
            break
        assert setting is None
        for trial in missing:
            error = abs(grid.index(trial) - best) / 10
            archive.keep(trial, {"validation": error}, 1.0, "abc")
    assert setting == grid[best].setting
    tried = [archive.find(trial) is not None for trial in grid]
    assert all(tried[max(best - 1, 0) : best + 2])
    if best == 4:
        assert sum(tried) == 3


def test_of_settings_that_tie_the_middle_is_chosen(archive):
    grid = grid_of("elastic")
    for trial in tune(archive, grid)[0]:
        archive.keep(trial, {"validation": 0.0}, 1.0, "abc")
    assert tune(archive, grid) == ([], grid[4].setting)


def test_no_final_before_its_rival_is_tuned(archive):
    trials = list_trials(archive, "mnist-100/MLP", ("elastic", BY_DEFAULT))
    assert {trial.rival for trial in trials if trial.draw != TUNING} == {BY_DEFAULT}
    assert {trial.rival for trial in trials if trial.draw == TUNING} == {"elastic"}


def test_the_table_pairs_draws_with_the_default(archive):
    for trial in grid_of("elastic"):
        archive.keep(trial, {"validation": abs(trial.setting - 1.4)}, 1.0, "abc")
    for draw in range(few_labels.N_DRAWS):
        for name, setting, error in ((BY_DEFAULT, None, 0.02), ("elastic", 1.4, 0.03)):
            trial = Trial("mnist-100", "MLP", name, setting, draw)
            both = {"others": error + draw / 1000, "test": 0.5}
            archive.keep(trial, both, 1.0, "abc")
    table = few_labels.format_study(archive, "mnist-100/MLP", ("elastic", BY_DEFAULT))
    row = table.splitlines()[2]
    assert row.startswith(
        "| elastic | 1.4 | 5 | 3.20 (3.00, 3.10, 3.20, 3.30, 3.40) | -1.00 ± 0.00, 5 of 5 no worse "
        "| 50.00 ("
    )
    summary = few_labels.format_summary(archive).splitlines()
    assert summary[0] == "| augmentation | MLP, 100 per class |"  # of the only case that was run
    assert summary[2:] == [
        "| elastic noise, tuned | 50.00 % |",
        "| learned warps, default settings | 50.00 % |",
    ]


# -- ranks


def test_holm_by_hand():
    np.testing.assert_allclose(ranks.holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(ranks.holm(np.array([0.9, 0.5])), [1.0, 1.0])


def test_ranks_tell_ways_that_differ_from_ways_that_do_not():
    rng = np.random.default_rng(0)
    errors = np.stack([5 + rng.normal(size=20), 5 + rng.normal(size=20)], axis=1)
    errors = np.column_stack([errors, errors.min(axis=1) - 1.0])  # the third is always best
    assert ranks.mean_ranks(errors)[2] == 1.0
    p_values = ranks.compare(errors)
    assert p_values[0, 1] > 0.05 > max(p_values[0, 2], p_values[1, 2])
    assert [sorted(run) for run in ranks.find_cliques(errors)] == [[0, 1]]
    table = ranks.count_wins(errors, ("a", "b", BY_DEFAULT))
    assert table.splitlines()[2].startswith(f"| {BY_DEFAULT} | 1.00 |")
    assert "| 20 | 0 | 0 |" in table
    ranks.draw(errors, ("a", "b", BY_DEFAULT)).canvas.draw()


# -- tasks


def test_nothing_tunes_or_judges_what_it_was_learned_from(monkeypatch):
    X = np.arange(60_000, dtype=np.int32)[:, None]
    y = np.arange(60_000) % 10
    data = SimpleNamespace(X=X, y=y, X_test=-X - 1, y_test=y, test=(X, y))
    monkeypatch.setitem(tasks.TASKS, "numbers", partial(tasks._divide_large, lambda: data, 10))
    drawn = [load_task("numbers", draw) for draw in (0, TUNING)]
    for task in drawn:
        parts = [task.X, task.validation[0], *(X for X, _ in task.judges.values())]
        everything = np.concatenate(parts).ravel()
        assert len(np.unique(everything)) == len(everything) == 120_000
    assert not np.isin(drawn[0].judges["others"][0], drawn[1].validation[0]).any()


def test_letters_are_split_by_package(monkeypatch):
    packages = np.repeat(np.arange(61)[np.arange(61) != 7], 2)  # package 7 has no usable family
    letters = np.broadcast_to(packages[:, None, None, None], (120, 26, 1, 1))
    monkeypatch.setattr(tasks, "load_letters", lambda: (letters, packages))
    drawn = [load_task("letters-10", draw) for draw in (7, TUNING)]
    for task in drawn:
        parts = [set(X.ravel()) for X in (task.X, task.validation[0], task.judges["test"][0])]
        assert len(task.X) == 260
        assert [len(part) for part in parts] == [10, 20, 30]
        assert len(set.union(*parts)) == 60
        np.testing.assert_array_equal(task.y[:26], np.arange(26))
    np.testing.assert_array_equal(drawn[0].validation[0], drawn[1].validation[0])
    load_task.cache_clear()


def test_letters_fill_their_images():
    image = fonts.draw_letter(ImageFont.load_default(100), "M")
    rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
    assert image.shape == (28, 28)
    assert image.max() > 200
    assert 18 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
    assert abs(columns.mean() - 13.5) <= 1


def test_votes_that_tie_go_to_the_nearest():
    labels = np.array([[2, 1, 1], [0, 1, 2], [2, 0, 1]])
    np.testing.assert_array_equal(deformation_size.vote(labels, 3), [1, 0, 2])


def test_small_sets_keep_tuning_samples_apart_in_every_draw():
    first, second = load_task("digits-10", 0), load_task("digits-10", TUNING)
    np.testing.assert_array_equal(first.validation[0], second.validation[0])
    sizes = [len(first.y), len(first.validation[1]), len(first.judges["test"][1])]
    assert sum(sizes) == 1797
    assert sizes[0] == 100


# -- rivals


@pytest.fixture(scope="module")
def task() -> Task:
    digits = dw.data.digits()
    X, y = digits.X[:200], digits.y[:200].astype(np.int64)
    return Task("digits-10", 0, X, y, (X, y), {"test": (X, y)}, 1.0)


@pytest.mark.filterwarnings("ignore:.*could not be aligned")
@pytest.mark.filterwarnings("ignore:.*strength 0")
@pytest.mark.filterwarnings("ignore:.*set_epoch")  # asked twice for the same numbers
@pytest.mark.parametrize("for_network", [False, True])
@pytest.mark.parametrize("name", [name for name in RIVALS if name != "nothing"])
def test_rivals_deform_by_number(name, for_network, task):
    rival = RIVALS[name]
    setting = rival.settings[len(rival.settings) // 2] if rival.settings else None
    if name == BY_DEFAULT and not for_network:
        setting = 1.0  # so few samples may not show that warps help
    deform = rival.prepare(task, setting, for_network)
    templates = np.arange(40)
    made = deform(templates, 80)
    assert made.shape == (40, 8, 8)
    assert made.dtype == task.X.dtype
    assert (made != task.X[:40]).any(axis=(1, 2)).all()
    np.testing.assert_array_equal(deform(templates, 80), made)
    assert (deform(templates, 120) != made).any()


# -- every study runs


@pytest.mark.filterwarnings("ignore:.*strength 0")
@pytest.mark.filterwarnings("ignore:.*could not be aligned")
def test_few_labels_smoke(capsys):
    assert few_labels.main(["--smoke"]) == 0
    assert capsys.readouterr().out.count("digits-10") == len(RIVALS)


@pytest.mark.parametrize(
    "study",
    [
        known_covariance,
        which_pairs,
        resolution,
        spectrum,
        leakage,
        longer,
        questions,
        deformation_size,
    ],
)
def test_short_studies_smoke(study, capsys):
    assert study.STUDY.main(["--smoke"]) == 0
    assert "{" in capsys.readouterr().out


def test_displacements_are_divided_into_shift_affine_and_rest():
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(60, 2))
    weights = rng.uniform(size=60)
    shifts = rng.normal(size=(500, 1, 2)) + np.zeros((1, 60, 1))
    found = which_pairs.divide(shifts, points, weights)
    assert found["shift"] == pytest.approx(found["all"]) and found["affine"] < 1e-5
    linear = np.einsum("nij,mj->nmi", rng.normal(size=(500, 2, 2)), points)
    assert which_pairs.divide(linear, points, weights)["rest"] < 1e-5


def test_tables_of_what_there_is(capsys):
    for study in (few_labels, choosing, paper):
        assert study.main(["--table"]) == 0
    assert "| AlignMNIST500 |" in capsys.readouterr().out


def test_paper_finals_wait_for_settings_and_read_the_test_once(archive):
    first = paper.list_trials(archive, "elastic", "MLP")
    assert [trial.setting for trial in first] == list(paper.ROWS["elastic"].settings["MLP"])
    assert all(trial.seed is None for trial in first)
    for trial in first:
        archive.keep(trial, {"validation": trial.setting}, 1.0, "abc")
    finals = paper.list_trials(archive, "elastic", "MLP")
    best = min(trial.setting for trial in first)
    assert [(trial.setting, trial.seed) for trial in finals] == [(best, k) for k in paper.SEEDS]
    sooner = paper.list_trials(archive, "elastic", "MLP", n_seeds=1)
    assert sooner == finals[:1]
    assert not paper.list_trials(archive, "AlignMNIST500", "1-NN")
