"""Priors: their covariance, scale and symmetries, and that density, gradient and draws agree."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.stats

from dreamwarp import WarpSpace
from dreamwarp.align import GMRFPrior, SmoothPrior
from dreamwarp.align.prior import NUGGET
from tests import oracle
from tests.space.cases import (
    BOUNDARIES,
    ODD,
    PLAIN,
    SLOW,
    central_differences,
    make_space,
    over_spaces,
    pixel_grid,
    random_points,
    theta_of,
)

PRIORS = (SmoothPrior, GMRFPrior)

# Spaces with more than constant fields, which GMRFPrior needs.
NOT_CONSTANT = [case for case in PLAIN + ODD if case != ((1,), "periodic")]

# Every number of axes with every boundary, with cells few enough for plain loops.
FEW_CELLS = [(cells, boundary) for cells in ((5,), (3, 2), (2, 1, 1)) for boundary in BOUNDARIES]

over_plain = over_spaces(PLAIN, slow=SLOW)
over_many = over_spaces(NOT_CONSTANT, slow=SLOW)
over_priors = pytest.mark.parametrize("kind", PRIORS)


def corners_of(space):
    return space.tessellation.vertices[space.tessellation.simplices]


def velocity_covariance(prior, points, others):
    """Covariance of velocities at two sets of points: (m, ndim, m, ndim)."""
    here, there = (prior.space.velocity(np.eye(prior.space.dim), p) for p in (points, others))
    return np.einsum("dmk,de,enl->mknl", here, prior.covariance, there, optimize=True)


def squared_velocity(prior, points):
    """Mean over draws of |v|² at points: (m,)."""
    fields = prior.space.velocity(np.eye(prior.space.dim), points)
    return np.einsum("dmk,de,emk->m", fields, prior.covariance, fields, optimize=True)


def n_constants(space):
    """How many independent constant velocities a space allows."""
    return space.ndim if space.boundary in ("free", "periodic") else 0


# -- the covariance


@pytest.mark.parametrize("length", [0.1, 0.6])
@over_spaces(FEW_CELLS)
def test_smooth_covariance_is_that_of_the_reference(space, length):
    expected = oracle.smooth_covariance(
        corners_of(space), space.basis, length, NUGGET, periodic=space.boundary == "periodic"
    )
    found = SmoothPrior(space, length=length).covariance
    expected *= np.trace(found) / np.trace(expected)
    np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@over_priors
@over_many
def test_precision_inverts_covariance(space, kind):
    prior = kind(space)
    identity = prior.precision @ prior.covariance
    if prior.rank == space.dim:
        np.testing.assert_allclose(identity, np.eye(space.dim), atol=1e-8)
    scale = np.abs(prior.covariance).max()
    np.testing.assert_allclose(prior.covariance @ identity, prior.covariance, atol=1e-9 * scale)
    scale = np.abs(prior.precision).max()
    np.testing.assert_allclose(identity @ prior.precision, prior.precision, atol=1e-7 * scale)


@over_priors
def test_matrices_are_symmetric_and_can_not_be_changed(kind):
    prior = kind(make_space((4, 4), "free"))
    for matrix in (prior.covariance, prior.precision):
        np.testing.assert_array_equal(matrix, matrix.T)
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 1.0


@pytest.mark.parametrize("length", [0.001, 0.05, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("cells", [(6,), (5, 4)])
def test_smooth_covariance_is_positive_definite_whatever_the_length(cells, boundary, length):
    prior = SmoothPrior(make_space(cells, boundary), length=length)
    eigenvalues = np.linalg.eigvalsh(prior.covariance)
    assert eigenvalues[0] > 1e-10 * eigenvalues[-1]


def test_fine_spaces_have_a_covariance_that_can_be_inverted():
    prior = SmoothPrior(WarpSpace((12, 12)))
    assert np.linalg.cond(prior.covariance) < 1e7


# -- the scale


@over_priors
@over_many
def test_displacement_is_the_mean_square_of_velocity(space, kind):
    prior = kind(space, displacement=0.03)
    # The mean of a squared affine function over a simplex, exact from its corners and middle.
    corners, n = corners_of(space), space.ndim
    at_corners = squared_velocity(prior, corners.reshape(-1, n)).mean()
    at_middles = squared_velocity(prior, corners.mean(axis=1)).mean()
    mean_square = (at_corners + (n + 1) * at_middles) / (n + 2)
    assert mean_square**0.5 == pytest.approx(0.03, rel=1e-9)


@over_priors
@over_plain
def test_displacement_agrees_with_simulation(space, kind):
    prior = kind(space, displacement=0.1)
    velocity = prior.space.velocity(prior.sample(1500, 3), random_points(prior.space, 400))
    squares = (velocity**2).sum(axis=2)
    # Draws and points both leave an error.
    error = np.hypot(squares.mean(axis=1).std() / 1500**0.5, squares.mean(axis=0).std() / 400**0.5)
    assert abs(squares.mean() - prior.displacement**2) < 4.0 * error


@over_priors
def test_displacement_is_how_far_the_flow_moves_points(kind):
    prior = kind(make_space((4, 4), "zero"), displacement=0.02)
    points = pixel_grid(28, 28)
    moved = prior.space.flow(prior.sample(400, 1), points)
    assert ((moved - points) ** 2).sum(axis=2).mean() ** 0.5 == pytest.approx(0.02, rel=0.05)


@over_priors
def test_covariance_scales_with_the_square_of_displacement(kind):
    space = make_space((4, 4), "slip")
    one, other = kind(space, displacement=0.02), kind(space, displacement=0.06)
    np.testing.assert_allclose(9.0 * one.covariance, other.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.precision, 9.0 * other.precision, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [0.08, 0.12, 0.16])
def test_velocities_are_correlated_over_the_length(length):
    prior = SmoothPrior(make_space((12, 12), "periodic"), length=length)
    points = np.array([[0.5, 0.5], [0.5, 0.5 + length], [0.5, 0.5 + 3.0 * length]])
    covariance = velocity_covariance(prior, points[:1], points)[0, 0, :, 0]
    correlation = covariance / covariance[0]
    # That of the affine maps is 0.61 and 0.01. What makes fields continuous smooths them further.
    assert 0.6 < correlation[1] < 0.9
    assert abs(correlation[2]) < 0.5


# -- symmetries


@over_priors
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("cells", [(5,), (4, 3), (2, 2, 2)])
def test_mirror_images_are_equally_plausible(cells, boundary, kind):
    prior = kind(make_space(cells, boundary))
    points = random_points(prior.space, 6)
    expected = velocity_covariance(prior, points, points)
    for axis in range(len(cells)):
        mirrored, signs = points.copy(), np.ones(len(cells))
        mirrored[:, axis] = 1.0 - mirrored[:, axis]
        signs[axis] = -1.0
        found = velocity_covariance(prior, mirrored, mirrored)
        found = found * signs[:, None, None] * signs
        np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


@over_priors
def test_no_place_of_a_periodic_space_is_special(kind):
    prior = kind(make_space((4, 3), "periodic"))
    points = random_points(prior.space, 6)
    expected = velocity_covariance(prior, points, points)
    moved = (points + np.array([0.25, 2.0 / 3.0])) % 1.0
    found = velocity_covariance(prior, moved, moved)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("make", [SmoothPrior, GMRFPrior], ids=lambda make: make.__name__)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_refining_the_cells_changes_little(boundary, make):
    points = np.array([[0.3, 0.3], [0.5, 0.5], [0.6, 0.2], [0.55, 0.7]])
    coarse, fine = (
        velocity_covariance(make(make_space(cells, boundary)), points, points)
        for cells in ((6, 6), (12, 12))
    )
    np.testing.assert_allclose(coarse, fine, atol=0.2 * np.abs(fine).max())


# -- the random field of neighbours


@over_many
def test_rank_leaves_out_constant_velocities(space):
    assert GMRFPrior(space).rank == space.dim - n_constants(space)
    assert SmoothPrior(space).rank == space.dim


@pytest.mark.parametrize("order", [1, 2])
@over_spaces([case for case in NOT_CONSTANT if case[1] in ("free", "periodic")], slow=SLOW)
def test_constant_velocities_cost_nothing(space, order):
    prior = GMRFPrior(space, order=order)
    theta = prior.sample(1)[0]
    for k in range(space.ndim):
        constant = theta_of(space, lambda p, k=k: np.tile(np.eye(space.ndim)[k], (len(p), 1)))
        size = np.abs(prior.precision).max() * np.abs(constant).max()
        np.testing.assert_allclose(prior.precision @ constant, 0.0, atol=1e-10 * size)
        moved = prior.log_prob(theta + 0.2 * constant)
        assert moved == pytest.approx(prior.log_prob(theta), rel=1e-7)
        assert SmoothPrior(space).log_prob(theta + 10.0 * constant) < -10.0


@pytest.mark.parametrize("boundary", ["free", "periodic"])
def test_draws_have_no_mean_velocity_where_it_is_free(boundary):
    space = make_space((4, 4), boundary)
    velocity = space.velocity(GMRFPrior(space).sample(20), corners_of(space).mean(axis=1))
    assert np.abs(velocity.mean(axis=1)).max() < 1e-12


@over_plain
def test_energy_of_first_order_is_that_of_gradients(space):
    prior = GMRFPrior(space, order=1)
    theta = np.random.default_rng(0).normal(size=(5, space.dim))
    energy = (space.affine_maps(theta)[..., :-1] ** 2).sum(axis=(1, 2, 3))
    found = np.einsum("nd,de,ne->n", theta, prior.precision, theta)
    np.testing.assert_allclose(found / found[0], energy / energy[0], rtol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_energy_grows_with_the_wave_number(order):
    space = make_space((64,), "periodic")
    prior = GMRFPrior(space, order=order)
    waves = [theta_of(space, lambda x, k=k: np.sin(2 * np.pi * k * x)) for k in (1, 2, 3)]
    energy = prior.log_prob(np.array(waves))
    np.testing.assert_allclose(energy / energy[0], np.array([1, 4, 9]) ** order, rtol=0.01)


# -- density, gradient and draws


@over_priors
@pytest.mark.parametrize("boundary", ["zero", "slip"])
def test_density_is_that_of_scipy(boundary, kind):
    prior = kind(make_space((3, 2), boundary))
    theta = np.random.default_rng(1).normal(scale=0.1, size=(7, prior.space.dim))
    expected = scipy.stats.multivariate_normal(cov=prior.covariance).logpdf(theta)
    np.testing.assert_allclose(prior.log_prob(theta), expected, rtol=1e-9)
    assert prior.log_prob(theta[0]) == pytest.approx(expected[0], rel=1e-9)
    assert isinstance(prior.log_prob(theta[0]), float)


def test_improper_density_has_no_constant():
    prior = GMRFPrior(make_space((3, 2), "free"))
    assert prior.log_prob(np.zeros(prior.space.dim)) == 0.0


@over_priors
@over_plain
def test_the_precision_is_that_of_the_density(space, kind):
    prior = kind(space, displacement=0.5)
    theta = prior.sample(2, 5)
    directions = np.random.default_rng(6).normal(size=(4, space.dim))
    expected = central_differences(lambda s: prior.log_prob(theta + s), directions, 1e-3)
    found = -theta @ prior.precision @ directions.T
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def largest_deviation(draws, covariance):
    """Of the mean and covariance of draws from what they should be, in standard errors."""
    n, variances = len(draws), np.diag(covariance)
    mean = draws.mean(axis=0) / np.sqrt(variances / n)
    errors = np.sqrt((np.outer(variances, variances) + covariance**2) / n)
    return max(np.abs(mean).max(), np.abs((draws.T @ draws / n - covariance) / errors).max())


@over_priors
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("cells", [(6,), (3, 2)])
def test_draws_have_the_covariance(cells, boundary, kind):
    prior = kind(make_space(cells, boundary))
    draws = prior.sample(20_000, 7)
    # 5 standard errors: among 2,000 entries, once in a thousand tests.
    assert largest_deviation(draws, prior.covariance) < 5.0
    assert largest_deviation(1.1 * draws, prior.covariance) > 5.0


@over_priors
@over_many
def test_energies_of_draws_follow_the_chi_squared_law(space, kind):
    prior = kind(space)
    draws = prior.sample(2000, 8)
    energies = np.einsum("nd,de,ne->n", draws, prior.precision, draws)
    law = scipy.stats.chi2(prior.rank)
    assert scipy.stats.kstest(energies, law.cdf).pvalue > 1e-3
    assert scipy.stats.kstest(1.3 * energies, law.cdf).pvalue < 1e-3


@over_priors
def test_a_draw_depends_on_the_seed_and_its_number_alone(kind):
    prior = kind(make_space((4, 4), "free"))
    many = prior.sample(50, 9)
    for n in (0, 1, 7):
        np.testing.assert_array_equal(prior.sample(n, seed=9), many[:n])
    generator = np.random.default_rng(9)
    np.testing.assert_array_equal(prior.sample(3, generator), many[:3])
    np.testing.assert_array_equal(prior.sample(3, generator), many[3:6])
    assert not np.array_equal(prior.sample(1, 10), many[:1])


@over_priors
def test_priors_can_be_pickled(kind):
    prior = kind(make_space((3, 2), "free"))
    copy = pickle.loads(pickle.dumps(prior))
    assert copy.space == prior.space
    np.testing.assert_array_equal(copy.sample(2), prior.sample(2))


def test_priors_say_what_they_are():
    space = make_space((4, 4), "zero")
    start = "WarpSpace((4, 4), boundary='zero')"
    assert repr(SmoothPrior(space)) == f"SmoothPrior({start}, displacement=0.08, length=0.25)"
    assert repr(GMRFPrior(space, order=1)) == f"GMRFPrior({start}, displacement=0.08, order=1)"


# -- bad input


@over_priors
def test_a_space_is_needed(kind):
    with pytest.raises(TypeError, match=r"`space` must be a WarpSpace, got tuple\."):
        kind((4, 4))


@over_priors
@pytest.mark.parametrize("value", [0.0, -0.1, 1.4, np.nan, np.inf, "0.1", None, True])
def test_bad_displacements_are_refused(kind, value):
    with pytest.raises(
        ValueError, match=r"`displacement` must be a number above 0 and up to 1.*Divide pixels"
    ):
        kind(make_space((4, 4), "zero"), displacement=value)


@pytest.mark.parametrize("value", [0.0, -0.1, 11.0, np.nan, np.inf, "0.1", None, True])
def test_bad_lengths_are_refused(value):
    with pytest.raises(
        ValueError, match=r"`length` must be a number from 0\.001 to 10.*Divide pixels"
    ):
        SmoothPrior(make_space((4, 4), "zero"), length=value)


@pytest.mark.parametrize("order", [0, 3, "1", None])
def test_bad_orders_are_refused(order):
    with pytest.raises(ValueError, match=r"`order` must be 1 or 2, got"):
        GMRFPrior(make_space((4, 4), "zero"), order=order)


def test_constant_fields_alone_are_refused():
    space = make_space((1,), "periodic")
    with pytest.raises(ValueError, match=r"has only constant fields.*Use SmoothPrior, or more cel"):
        GMRFPrior(space)
    assert SmoothPrior(space).rank == space.dim


@over_priors
@pytest.mark.parametrize("n", [-1, 2.0, "3", True])
def test_bad_numbers_of_draws_are_refused(kind, n):
    with pytest.raises(ValueError, match="`n` must be an integer of at least 0, got"):
        kind(make_space((4, 4), "zero")).sample(n)


@over_priors
def test_theta_of_other_spaces_are_refused(kind):
    with pytest.raises(ValueError, match=r"`theta` must have shape \(n, 50\) .* got \(2, 62\)"):
        kind(make_space((4, 4), "zero")).log_prob(np.zeros((2, 62)))
