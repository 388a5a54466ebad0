"""Made-up classes of samples, and the warps between neighbours, as alignment would find them."""

from __future__ import annotations

from functools import cache

import numpy as np

from dreamwarp import WarpSpace


@cache
def make_space(cells=(4, 4), boundary="zero"):
    return WarpSpace(cells, boundary)


def random_covariance(dim, seed=0, decay=0.1):
    """A covariance whose variances fall off, in directions of its own."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    deviations = 0.3 * np.exp(-decay * np.arange(dim))
    return (directions * deviations**2) @ directions.T


def theta_of(covariance, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.multivariate_normal(np.zeros(len(covariance)), covariance, n, method="cholesky")


def independent_classes(labels=("a", "b", "c"), n_pairs=300, dim=50):
    """θ by class: each class has a covariance of its own."""
    return {
        label: theta_of(random_covariance(dim, seed=i), n_pairs, seed=100 + i)
        for i, label in enumerate(labels)
    }


def neighbor_graph(n_samples=40, n_neighbors=4, dim=50, seed=0, noise=0.01):
    """θ (n_pairs, d) and edges (n_pairs, 2): differences of samples that lie at places in θ."""
    rng = np.random.default_rng(seed)
    places = theta_of(random_covariance(dim, seed=seed), n_samples, seed=seed)
    distances = ((places[:, None] - places) ** 2).sum(axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1 : n_neighbors + 1]
    edges = np.stack([np.repeat(np.arange(n_samples), n_neighbors), nearest.ravel()], axis=1)
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    theta = places[edges[:, 1]] - places[edges[:, 0]]
    return theta + noise * rng.normal(size=theta.shape), edges


def graph_classes(labels=(0, 1), **options):
    graphs = {label: neighbor_graph(seed=i, **options) for i, label in enumerate(labels)}
    theta = {label: theta for label, (theta, _) in graphs.items()}
    return theta, {label: edges for label, (_, edges) in graphs.items()}


def has_covariance(theta, covariance):
    """Whether θ (n, d) may be drawn from N(0, covariance): every entry within five deviations."""
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, theta.T)
    found = white @ white.T / len(theta)
    deviations = np.sqrt((1.0 + np.eye(len(covariance))) / len(theta))
    mean = np.abs(white.mean(axis=1)).max() < 5.0 / np.sqrt(len(theta))
    return bool(mean and (np.abs(found - np.eye(len(covariance))) < 5.0 * deviations).all())
