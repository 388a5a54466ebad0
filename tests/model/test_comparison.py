"""The table that compares kinds of model."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from dreamwarp.model import held_out_log_likelihood
from tests.model.cases import (
    graph_classes,
    independent_classes,
    make_space,
    random_covariance,
    theta_of,
)


def test_it_is_the_likelihood_of_pairs_not_fitted_to():
    covariance = random_covariance(50)
    theta = {"a": theta_of(covariance, 2000)}
    table = held_out_log_likelihood(make_space(), theta, kinds=["gaussian"], shrinkage=0.0)
    truth = scipy.stats.multivariate_normal(np.zeros(50), covariance).logpdf(theta["a"]).mean()
    # Half a nat per parameter and per pair of d: what an estimate from n pairs loses.
    loss = 50 * 51 / (4.0 * 1600.0)
    assert table.mean["gaussian"] == pytest.approx(truth - loss, abs=0.5 * loss + 0.2)
    assert table.n_pairs == {"a": 2000}


def test_kinds_side_by_side():
    theta, edges = graph_classes(labels=("a", "b"), n_samples=40)
    kinds = ("gaussian", "kde", "template")
    table = held_out_log_likelihood(make_space(), theta, kinds=kinds, edges=edges, n_folds=3)
    assert list(table.mean) == list(table.by_class) == list(table.difference) == list(kinds)
    assert table.difference["gaussian"] == (0.0, 0.0)
    assert table.n_pairs == {label: len(t) for label, t in theta.items()}
    for kind in kinds:
        total = sum(table.by_class[kind][label] * len(t) for label, t in theta.items())
        assert table.mean[kind] == pytest.approx(total / sum(map(len, theta.values())))
    # Neighbours of a sample tell about each other.
    gain, error = table.difference["template"]
    assert gain > 0.0 and error > 0.0
    lines = str(table).splitlines()
    assert lines[0].split() == ["class", "pairs", *kinds]
    assert [line.split()[0] for line in lines[1:]] == ["a", "b", "all", "gain"]
    assert lines[-1].split()[1:4] == ["+0.00", "±", "0.00"]
    assert f"{table.mean['kde']:.2f}" in lines[3]


def test_samples_are_held_out_where_they_are_known():
    theta, edges = graph_classes(labels=("a",), n_samples=60)
    by_pair = held_out_log_likelihood(make_space(), theta, kinds=["gaussian"], shrinkage="oas")
    by_sample = held_out_log_likelihood(
        make_space(), theta, kinds=["gaussian"], shrinkage="oas", edges=edges
    )
    assert by_sample.n_pairs["a"] < by_pair.n_pairs["a"]
    assert by_sample.mean["gaussian"] < by_pair.mean["gaussian"]


def test_classes_of_which_nothing_can_be_held_out():
    theta = independent_classes(n_pairs=40)
    theta["none"] = np.zeros((0, 50))
    table = held_out_log_likelihood(make_space(), theta, kinds=["gaussian"], n_folds=2)
    assert np.isnan(table.by_class["gaussian"]["none"]) and table.n_pairs["none"] == 0
    assert np.isfinite(table.mean["gaussian"])
    assert "nan" in str(table)


def test_models_of_a_few_pairs():
    theta = np.random.default_rng(0).normal(scale=0.1, size=(3, 50))
    table = held_out_log_likelihood(make_space(), {0: theta, 1: 0.5 * theta[:2]})
    assert all(np.isfinite(value) for value in table.mean.values())


def test_a_table_of_nothing_says_so():
    theta, edges = np.full((1, 50), 0.1), np.array([[0, 1]])
    pairs = {"a": np.repeat(theta, 3, axis=0)}
    joined = {"a": edges + 2 * np.arange(3)[:, None]}
    with pytest.warns(RuntimeWarning, match="no pair could be held out.*fewer `n_folds`"):
        table = held_out_log_likelihood(make_space(), pairs, edges=joined, kinds=["gaussian"])
    assert np.isnan(table.mean["gaussian"])


def test_bad_options_are_refused():
    theta = independent_classes(n_pairs=20)
    with pytest.raises(ValueError, match=r"`kind` must be one of 'gaussian', .* got 'none'"):
        held_out_log_likelihood(make_space(), theta, kinds=["none"])
    for kinds in ("kde", ()):
        with pytest.raises(ValueError, match=r"`kinds` must be a list of at least one .* got"):
            held_out_log_likelihood(make_space(), theta, kinds=kinds)
    with pytest.raises(ValueError, match='kind "template" needs `edges`'):
        held_out_log_likelihood(make_space(), theta, kinds=["template"])
    for n_folds in (1, 2.0, True):
        with pytest.raises(ValueError, match="`n_folds` must be a whole number, at least 2, got"):
            held_out_log_likelihood(make_space(), theta, n_folds=n_folds)
    with pytest.raises(ValueError, match="at least 1 pairs of weight above 0"):
        held_out_log_likelihood(make_space(), {"a": np.zeros((0, 50))})
