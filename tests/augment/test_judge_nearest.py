"""The choice of a strength, and the verdict."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.stats
from scipy.special import expit
from sklearn.base import clone

import dreamwarp as dw
from dreamwarp.align.images import shrink_images
from dreamwarp.augment import judge_nearest
from dreamwarp.augment.class_distances import ClassDistances, standardize
from dreamwarp.augment.folds import (
    N_HELD_OUT,
    choose_some,
    count_folds,
    first_alike,
    make_folds,
)
from dreamwarp.augment.judge_nearest import smooth_errors
from dreamwarp.augment.race import STRENGTHS, STRONGER, Errors, Race
from dreamwarp.augment.verdict import (
    LOWEST_FRACTION,
    NETWORK_FACTOR,
    NOTHING_HELD_OUT,
    Judgement,
    Setup,
    choose_place,
    compare,
    conclude,
    expected_strength,
    in_percent,
    locate_lowest,
    mean_interval,
    network_strength,
)
from tests.augment.cases import heights, textures


def distances(own: Any, other: Any) -> ClassDistances:
    values = np.stack([own, other], axis=1).astype(np.float32)
    return ClassDistances(np.zeros((len(values), 1), np.float32), values[:, 0], values)


@cache
def fitted() -> dw.Augmenter:
    return dw.Augmenter(cells=(3, 3), strength=1.0, progress=False).fit(*textures(8, 0))


SETUP = Setup((5, 10, 20, 40), 80, 100)


def as_errors(values: Any) -> Errors:
    return Errors(values, values)


def race_of(rounds: Any, strengths: Any = STRENGTHS) -> Race:
    """A race of these errors (n_strengths, n_held_out) after each round; none is dropped."""
    return Race(
        {
            strength: [Errors(errors.smooth[k], errors.wrong[k]) for errors in rounds]
            for k, strength in enumerate(strengths)
        }
    )


def judge(values: Any, strengths: Any = STRENGTHS) -> Judgement:
    """What is concluded from errors that do not depend on the number of copies."""
    return conclude(race_of([as_errors(np.asarray(values))] * 4, strengths), SETUP)


def test_errors_are_those_of_the_nearest_neighbour_but_smooth() -> None:
    own, other = np.array([1.0, 4.0, 2.0, 2.0]), np.array([4.0, 1.0, 2.0, 2.0 * 1.05**2])
    errors = smooth_errors(distances(own, other), np.zeros(4, np.int64))
    np.testing.assert_allclose(errors, [0.0, 1.0, 0.5, 1 / (1 + 1.05**20)], atol=1e-5)
    np.testing.assert_allclose(
        smooth_errors(distances(own, other), np.ones(4, np.int64)), 1.0 - errors, atol=1e-6
    )
    # Duplicates on both sides, and a class that was never met.
    odd = smooth_errors(distances([0.0, np.inf], [0.0, 1.0]), np.zeros(2, np.int64))
    np.testing.assert_allclose(odd, [0.5, 1.0])


@pytest.mark.parametrize("counts", [(30, 30), (400, 900, 1), (5000, 4000), (2, 3, 1, 1)])
def test_folds_divide_every_class_and_hold_out_about_as_many(counts: tuple[int, ...]) -> None:
    codes = np.repeat(np.arange(len(counts)), counts)
    alike = np.arange(len(codes))
    folds = make_folds(codes, alike, 0)
    total = np.sum(folds, axis=0)
    assert total.max() == 1
    alone = np.isin(codes, np.flatnonzero(np.array(counts) == 1))
    assert not total[alone].any()
    n_held_out = total.sum()
    assert min(N_HELD_OUT, (~alone).sum()) * 0.99 <= n_held_out <= 1.5 * N_HELD_OUT
    for fold in folds:
        for code, count in enumerate(counts):
            expected = count / count_folds(len(codes))
            assert abs(fold[codes == code].sum() - expected) <= 1
    assert any(
        (fold != other).any()
        for fold, other in zip(folds, make_folds(codes, alike, 1), strict=True)
    )


def test_copies_are_held_out_together() -> None:
    random = np.random.default_rng(0)
    once = random.random((40, 6, 6)).astype(np.float32)
    images = np.concatenate([once, once[::-1]])
    codes = np.concatenate([np.arange(40) % 4, (np.arange(40) % 4)[::-1]])
    alike = first_alike(images)
    np.testing.assert_array_equal(alike, np.append(np.arange(40), np.arange(40)[::-1]))
    folds = make_folds(codes, alike, 0)
    assert np.sum(folds) == len(images)
    for fold in folds:
        np.testing.assert_array_equal(fold[:40], fold[40:][::-1])
    # A class of which there are only copies of one sample is never held out.
    lonely = np.where(alike == 7, 4, codes)
    assert not np.any(make_folds(lonely, alike, 0), axis=0)[alike == 7].any()


def test_a_verdict_is_not_better_for_samples_given_twice(monkeypatch: Any) -> None:
    monkeypatch.setattr(judge_nearest, "N_WARPED", 500)
    monkeypatch.setattr(judge_nearest, "LEAST_WARPED", 500)
    X, y = textures(8, 0)
    once = fitted().judge(strengths=[1.0]).verdict
    repeated = clone(fitted()).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    twice = repeated.judge(strengths=[1.0]).verdict
    assert 0.0 < once.error_without < 1.5 * twice.error_without


def test_large_samples_are_averaged_down() -> None:
    X = np.random.default_rng(0).random((2, 3, 64, 40))
    small = shrink_images(X, 2, 32)
    assert small.shape == (2, 3, 32, 32)
    np.testing.assert_allclose(small[..., :, 0], X[..., 0].reshape(2, 3, 32, 2).mean(axis=3), 1e-6)
    np.testing.assert_allclose(shrink_images(X[:, 0, :20, :20], 2, 32), X[:, 0, :20, :20], 1e-6)
    large = standardize(np.float32(1e3) + small)
    assert abs(large.mean()) < 1e-3 and abs(large.std() - 1.0) < 1e-3
    assert not standardize(np.ones((2, 4), np.float32)).any()


def test_the_interval_is_students() -> None:
    values = np.random.default_rng(0).standard_normal(30)
    expected = scipy.stats.ttest_1samp(values, 0.0).confidence_interval()
    np.testing.assert_allclose(mean_interval(values), expected)
    assert mean_interval(values[:1]) == (-np.inf, np.inf)


def test_a_verdict_says_what_it_found() -> None:
    without = Errors(np.full((1, 100), 0.2), (np.arange(100) < 22)[None] * 1.0)
    better = Errors(np.tile([0.0, 0.1], (3, 50)), (np.arange(100) < [[3], [4], [5]]) * 1.0)
    verdict = compare(without, better, SETUP)
    assert verdict.helps and verdict.interval[0] < verdict.improvement < verdict.interval[1]
    assert verdict.improvement == pytest.approx(0.15)
    assert (verdict.error_without, verdict.error_with) == pytest.approx((0.22, 0.04))
    assert str(verdict).startswith("augmentation helps: error of")
    assert "22.0 % without warped samples, 4.0 % with 40 warped copies" in str(verdict)
    assert "smoothed error, which decides, goes from 20.0 % to 5.0 % (95 %" in str(verdict)
    assert "of each of 80 others" in str(verdict) and verdict.n_copies == 40
    assert "averaged" not in str(verdict)
    assert "averaged down to 32 x 20" in str(
        compare(without, better, SETUP._replace(shape=(32, 20)))
    )
    assert "(95 % interval of the reduction: 14.0 to 16.0 points)." in str(verdict)
    worse = compare(better, without, SETUP)
    assert not worse.helps and worse.improvement == pytest.approx(-0.15)
    assert str(worse).startswith("do not augment: ")
    same = compare(without, without, SETUP)
    assert not same.helps and str(same).startswith("do not augment: ")
    unsure = Errors(np.tile([0.0, 0.39], (1, 50)), better.wrong)
    verdict = compare(without, unsure, SETUP)
    assert not verdict.helps and verdict.interval[0] < 0.0 < verdict.interval[1]
    assert str(verdict).startswith("no clear difference: do not augment unless you can test it: ")


def test_warps_of_no_strength_are_left() -> None:
    errors = as_errors(np.full((2, 50), 0.3))
    verdict = conclude(race_of([errors], (0.0, 1e-9)), Setup((1,), 80, 100)).verdict
    assert not verdict.helps
    assert verdict.improvement == 0.0
    assert str(verdict).startswith("do not augment")
    assert "-0.0" not in str(verdict)


@pytest.mark.parametrize(("level", "strength"), [(0.01, 1.0), (0.03, 0.0)])
def test_without_errors_there_is_nothing_to_gain(level: float, strength: float) -> None:
    """The smoothed error, which is not 0, still chooses the strength."""
    noise = np.random.default_rng(0).normal(0.0, 1e-3, 200)
    errors = Errors(np.stack([0.02 + noise, level + 0.5 * noise]), np.zeros((2, 200)))
    judged = conclude(race_of(3 * [errors], (0.0, 1.0)), SETUP._replace(copies=(5, 10, 20)))
    verdict, words = judged.verdict, str(judged.verdict)
    assert verdict.is_errorless and not verdict.helps and verdict.n_enough is None
    assert judged.strength == strength and verdict.probably == (strength > 0.0)
    assert words.startswith("nothing to gain: a nearest-neighbour classifier makes no error on 200")
    reason = "since warps reduce" if strength else "warps do not reduce"
    assert f"Strength {strength:g}" in words and f"{reason} the smoothed error" in words
    for advice in ("helps", "do not augment", "copies per sample", "larger"):
        assert advice not in words


def test_without_errors_left_no_more_is_advised() -> None:
    """Though smoothed errors still fall, with more copies and with stronger warps."""
    noise = np.random.default_rng(0).normal(0.0, 1e-3, 100)
    wrong = np.zeros((3, 100))
    wrong[0, :20] = 1.0
    rounds = [
        Errors(np.array([[0.2], [level], [0.5 * level]]) + noise, wrong)
        for level in (0.09, 0.06, 0.03)
    ]
    setup = SETUP._replace(copies=(5, 10, 20), expected=2.0)
    verdict = conclude(race_of(rounds, (0.0, 1.0, 2.0)), setup).verdict
    assert verdict.helps and (verdict.error_with, verdict.n_enough) == (0.0, 5)
    assert "About 5 copies per sample, 500 in all" in str(verdict)
    assert "larger" not in str(verdict) and "as you can" not in str(verdict)


def test_a_verdict_agrees_with_the_errors_by_strength() -> None:
    random = np.random.default_rng(4)
    for _ in range(20):
        smooth = random.uniform(0.0, 0.4, (len(STRENGTHS), 60))
        errors = Errors(smooth, (smooth > 0.3) * 1.0)
        judged = conclude(race_of([errors] * 2), SETUP._replace(copies=(5, 10)))
        verdict, words = judged.verdict, str(judged)
        assert verdict.error_without == pytest.approx((smooth[0] > 0.3).mean())
        assert f"is {in_percent(verdict.error_without)} without warped samples" in words
        without = judged.errors[0.0]
        change = f"{in_percent(without)} to {in_percent(without - verdict.improvement)}"
        assert f"smoothed error, which decides, goes from {change} (95 %" in words
        assert f"Smoothed errors by strength: 0: {in_percent(without)}" in words
        assert f"Strength {judged.strength:g}" in words
        assert "at strengths chosen on other held-out samples" in words


def test_of_many_samples_only_some_are_copied() -> None:
    codes, kept = np.zeros(1000, np.int64), np.arange(1000) % 5 > 0
    chosen = choose_some(codes, kept, 100, 3)
    assert len(np.unique(chosen)) == 100
    assert kept[chosen].all()
    assert chosen.max() > 900
    np.testing.assert_array_equal(choose_some(codes, kept, 800, 3), np.flatnonzero(kept))


def test_a_rare_class_is_not_lost_among_many_samples() -> None:
    codes = np.zeros(1000, np.int64)
    codes[[3, 500]], codes[600:700] = 1, 2
    chosen = choose_some(codes, np.ones(1000, np.bool_), 100, 3)
    assert np.bincount(codes[chosen]).tolist() == [90, 1, 10]


# -- the choice, simulated


def walks(random: Any, n: int, size: float) -> Any:
    """Noise (n_strengths, n): what a warp does to a sample differs little from the next strength's.

    0 for strength 0, and of mean 0 for all.
    """
    steps = random.normal(0.0, size, (len(STRENGTHS), n))
    steps[0] = 0.0
    return np.cumsum(steps, axis=0)


@pytest.mark.parametrize("n_runs", [250, pytest.param(1200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [50, 300])
@pytest.mark.parametrize("kind", ["alike", "rare", "independent"])
def test_without_an_effect_no_warps_are_chosen(kind: str, n: int, n_runs: int) -> None:
    random = np.random.default_rng(0)
    above = helps = looks_better = 0
    for _ in range(n_runs):
        if kind == "independent":
            errors = random.normal(0.3, 0.2, (len(STRENGTHS), n))
        else:
            touched = random.random(n) < (1.0 if kind == "alike" else 0.1)
            errors = random.uniform(0.0, 1.0, n) + touched * walks(random, n, 0.1)
        judged = judge(errors)
        assert (judged.strength > 0.0) == judged.verdict.probably >= judged.verdict.helps
        above += judged.strength > 0.0
        helps += judged.verdict.helps
        looks_better += errors.mean(axis=1).argmin() > 0
    # Two standard deviations more for few runs.
    slack = 0.0 if n_runs > 1000 else 2.0
    assert helps <= 0.05 * n_runs + slack * math.sqrt(0.05 * n_runs)
    # A standard normal exceeds 1 in 16 % of cases; with few held out it is a little more.
    assert above <= 0.2 * n_runs + slack * math.sqrt(0.2 * n_runs)
    assert looks_better > 0.5 * n_runs  # the best of six often beats none by chance


def with_effect(random: Any, n: int, best: float, gain: float, noise: float) -> Any:
    """Errors of samples whose margin is wider by ``gain`` at strength ``best``, less at others."""
    strengths = np.array(STRENGTHS)[1:]
    gains = np.append(0.0, gain * (1.0 - (np.log(strengths / best) / 0.9) ** 2))
    margins = random.normal(0.2, 0.2, n) + np.maximum(gains, -3.0 * gain)[:, None]
    return expit(-10.0 * (margins + walks(random, n, noise)))


@pytest.mark.parametrize(("n", "least"), [(50, 0.95), (300, 0.99)])
@pytest.mark.parametrize("best", [0.6, 1.0])
def test_with_an_effect_warps_are_chosen(best: float, n: int, least: float) -> None:
    random = np.random.default_rng(1)
    chosen = [judge(with_effect(random, n, best, 0.06, 0.03)).strength for _ in range(200)]
    assert np.mean(np.array(chosen) > 0.0) >= least


def test_the_choice_loses_less_than_the_lowest_error() -> None:
    """Where strengths beside 1 are as likely to be best."""
    random = np.random.default_rng(2)
    losses = np.zeros((2, 2))
    for best in (0.7, 1.0, 1.4):
        for noise in (0.02, 0.05):
            truth = with_effect(random, 100_000, best, 0.05, noise)[1:].mean(axis=1)
            for _ in range(100):
                for row, n in enumerate((50, 300)):
                    errors = with_effect(random, n, best, 0.05, noise)[1:]
                    places = [choose_place(errors, STRENGTHS[1:]), int(errors.mean(1).argmin())]
                    losses[row] += truth[places] - truth.min()
    chosen, lowest = losses.T
    assert (chosen < lowest).all()


def test_among_equals_the_expected_strength_wins() -> None:
    errors = np.tile([[0.5], [0.1], [0.1], [0.1], [0.1]], 10)
    tied = Errors(errors, errors)
    for expected, chosen in ((0.4, 0.5), (0.8, 0.7), (1.0, 1.0), (1.19, 1.4), (2.0, 1.4)):
        judged = conclude(race_of([tied]), SETUP._replace(copies=(40,), expected=expected))
        assert judged.strength == chosen
    errors[4] = 0.2  # clearly worse: expected or not
    judged = conclude(race_of([tied]), SETUP._replace(copies=(40,), expected=1.4))
    assert judged.strength == 1.0


def test_fewer_samples_are_expected_to_need_stronger_warps() -> None:
    assert expected_strength(5000, 10) == 1.0
    few, many = expected_strength(100, 10), expected_strength(60_000, 10)
    assert 1.3 < few < 1.5 and 0.7 < many < 0.9


def test_among_equals_the_strength_nearest_to_1_wins() -> None:
    errors = np.tile([[0.5], [0.09995], [0.1], [0.1], [0.4]], 10)
    judged = judge(errors)
    assert judged.strength == 1.0
    assert judged.errors[0.0] == pytest.approx(0.5)
    assert judged.verdict.helps and judged.verdict.error_with == pytest.approx(0.1)
    assert "Smoothed errors by strength: 0: 50.0 %, 0.5: 10.0 %, 0.7" in str(judged)
    errors[3] = 0.2
    assert judge(errors).strength == 0.7
    # 0.5 and 2 are as far from 1: the better one.
    even = np.tile([[0.5], [0.1], [0.09995]], 10)
    assert judge(even, (0.0, 0.5, 2.0)).strength == 2.0


def test_where_none_is_best_warps_are_judged_all_the_same() -> None:
    errors = np.tile([[0.1], [0.2], [0.3], [0.3], [0.3]], 10)
    judged = judge(errors)
    assert judged.strength == 0.0
    assert judged.verdict.improvement == pytest.approx(-0.1)
    assert str(judged.verdict).startswith("do not augment: ")
    assert judged.verdict.n_enough is None and "copies per sample" not in str(judged.verdict)
    single = judge(errors[:, :1])
    assert single.verdict.interval == (-np.inf, np.inf) and not single.verdict.helps


# -- how many, how strong


def by_copies(levels: Any) -> Race:
    """Errors without warps, 0.5, and with them, for each number of copies."""
    base, noise = np.random.default_rng(0).normal(0.0, [[0.1], [0.01]], (2, 200))
    rounds = [as_errors(np.stack([0.5 + base, level + base + noise])) for level in levels]
    return race_of(rounds, (0.0, 1.0))


def test_the_verdict_says_how_many_copies_are_enough() -> None:
    judged = conclude(by_copies((0.4, 0.3, 0.3, 0.3)), SETUP).verdict
    assert judged.n_enough == 10
    assert "About 10 copies per sample, 1,000 in all, do as well as 40." in str(judged)
    falling = conclude(by_copies((0.4, 0.3, 0.2, 0.1)), SETUP).verdict
    assert falling.helps and falling.n_enough is None
    assert "still falling at 40 copies per sample: make as many as you can" in str(falling)
    # As good as all by chance, but twice as many are not.
    dip = conclude(by_copies((0.3, 0.4, 0.3, 0.3)), SETUP).verdict
    assert dip.n_enough == 20
    once = conclude(by_copies((0.3,)), Setup((1,), 80, 100)).verdict
    assert once.n_enough is None and "copies per sample" not in str(once)


def test_a_best_strength_at_the_edge_is_said() -> None:
    falling = np.tile(np.linspace(0.5, 0.1, 5)[:, None], 20)
    assert "Strength 1.4, the largest compared, was the best" in str(judge(falling))
    assert "largest" not in str(judge(falling[[0, 4, 3, 2, 1]]))
    assert "largest" not in str(judge(falling[:2], (0.0, 1.0)))


@pytest.mark.parametrize(("worst_from", "n_more"), [(1.7, 0), (2.4, 1), (9.0, 3)])
def test_stronger_warps_are_tried_while_they_are_better(
    worst_from: float, n_more: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(judge_nearest, "N_WARPED", 500)
    monkeypatch.setattr(judge_nearest, "LEAST_WARPED", 500)

    def take_strength(fold: Any, data: Any, nearest: Any, copies: Any) -> Any:
        return {some: some for some in nearest}

    def errors_at(folds: Any, nearest: Any) -> Errors:
        level = 0.5 - 0.1 * nearest[0] if nearest[0] < worst_from else 0.5
        return as_errors(np.full(sum(len(fold.truth) for fold in folds), level))

    monkeypatch.setattr(judge_nearest, "_add_copies", take_strength)
    monkeypatch.setattr(judge_nearest, "_errors_of", errors_at)
    judged = fitted().judge()
    n_tried = min(n_more + 1, len(STRONGER))
    assert tuple(judged.errors) == STRENGTHS + STRONGER[:n_tried]
    assert judged.strength == (*STRENGTHS, *STRONGER)[len(STRENGTHS) - 1 + n_more]
    assert ("larger ones may be better" in str(judged)) == (n_more == len(STRONGER))
    assert tuple(fitted().judge(strengths=[2, 1]).errors) == (0.0, 1.0, 2.0)


def judge_by(monkeypatch: Any, excess: Any) -> tuple[Judgement, dict[float, int]]:
    """The judgement if a strength has the error ``excess(strength, share of copies)``, and copies.

    Errors of all samples are equal up to a small noise that is the same for all strengths.
    """
    monkeypatch.setattr(judge_nearest, "N_WARPED", 500)
    monkeypatch.setattr(judge_nearest, "LEAST_WARPED", 500)
    n_copies: dict[float, int] = {}
    noise = np.random.default_rng(0).normal(0.0, 1e-3, (1000, 2))

    def count(fold: Any, data: Any, nearest: Any, copies: Any) -> Any:
        n_copies.update(dict.fromkeys(nearest, copies.stop))
        return {strength: (strength, copies.stop) for strength in nearest}

    def errors_at(folds: Any, nearest: Any) -> Errors:
        (strength, n), m = nearest[0], sum(len(fold.truth) for fold in folds)
        base = noise[:m, 0] - noise[:m, 0].mean()
        return as_errors(excess(strength, n) + base * (1.0 + strength))

    monkeypatch.setattr(judge_nearest, "_add_copies", count)
    monkeypatch.setattr(judge_nearest, "_errors_of", errors_at)
    return fitted().judge(), n_copies


def test_strengths_that_stop_early_keep_their_distance_from_the_best(monkeypatch: Any) -> None:
    excess = {0.0: 0.5, 0.5: 0.2, 0.7: 0.01, 1.0: 0.0, 1.4: 0.1}
    judged, n_copies = judge_by(monkeypatch, lambda s, n: excess[s] + (0.5 / n if s else 0.0))
    most = max(n_copies.values())
    # The neighbours of the best get all copies: the lowest point is interpolated from them.
    assert {s for s, n in n_copies.items() if n < most} == {0.5}
    for strength in (0.5, 0.7, 1.0, 1.4):
        assert judged.errors[strength] == pytest.approx(excess[strength] + 0.5 / most)
    assert 0.7 < judged.lowest[0] < 1.0 and judged.lowest[1] < 0.1


def test_strengths_that_stop_early_are_not_chosen(monkeypatch: Any) -> None:
    first: list[int] = []

    def excess(strength: float, n: int) -> float:
        first.append(n)
        late = n > min(first)  # 1.4 falls behind at first, and wins at last
        levels = {0.0: 0.5, 0.5: 0.3, 0.7: 0.21, 1.0: 0.2, 1.4: 0.1 if late else 0.2005}
        return levels.get(strength, 0.5)

    judged, n_copies = judge_by(monkeypatch, excess)
    assert n_copies[0.5] < n_copies[1.4] and judged.strength == 1.4


def rows_of(errors: dict[float, float], n: int = 400, noise: float = 1e-4) -> dict[float, Any]:
    random = np.random.default_rng(0)
    return {s: error + noise * random.normal(size=n) for s, error in errors.items()}


def test_the_lowest_point_lies_between_the_strengths_compared() -> None:
    for best in (0.6, 0.85, 1.0, 1.15):
        errors = {s: 0.1 + np.log(s / best) ** 2 if s else 0.2 for s in STRENGTHS}
        found, error = locate_lowest(rows_of(errors))
        assert found == pytest.approx(best, rel=1e-3) and error < 1e-3
    falling = {s: 0.5 - 0.1 * s for s in STRENGTHS}
    assert locate_lowest(rows_of(falling)) == (1.4, pytest.approx(0.5 * math.log(1.4)))
    assert locate_lowest({0.0: np.ones(5), 1.0: np.zeros(5)}) == (1.0, math.inf)
    for n in (1, 5):  # equal errors tell nothing
        assert locate_lowest(dict.fromkeys(STRENGTHS, np.full(n, 0.1)))[1] > 1e3


def test_the_error_of_the_lowest_point_is_its_spread() -> None:
    errors = {s: 0.1 + 0.1 * np.log(s / 0.9) ** 2 for s in STRENGTHS[1:]}
    random = np.random.default_rng(1)
    found = []
    for _ in range(300):
        shared = random.normal(size=200)
        rows = {s: e + 0.03 * (shared + random.normal(size=200)) for s, e in errors.items()}
        found.append(locate_lowest(rows))
    strengths, spreads = np.array(found).T
    assert np.std(np.log(strengths)) == pytest.approx(np.median(spreads), rel=0.25)


def test_networks_get_what_is_expected_unless_held_out_samples_know_better() -> None:
    expected = network_strength((0.6, math.inf), 1000, 10)
    assert expected == pytest.approx(NETWORK_FACTOR * LOWEST_FRACTION * expected_strength(1000, 10))
    sure, unsure = (network_strength((0.6, error), 1000, 10) for error in (1e-6, 0.3))
    assert NETWORK_FACTOR * 0.6 < sure < unsure < expected


def test_networks_get_stronger_warps_if_samples_are_few() -> None:
    few, many = (network_strength((0.8, 0.1), n, 10) for n in (100, 1000))
    assert 1.3 * many < few < 1.5 * many


def test_a_judgement_without_a_lowest_point_is_read() -> None:
    judged = Judgement(1.0, {0.0: 0.2, 1.0: 0.1}, NOTHING_HELD_OUT, lowest=(0.8, 0.1))
    record = json.loads(judged.to_text())
    again = Judgement.from_text(json.dumps(record))
    assert again is not None and again.lowest == (0.8, 0.1)
    del record["lowest"]  # as in model files of before
    former = Judgement.from_text(json.dumps(record))
    assert former is not None and former.errors == judged.errors
    assert former.lowest == (1.0, math.inf)


def test_strengths_to_compare_are_checked() -> None:
    for bad in ((), [0.0], [-1.0], ["a"], 1.0, "auto"):
        with pytest.raises(ValueError, match="`strengths` must"):
            fitted().judge(strengths=bad)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no strength of warps:RuntimeWarning")
@pytest.mark.parametrize("seed", range(10))
def test_the_verdict_tells_warps_that_help_from_warps_that_carry_the_class(seed: int) -> None:
    X, y = textures(25, seed)
    helped = dw.Augmenter(cells=(3, 3), seed=seed, progress=False).fit(X, y)
    assert helped.verdict_.helps, helped.verdict_
    assert helped.strength_ > 0.0
    X, y = heights(300, seed, n_bands=4)
    hurt = dw.Augmenter(sigma=0.1, seed=seed, progress=False).fit(X, y)
    assert not hurt.verdict_.helps, hurt.verdict_
    assert hurt.strength_ == 0.0
    assert str(hurt.verdict_).startswith("do not augment: ")
