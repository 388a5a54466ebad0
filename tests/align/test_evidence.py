"""What pairs say of their warps, against the likelihoods themselves and dense algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dreamwarp as dw
from dreamwarp.align.evidence import Evidence, EvidenceFinder, Frame
from dreamwarp.align.prior import mass_matrix
from tests.augment.cases import warped_shapes

SIGMA = 0.3


def make_finder(cells: tuple[int, ...] = (2, 2), **options: Any) -> tuple[EvidenceFinder, Any]:
    X, y = warped_shapes()
    edges = dw.neighbor_pairs(X, y, n_neighbors=3)[:20]
    prior = dw.SmoothPrior(dw.WarpSpace(cells))
    asked = {"similarity": "ssd", "sigma": SIGMA, "max_steps": 50, "progress": False} | options
    return EvidenceFinder.for_images(prior, X, edges, **asked), edges


def make_evidence(n: int, rank: int, seed: int, covariance: Any = None) -> tuple[Evidence, Any]:
    """Pairs whose likelihoods are quadratic, u drawn from a known covariance."""
    rng = np.random.default_rng(seed)
    true = np.eye(rank) if covariance is None else covariance
    u = rng.multivariate_normal(np.zeros(rank), true, n)
    seen = rng.normal(size=(n, rank // 2, rank))  # half of the directions, others in every pair
    H = np.swapaxes(seen, 1, 2) @ seen
    noise = np.einsum("nkr,nk->nr", seen, rng.normal(size=(n, rank // 2)))
    b = np.einsum("nij,nj->ni", H, u) + noise
    return Evidence(u, b, H.astype(np.float32), np.zeros(n)), u


def test_posteriors_are_those_of_dense_algebra() -> None:
    rng = np.random.default_rng(0)
    evidence, _ = make_evidence(70, 7, 0)
    root = rng.normal(size=(7, 7))
    covariance, weight = root @ root.T + np.eye(7), 0.7
    spreads = np.zeros((70, 7, 7), np.float32)
    found = evidence.condition(covariance, weight=weight, covariances_out=spreads)
    moment = np.zeros((7, 7))
    for k in range(70):
        H, b = weight * evidence.curvatures[k].astype(float), weight * evidence.linear[k]
        V = np.linalg.inv(np.linalg.inv(covariance) + H)
        np.testing.assert_allclose(found.means[k], V @ b, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(spreads[k], V, rtol=1e-3, atol=1e-6)
        expected = -0.5 * np.linalg.slogdet(np.eye(7) + covariance @ H)[1] + 0.5 * b @ V @ b
        assert found.log_marginals[k] == pytest.approx(expected, rel=1e-6)
        moment += V + np.outer(V @ b, V @ b)
    np.testing.assert_allclose(found.moment, moment, rtol=1e-6)


def test_marginals_are_integrals() -> None:
    evidence, _ = make_evidence(3, 2, 1)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-9, 9, 721)], indexing="ij"), -1)
    covariance = np.array([[1.5, 0.4], [0.4, 0.8]])
    prior = multivariate_normal(np.zeros(2), covariance).pdf(grid)
    found = evidence.condition(covariance).log_marginals
    for k in range(3):
        bent = np.einsum("...i,ij,...j->...", grid, evidence.curvatures[k].astype(float), grid)
        density = np.exp(grid @ evidence.linear[k] - 0.5 * bent) * prior
        assert found[k] == pytest.approx(np.log(density.sum() * 0.025**2), abs=1e-3)


def test_marginals_under_gaussians_of_their_own_are_integrals() -> None:
    evidence, _ = make_evidence(2, 2, 1)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-9, 9, 721)], indexing="ij"), -1)
    means = np.array([[0.5, -1.0], [0.0, 0.3]])
    covariances = np.array([[[1.5, 0.4], [0.4, 0.8]], [[0.5, 0.0], [0.0, 2.0]]])
    found = evidence.log_marginals(means, covariances)
    for k in range(2):
        prior = multivariate_normal(means[k], covariances[k]).pdf(grid)
        bent = np.einsum("...i,ij,...j->...", grid, evidence.curvatures[k].astype(float), grid)
        density = np.exp(grid @ evidence.linear[k] - 0.5 * bent) * prior
        assert found[k] == pytest.approx(np.log(density.sum() * 0.025**2), abs=1e-3)


def test_marginals_under_one_gaussian_are_those_of_condition() -> None:
    evidence, _ = make_evidence(40, 7, 0)
    covariance = np.diag(np.arange(1.0, 8.0))
    found = evidence.log_marginals(np.zeros((40, 7)), covariance)
    np.testing.assert_allclose(found, evidence.condition(covariance).log_marginals, rtol=1e-6)


def test_the_quadratic_touches_the_likelihood_at_the_mode() -> None:
    finder, edges = make_finder()
    evidence = finder.find(edges, np.eye(finder.frame.rank))
    images, space = finder.images, finder.frame.space
    u = evidence.theta @ finder.frame.inverse.T
    rng = np.random.default_rng(0)
    for distance, tolerance in ((0.0, 1e-4), (0.03, 0.02)):
        moved = u + distance * rng.normal(size=u.shape)
        theta = moved @ finder.frame.matrix.T + evidence.theta - u @ finder.frame.matrix.T
        seen = dw.Warp(space, theta).image(images[edges[:, 0]])
        errors = ((seen - images[edges[:, 1]]) ** 2).sum(axis=(1, 2, 3))
        bent = np.einsum("ni,nij,nj->n", moved, evidence.curvatures, moved)
        quadratic = evidence.constants + (evidence.linear * moved).sum(axis=1) - 0.5 * bent
        exact = -errors / (2 * SIGMA**2)
        assert np.abs(quadratic - exact).max() < tolerance * np.abs(exact).max()


def test_modes_are_those_of_align_pairs() -> None:
    finder, edges = make_finder()
    evidence = finder.find(edges, np.eye(finder.frame.rank))
    X = finder.images[:, 0]
    found = dw.align_pairs(
        finder.frame.space, X[edges[:, 0]], X[edges[:, 1]], sigma=SIGMA, progress=False
    )
    difference = np.abs(evidence.theta - found.theta).max()
    assert difference < 0.2 * np.abs(found.theta).max()  # searches end within a quarter of a nat
    warped = dw.Warp(finder.frame.space, evidence.theta).image(X[edges[:, 0]])
    losses = ((warped - X[edges[:, 1]]) ** 2).sum(axis=(1, 2))
    assert np.median(np.abs(losses / found.loss_after - 1.0)) < 0.05


@pytest.mark.parametrize("n_threads", [1, 2])
def test_evidence_does_not_depend_on_threads(n_threads: int) -> None:
    finder, edges = make_finder()
    unit = np.eye(finder.frame.rank)
    one = finder.find(edges, unit, n_threads=3)
    other = finder.find(edges, unit, n_threads=n_threads)
    np.testing.assert_array_equal(one.theta, other.theta)
    np.testing.assert_array_equal(one.linear, other.linear)
    first, second = one.condition(unit, n_threads=3), other.condition(unit, n_threads=n_threads)
    np.testing.assert_array_equal(first.moment, second.moment)


@pytest.mark.parametrize("similarity", ["ncc", "mi"])
def test_other_similarities_have_evidence_too(similarity: str) -> None:
    finder, edges = make_finder(similarity=similarity, sigma="auto")
    evidence = finder.find(edges, np.eye(finder.frame.rank))
    assert np.isfinite(evidence.linear).all() and evidence.curvatures.any()


def test_frames_hold_the_prior() -> None:
    for cells in ((3,), (2, 2), (8, 8)):
        prior = dw.SmoothPrior(dw.WarpSpace(cells), displacement=0.07)
        frame = Frame.of(prior)
        unit = np.eye(frame.rank)
        np.testing.assert_allclose(
            frame.gaussian(unit).covariance, prior.covariance, atol=1e-9 * prior.covariance.max()
        )
        np.testing.assert_allclose(frame.inverse @ frame.matrix, unit, atol=1e-8)
        assert frame.displacement(unit) == pytest.approx(0.07, rel=0.01)
        assert (np.diff(frame.squares) <= 1e-15).all()
    assert frame.rank == 128 < frame.space.dim


def test_the_mass_matrix_is_the_mean_square_displacement() -> None:
    space = dw.WarpSpace((3, 2), boundary="free")
    theta = np.random.default_rng(0).normal(size=space.dim)
    axis = (np.arange(400) + 0.5) / 400
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    velocity = space.velocity(theta, points)
    mean = float((velocity**2).sum(axis=-1).mean())
    assert theta @ mass_matrix(space) @ theta == pytest.approx(mean, rel=1e-3)


def test_starts_too_stiff_to_follow_are_replaced() -> None:
    finder, edges = make_finder()
    covariance = np.eye(finder.frame.rank)
    start = np.zeros((len(edges), finder.frame.space.dim))
    start[3] = 1e4
    found = finder.find(edges, covariance, start=start).condition(covariance)
    at_identity = finder.find(edges, covariance, start=np.zeros_like(start)).condition(covariance)
    np.testing.assert_allclose(found.log_marginals, at_identity.log_marginals, rtol=1e-6)
