"""Hyper-parameters chosen by held-out likelihood: folds without leaks, right choices."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp.model import WarpModel, alignment_weights, selection
from dreamwarp.model.pairs import Pairs
from tests.model.cases import (
    graph_classes,
    independent_classes,
    make_space,
    random_covariance,
    theta_of,
)


def as_pairs(theta, edges=None):
    return {
        label: Pairs(t, np.ones(len(t)), None if edges is None else edges[label])
        for label, t in theta.items()
    }


# -- folds


def test_folds_by_sample_share_no_sample():
    theta, edges = graph_classes()
    folds = selection.make_folds(as_pairs(theta, edges), by_sample=True, n_repeats=5)
    assert len(folds) == 25
    n_tested = 0
    for fold in folds:
        for label in theta:
            train, test = fold.train[label], fold.test[label]
            assert not np.intersect1d(train.edges, test.edges).size
            n_tested += len(test)
    n_pairs = sum(map(len, theta.values()))
    assert n_tested == pytest.approx(n_pairs, rel=0.25)


def test_folds_by_pair_test_each_pair_once():
    theta = independent_classes(n_pairs=33)
    folds = selection.make_folds(as_pairs(theta), by_sample=False, n_folds=4)
    for label, pairs in theta.items():
        tested = np.concatenate([fold.test[label].theta for fold in folds])
        np.testing.assert_array_equal(np.sort(tested, axis=0), np.sort(pairs, axis=0))
        for fold in folds:
            together = np.concatenate([fold.train[label].theta, fold.test[label].theta])
            np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(pairs, axis=0))


def test_many_classes_and_pairs_are_thinned_out(monkeypatch):
    monkeypatch.setattr(selection, "MAX_PAIRS", 50)
    theta, edges = graph_classes(labels=range(30))
    for given in (edges, None):
        few = selection.thin_out(as_pairs(theta, given), 50)
        assert len(few) == selection.MAX_CLASSES
        assert all(40 <= len(pairs) <= 60 for pairs in few.values())
    assert len(selection.thin_out(as_pairs(theta, edges), 1000)) == selection.MIN_CLASSES
    kept = selection.thin_out(as_pairs(theta, edges), 50)
    for label, pairs in kept.items():  # whole neighbourhoods: all pairs among the samples kept
        inside = np.isin(edges[label], pairs.edges).all(axis=1)
        assert inside.sum() == len(pairs)


# -- choices


def test_classes_that_are_alike_are_pooled_and_others_are_not():
    covariance = random_covariance(50)
    alike = {i: theta_of(covariance, 60, seed=i) for i in range(6)}
    pooled = WarpModel.fit(make_space(), alike)
    assert all(fit.pooling > 0.7 for fit in pooled.fits.values())
    apart = WarpModel.fit(make_space(), independent_classes(n_pairs=1500))
    assert all(fit.pooling < 0.1 for fit in apart.fits.values())


def test_small_classes_take_more_of_the_pool():
    theta = independent_classes(n_pairs=400)
    theta["small"] = theta_of(random_covariance(50, seed=0), 20)
    model = WarpModel.fit(make_space(), theta)
    assert model.fits["small"].pooling > model.fits["a"].pooling


def test_chosen_hyperparameters_beat_the_plain_estimate_on_fresh_pairs():
    covariances = {i: random_covariance(50, seed=i // 3) for i in range(6)}
    theta = {i: theta_of(c, 70, seed=i) for i, c in covariances.items()}
    chosen = WarpModel.fit(make_space(), theta)
    plain = WarpModel.fit(make_space(), theta, shrinkage=0.0, pooling=0.0)
    oracle = WarpModel.fit(
        make_space(), {i: theta_of(c, 5000, seed=9) for i, c in covariances.items()},
        shrinkage=0.0, pooling=0.0,
    )  # fmt: skip
    fresh = {i: theta_of(c, 300, seed=50 + i) for i, c in covariances.items()}
    scores = [
        np.mean([model.log_prob(fresh[i], i).mean() for i in theta])
        for model in (plain, chosen, oracle)
    ]
    assert scores[0] + 5.0 < scores[1] < scores[2]


def test_one_class_alone_is_shrunk_by_what_it_needs():
    few = WarpModel.fit(make_space(), {"a": theta_of(random_covariance(50), 60)})
    many = WarpModel.fit(make_space(), {"a": theta_of(random_covariance(50), 3000)})
    assert few.fits["a"].shrinkage > many.fits["a"].shrinkage
    assert few.fits["a"].pooling == many.fits["a"].pooling == 0.0


def test_too_few_pairs_to_hold_out_are_treated_with_caution():
    theta = {"a": theta_of(random_covariance(50), 5), "b": theta_of(random_covariance(50), 2)}
    edges = {"a": np.array([[0, i] for i in range(1, 6)]), "b": np.array([[10, 11], [10, 12]])}
    model = WarpModel.fit(make_space(), theta, edges=edges, min_pairs=1)
    assert model.settings["shrinkage"] == "oas" and model.settings["pool_pairs"] == 50.0
    assert np.isfinite(model.log_prob(theta["b"], "b")).all()
    asked = WarpModel.fit(make_space(), theta, edges=edges, min_pairs=1, shrinkage=0.5)
    assert asked.settings["shrinkage"] == 0.5 and asked.settings["pool_pairs"] == 50.0
    one = WarpModel.fit(make_space(), {"a": theta["a"][:1]}, min_pairs=1)
    assert np.isfinite(one.log_prob(theta["a"], "a")).all()


def test_a_class_that_never_moves_does_no_harm():
    theta = independent_classes(n_pairs=100)
    theta["still"] = np.zeros((100, 50))
    model = WarpModel.fit(make_space(), theta)
    assert np.isfinite(model.covariance("still")).all()
    assert np.trace(model.covariance("still")) < 0.6 * np.trace(model.covariance("a"))


def test_many_small_classes_that_are_alike_share_everything():
    covariance = random_covariance(50)
    alike = {i: theta_of(covariance, 6, seed=i) for i in range(20)}
    model = WarpModel.fit(make_space(), alike)
    assert min(fit.pooling for fit in model.fits.values()) > 0.9


def test_full_pooling_is_the_pool():
    model = WarpModel.fit(make_space(), independent_classes(n_pairs=50), pooling=1.0)
    assert model.settings["pooling"] == 1.0
    np.testing.assert_array_equal(model.covariance("a"), model.covariance(None))


def test_fits_are_repeatable():
    space = make_space((2, 2))
    theta, edges = graph_classes(n_samples=20, dim=space.dim)
    for kind in ("gaussian", "template"):
        models = [WarpModel.fit(space, theta, kind=kind, edges=edges) for _ in range(2)]
        assert models[0].fingerprint == models[1].fingerprint


# -- weights of alignments


def test_poor_alignments_count_less():
    before = np.array([10.0, 10.0, 10.0, 10.0, 0.0])
    after = np.array([1.0, 2.0, 4.0, 10.0, 0.0])
    weights = alignment_weights(before, after)
    assert (np.diff(weights[:4]) < 0.0).all()
    assert weights[1] == pytest.approx(0.8) and weights[4] == 1.0
    assert weights[3] < 0.15
    np.testing.assert_array_equal(alignment_weights([1.0, 2.0], [0.0, 0.0]), [1.0, 1.0])
    assert alignment_weights([], []).shape == (0,)


def test_bad_losses_are_refused():
    with pytest.raises(ValueError, match=r"must both have shape \(n,\), got \(2,\) and \(1,\)"):
        alignment_weights([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="`loss_before` and `loss_after` must not be negative"):
        alignment_weights([1.0], [-1.0])
    with pytest.raises(ValueError, match="`loss_after` must be finite"):
        alignment_weights([1.0], [np.nan])
