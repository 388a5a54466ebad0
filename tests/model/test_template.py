"""Warps that depend on their template: against the plain covariance, and by what they are for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from dreamwarp.model import WarpModel
from dreamwarp.model.gaussian import Batch, Gaussian, triangular_factor
from dreamwarp.model.template import TemplateMixture
from tests.model.cases import (
    graph_classes,
    has_covariance,
    make_space,
    neighbor_graph,
    random_covariance,
)


def make_mixture(*, drift=0.0, class_pairs=3.0, weighted=False, dim=6):
    theta, edges = neighbor_graph(n_samples=30, dim=dim)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 1.0, len(theta)) if weighted else np.ones(len(theta))
    factor = triangular_factor(random_covariance(dim))
    return TemplateMixture(factor, theta, edges, weights, class_pairs, drift)


def test_samples_without_a_template_need_no_table():
    mixture = make_mixture()
    out = np.empty((5, 6))
    numbers = np.arange(5)
    mixture.draw(3, Batch(numbers, numbers, np.full(5, -1), out, 1))
    assert "table" not in vars(mixture)
    expected = np.empty((5, 6))
    Gaussian(mixture.factor).draw(3, Batch(numbers, numbers, np.full(5, -1), expected, 1))
    np.testing.assert_array_equal(out, expected)


def plain_moments(mixture, template):
    """Mean and covariance for a template, pair by pair."""
    own, weights = [], []
    for theta, (source, target), weight in zip(
        mixture.theta, mixture.edges, mixture.weights, strict=True
    ):
        if template in (source, target):
            own.append(theta if template == source else -theta)
            weights.append(weight)
    p = np.array(weights) / sum(weights)
    n_neighbors = 1.0 / (p**2).sum()
    share = n_neighbors / (n_neighbors + mixture.class_pairs)
    moment = sum(q * np.outer(t, t) for q, t in zip(p, own, strict=True))
    mean = mixture.drift * share * (p @ np.array(own))
    return mean, share * moment + (1.0 - share) * mixture.covariance


def draw(mixture, templates, seed=0):
    rows = np.arange(len(templates))
    out = np.empty((len(templates), mixture.theta.shape[1]))
    mixture.draw(seed, Batch(rows, rows, np.asarray(templates), out))
    return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("drift", [0.0, 0.7])
def test_density_is_that_of_the_plain_moments(drift, weighted):
    mixture = make_mixture(drift=drift, weighted=weighted)
    templates = np.tile(np.arange(30), 4)
    theta = draw(mixture, templates)
    expected = [
        scipy.stats.multivariate_normal(*plain_moments(mixture, x)).logpdf(t)
        for x, t in zip(templates, theta, strict=True)
    ]
    np.testing.assert_allclose(mixture.log_prob(theta, templates), expected, rtol=1e-9)


def test_moments_are_the_plain_ones():
    mixture = make_mixture(drift=0.7, weighted=True)
    means, covariances = mixture.moments(np.array([3, 0, 29]))
    for template, mean, covariance in zip((3, 0, 29), means, covariances, strict=True):
        expected = plain_moments(mixture, template)
        np.testing.assert_allclose(mean, expected[0], rtol=1e-12)
        np.testing.assert_allclose(covariance, expected[1], rtol=1e-12)


def test_density_in_small_batches_is_the_same(monkeypatch):
    mixture = make_mixture(drift=0.3)
    templates = np.tile(np.arange(30), 4)
    theta = draw(mixture, templates)
    expected = mixture.log_prob(theta, templates)
    monkeypatch.setattr("dreamwarp.model.template.BATCH_BYTES", 1)
    np.testing.assert_allclose(mixture.log_prob(theta, templates), expected, rtol=1e-12)


@pytest.mark.parametrize("template", [0, 7])
def test_draws_have_the_plain_moments(template):
    mixture = make_mixture(drift=0.7, weighted=True)
    theta = draw(mixture, np.full(40_000, template))
    mean, covariance = plain_moments(mixture, template)
    assert has_covariance(theta - mean, covariance)
    assert not has_covariance(theta, covariance)
    assert not has_covariance(theta - mean, mixture.covariance)


def test_a_template_of_very_many_neighbors():
    """More than the lanes hold at a time: a star of 300 pairs."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(300, 6)) * np.arange(1, 7)
    edges = np.stack([np.zeros(300, int), np.arange(1, 301)], axis=1)
    factor = triangular_factor(random_covariance(6))
    mixture = TemplateMixture(factor, theta, edges, np.ones(300), 0.01, 0.0)
    drawn = draw(mixture, np.zeros(20_000, int))
    assert has_covariance(drawn, plain_moments(mixture, 0)[1])


def test_samples_without_warps_of_their_own_get_those_of_the_class():
    mixture = make_mixture(drift=0.5)
    theta = draw(mixture, [-1, 99, 3])
    alone = np.empty((3, 6))
    of_class = Gaussian(mixture.factor)
    of_class.draw(0, Batch(np.arange(3), np.arange(3), np.full(3, -1), alone))
    np.testing.assert_array_equal(theta[:2], alone[:2])
    assert (theta[2] != alone[2]).all()
    np.testing.assert_allclose(
        mixture.log_prob(theta, np.array([-1, 99, 3]))[:2], of_class.log_prob(theta)[:2]
    )
    np.testing.assert_allclose(mixture.log_prob(theta), of_class.log_prob(theta))


def test_pairs_of_weight_zero_are_no_neighbors():
    theta, edges = graph_classes(labels=("a",))
    weights = {"a": np.ones(len(theta["a"]))}
    weights["a"][(edges["a"] == 4).any(axis=1)] = 0.0
    model = WarpModel.fit(
        make_space(), theta, kind="template", edges=edges, weights=weights,
        shrinkage=0.1, class_pairs=2.0, drift=0.5,
    )  # fmt: skip
    drawn = model.draw("a", [7, 7], templates=[4, -1])
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_pairs_are_likelier_given_their_template():
    """Where neighbours of a sample differ from it in a way of its own."""
    rng = np.random.default_rng(0)
    n, dim = 60, make_space().dim
    ways = rng.normal(size=(n, dim)) * 0.2
    edges = np.stack([np.repeat(np.arange(n), 5), n + np.arange(5 * n)], axis=1)
    theta = rng.normal(size=(5 * n, 1)) * ways[edges[:, 0]] + 0.02 * rng.normal(size=(5 * n, dim))
    model = WarpModel.fit(make_space(), {"a": theta}, kind="template", edges={"a": edges})
    assert model.settings["class_pairs"] <= 25.0 and model.settings["drift"] <= 0.5
    rows = np.arange(200)
    fresh = rng.normal(size=(200, 1)) * ways[rows % n] + 0.02 * rng.normal(size=(200, dim))
    given = model.log_prob(fresh, "a", templates=rows % n).mean()
    assert given > model.log_prob(fresh, "a").mean() + 1.0
    assert given > model.log_prob(fresh, "a", templates=(rows + 1) % n).mean() + 1.0
