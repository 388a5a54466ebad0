"""Elastic distances and means under warps."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp import SmoothPrior, Warp, WarpSpace, align_pairs, frechet_mean, warp_distance
from dreamwarp.align.distance import estimate_sigma

SPACE = WarpSpace((6,))
TIME = np.linspace(0.0, 1.0, 60)


def bumps(n: int, seed: int = 0, spread: float = 0.05) -> np.ndarray:
    """One bump each, at places that vary."""
    rng = np.random.default_rng(seed)
    centers = 0.5 + spread * rng.normal(size=(n, 1))
    return np.exp(-(((TIME - centers) / 0.08) ** 2))


def test_the_matrix_is_what_single_pairs_give() -> None:
    X = bumps(5)
    matrix = warp_distance(X[:3], X, space=SPACE, sigma=0.1, progress=False)
    assert matrix.shape == (3, 5) and np.allclose(np.diag(matrix), 0.0)
    one = warp_distance(X[0], X[4], space=SPACE, sigma=0.1, progress=False)
    assert one == pytest.approx(matrix[0, 4], rel=1e-6)
    found = align_pairs(SPACE, X[:1], X[4:], sigma=0.1, max_steps=12, progress=False)
    theta, precision = found.theta[0], SmoothPrior(SPACE).precision
    expected = np.sqrt(found.loss_after[0] / 0.01 + theta @ precision @ theta)
    assert one == pytest.approx(expected, rel=1e-6)
    plain = np.linalg.norm(X[:3, None] - X, axis=-1) / 0.1
    assert (matrix <= plain + 1e-9).all() and matrix[0, 4] < 0.8 * plain[0, 4]


def test_only_candidates_are_aligned() -> None:
    X = bumps(8)
    full = warp_distance(X[:2], X, space=SPACE, sigma=0.1, progress=False)
    some = warp_distance(X[:2], X, space=SPACE, sigma=0.1, n_candidates=3, progress=False)
    plain = np.linalg.norm(X[:2, None] - X, axis=-1)
    order = np.argsort(plain, axis=1)
    for row in range(2):
        near, far = order[row, :3], order[row, 3:]
        np.testing.assert_allclose(some[row, near], full[row, near])
        np.testing.assert_allclose(some[row, far], plain[row, far] / 0.1)


def test_sigma_and_channels() -> None:
    X = np.stack([bumps(6), bumps(6)], axis=1)
    sigma = estimate_sigma(SPACE, X)
    assert 0.0 < sigma < 1.0
    assert warp_distance(X[:2], X, space=SPACE, progress=False).shape == (2, 6)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros(60), np.zeros((2, 60)), "both with the same number of axes"),
        (np.zeros((2, 60)), np.zeros((2, 50)), "samples of one shape"),
        (np.zeros((2, 2, 2, 60)), np.zeros((2, 2, 2, 60)), r"\(n, channels, \*spatial\)"),
    ],
)
def test_wrong_input(a: np.ndarray, b: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        warp_distance(a, b, space=SPACE)


def test_the_mean_is_sharper_than_the_average() -> None:
    X = bumps(20, spread=0.06)
    found = frechet_mean(SPACE, X, progress=False)
    assert found.variance_after < 0.3 * found.variance_before
    assert found.mean.max() > X.mean(axis=0).max() + 0.1
    np.testing.assert_allclose(found.theta.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.aligned, Warp(SPACE, found.theta).image(X))
    centers = TIME[X.argmax(axis=1)]
    assert abs(TIME[found.mean.argmax()] - centers.mean()) < 0.03


def test_equal_samples_are_their_own_mean() -> None:
    X = np.repeat(bumps(1), 4, axis=0)
    found = frechet_mean(SPACE, X, progress=False)
    np.testing.assert_allclose(found.mean, X[0])
    with pytest.raises(ValueError, match="`X` must have shape"):
        frechet_mean(SPACE, X[0])
