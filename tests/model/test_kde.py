"""The kernel density: as a slow loop says, symmetric, and the class Gaussian at full bandwidth."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats

from dreamwarp.model import WarpModel
from dreamwarp.model.distribution import Batch
from dreamwarp.model.kde import KernelDensity
from tests.model.cases import has_covariance, make_space, random_covariance, theta_of


def make_density(bandwidth=0.5, n_pairs=30, dim=6, weights=None):
    covariance = random_covariance(dim)
    theta = theta_of(covariance, n_pairs, seed=1)
    weights = np.ones(n_pairs) if weights is None else weights
    return KernelDensity.fit(theta, weights, covariance, bandwidth), theta, covariance


def plain_log_prob(theta, centers, probabilities, covariance):
    """Every kernel by itself, around every warp and its inverse."""
    terms = [
        np.log(p / 2.0) + scipy.stats.multivariate_normal(s * c, covariance).logpdf(theta)
        for c, p in zip(centers, probabilities, strict=True)
        for s in (-1.0, 1.0)
    ]
    return scipy.special.logsumexp(terms, axis=0)


def test_density_is_the_sum_of_its_kernels():
    weights = np.random.default_rng(0).uniform(0.1, 1.0, 30)
    density, theta, covariance = make_density(0.4, weights=weights)
    centers, p = np.sqrt(1.0 - 0.16) * theta, weights / weights.sum()
    at = theta_of(covariance, 12, seed=5)
    expected = plain_log_prob(at, centers, p, 0.16 * covariance)
    np.testing.assert_allclose(density.log_prob(at), expected, rtol=1e-10)
    np.testing.assert_allclose(density.log_prob(-at), density.log_prob(at), rtol=1e-12)


def test_large_tables_are_done_in_parts(monkeypatch):
    density, _, covariance = make_density()
    at = theta_of(covariance, 50, seed=5)
    expected = density.log_prob(at)
    monkeypatch.setattr("dreamwarp.model.kde.TABLE_BYTES", 8 * 30 * 7)
    np.testing.assert_allclose(density.log_prob(at), expected, rtol=1e-13)


def test_full_bandwidth_is_the_class_gaussian():
    density, theta, covariance = make_density(1.0)
    expected = scipy.stats.multivariate_normal(np.zeros(6), covariance).logpdf(theta)
    np.testing.assert_allclose(density.log_prob(theta), expected, rtol=1e-10)
    np.testing.assert_allclose(density.covariance, covariance, atol=1e-14)


def test_the_covariance_does_not_depend_on_the_bandwidth():
    theta = theta_of(random_covariance(6), 40)
    moment = theta.T @ theta / 40
    for bandwidth in (0.1, 0.5, 0.9):
        density = KernelDensity.fit(theta, np.ones(40), moment, bandwidth)
        np.testing.assert_allclose(density.covariance, moment, atol=1e-14)


def test_draws_follow_the_density():
    weights = np.random.default_rng(0).uniform(0.0, 1.0, 30) ** 3
    density, theta, covariance = make_density(0.2, weights=weights)
    n = 60_000
    out, rows = np.empty((n, 6)), np.arange(n)
    density.draw(3, Batch(rows, rows, np.full(n, -1), out))
    # Not normal, so the bound is by the fourth moments of what was drawn.
    found = out[:, :, None] * out[:, None, :]
    deviations = found.std(axis=0) / np.sqrt(n)
    assert (np.abs(found.mean(axis=0) - density.covariance) < 5.0 * deviations).all()
    # Which kernel a draw came from shows, for they are narrow: the right ones, either sign alike.
    centers = np.sqrt(1.0 - 0.04) * theta
    white = np.linalg.inv(np.linalg.cholesky(covariance))
    both = np.concatenate([centers, -centers]) @ white.T
    nearest = ((out[:5000] @ white.T)[:, None] - both[None]).__pow__(2).sum(axis=2).argmin(axis=1)
    counts = np.bincount(nearest % 30, minlength=30)
    kept = weights / weights.sum() > 0.02
    expected = 5000 * weights / weights.sum()
    assert (np.abs(counts - expected) < 6.0 * np.sqrt(expected) + 30.0)[kept].all()
    assert abs((nearest < 30).mean() - 0.5) < 5.0 * 0.5 / np.sqrt(5000)


def test_full_bandwidth_draws_have_the_covariance():
    theta = {"a": theta_of(random_covariance(50), 100)}
    model = WarpModel.fit(make_space(), theta, kind="kde", bandwidth=1.0, shrinkage=0.2)
    assert has_covariance(model.sample(20_000, "a"), model.covariance("a"))


@pytest.mark.parametrize("clusters", [True, False])
def test_the_bandwidth_is_chosen_by_what_the_warps_are_like(clusters):
    space = make_space((6,))
    rng = np.random.default_rng(0)
    covariance = random_covariance(space.dim, decay=0.2)
    theta = theta_of(covariance, 400)
    if clusters:
        theta = theta_of(covariance, 3)[rng.integers(0, 3, 400)] + 0.01 * rng.normal(
            size=(400, space.dim)
        )
    model = WarpModel.fit(space, {"a": theta}, kind="kde", shrinkage=0.01)
    assert model.settings["bandwidth"] < 0.5 if clusters else model.settings["bandwidth"] > 0.7
