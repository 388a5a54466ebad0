"""The search: where it ends, that it never goes down, and known warps found again."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from dreamwarp import Warp, align_pairs
from dreamwarp.align import SmoothPrior
from dreamwarp.align.search import climb, find_maximum
from dreamwarp.align.similarity import MutualInformation, NormalizedCrossCorrelation, SquaredError
from tests.align.problems import (
    digits,
    known_pair,
    make_posterior,
    pixel_error,
    smooth_images,
    threes,
)
from tests.space.cases import make_space


def make_problem(similarity, n=4):
    space = make_space((3, 3), "zero")
    sources, targets = smooth_images((16, 16), n, seed=4), smooth_images((16, 16), n, seed=5)
    return make_posterior(space, sources, targets, similarity)


@pytest.mark.parametrize(
    "similarity", [SquaredError(0.3), NormalizedCrossCorrelation(0.1), MutualInformation(10)],
    ids=lambda s: type(s).__name__,
)  # fmt: skip
def test_every_step_is_up(similarity):
    posterior, everyone = make_problem(similarity), np.arange(4)
    x = np.zeros((4, posterior.coordinates.dim))
    density = start = posterior.log_density(x, everyone)
    for _ in range(6):
        posterior.log_density(x, everyone)
        found = climb(posterior, x, density, everyone, max_steps=1, smallest_gain=0.05)
        assert (found.density >= density).all()
        x, density = found.x, found.density
        np.testing.assert_array_equal(density, posterior.log_density(x, everyone))
    assert (density > start).any()


def refine(posterior, found, i):
    """Log-density after a general optimiser has gone on from where the search of pair i ended."""
    me = np.array([i])
    # Coordinates in which the prior is a standard Gaussian: others are too ill-conditioned.
    root = np.linalg.inv(np.linalg.cholesky(posterior.precision)).T

    def minus(z):
        x = (root @ z)[None]
        density = posterior.log_density(x, me)[0]
        if not np.isfinite(density):
            return 1e9, np.zeros(len(z))
        return -density, -root.T @ posterior.derivatives(x, me, second=False)[0][0]

    start = np.linalg.solve(root, found.x[i])
    return -scipy.optimize.minimize(minus, start, jac=True, method="L-BFGS-B").fun


def test_it_ends_where_a_general_optimiser_does():
    posterior = make_problem(SquaredError(0.4), n=2)
    found = find_maximum([posterior], np.ones(2), max_steps=50)
    assert found.converged.all()
    for i in range(2):
        # What is left is little beside d/2, by which the log-density varies over the posterior.
        assert refine(posterior, found, i) - found.density[i] < 0.05 * posterior.coordinates.dim / 2


@pytest.mark.parametrize(
    "cells", [(4, 4), (8, 8), pytest.param((12, 12), marks=pytest.mark.slow)], ids=str
)
def test_fine_cells_end_where_a_general_optimiser_does(cells):
    # The prior's precision spans seven orders of magnitude at (8, 8): damping by its diagonal
    # stopped every search at the identity, which is 10 nats and more below.
    space = make_space(cells, "zero")
    sources, targets = digits()[:6, None, ::3, ::3], digits()[10:16, None, ::3, ::3]
    posterior = make_posterior(space, sources, targets, SquaredError(0.2))
    found = find_maximum([posterior], np.full(6, 1.0), max_steps=50)
    assert found.converged.all()
    assert found.x.any(axis=1).all()
    assert np.median([refine(posterior, found, i) - found.density[i] for i in range(6)]) < 0.5


# -- finer cells leave no more than coarser ones

REFINEMENTS = [
    ("digits, 8 x 8", [(2, 2), (4, 4), (6, 6), (8, 8)]),
    ("digits, 24 x 24", [(2, 2), (4, 4), (6, 6), (8, 8)]),
    ("signals", [(2,), (4,), (8,), (16,), (32,)]),
    ("volumes", [(1, 1, 1), (2, 2, 2)]),
]
SLOW_REFINEMENTS = [
    ("digits, 8 x 8", [(4, 4), (8, 8), (12, 12), (16, 16)]),
    ("digits, 24 x 24", [(4, 4), (8, 8), (12, 12), (16, 16)]),
    ("signals", [(32,), (64,), (128,)]),
    ("volumes", [(2, 2, 2), (3, 3, 3), (4, 4, 4)]),
]
REFINEMENTS += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_REFINEMENTS]
SIGMA = {"digits, 8 x 8": 0.2, "digits, 24 x 24": 0.45, "signals": 0.3, "volumes": 0.15}


def pairs_of(kind, n):
    """Pairs of real digits, of profiles through them, or of three blobs in volumes."""
    if kind == "volumes":
        axes = np.meshgrid(*[(np.arange(12) + 0.5) / 12] * 3, indexing="ij")
        places = np.array([[0.4, 0.4, 0.5], [0.65, 0.6, 0.4], [0.5, 0.55, 0.7]])
        places = places + np.random.default_rng(0).normal(scale=0.04, size=(2 * n, 3, 3))
        distances = ((np.stack(axes) - places[..., None, None, None]) ** 2).sum(axis=2)
        moved = np.exp(-distances / 0.02).sum(axis=1)
        return moved[:n], moved[n:]
    images = threes()[: 2 * n]
    if kind == "signals":
        images = images.mean(axis=1)
    elif kind == "digits, 8 x 8":
        images = images.reshape(2 * n, 8, 3, 8, 3).mean(axis=(2, 4))
    return images[:n], images[n:]


def residuals_by_cells(kind, refinement, n):
    sources, targets = pairs_of(kind, n)
    for cells in refinement:
        space = make_space(cells, "zero")
        prior = SmoothPrior(space, displacement=0.05)
        found = align_pairs(space, sources, targets, prior=prior, sigma=SIGMA[kind], progress=False)
        assert found.theta.any(axis=1).all()
        yield float(np.median(found.loss_after / found.loss_before))


@pytest.mark.filterwarnings("ignore:.*fewer pixels than")
@pytest.mark.parametrize(("kind", "refinement"), REFINEMENTS)
def test_finer_cells_leave_no_more(kind, refinement):
    left = list(residuals_by_cells(kind, refinement, 8 if kind == "volumes" else 40))
    assert all(fine <= 1.05 * min(left[: i + 1]) for i, fine in enumerate(left[1:]))


def test_too_few_steps_are_reported():
    posterior = make_problem(SquaredError(0.02))
    found = find_maximum([posterior], np.ones(4), max_steps=1)
    assert not found.converged.any()
    assert (found.n_steps == 1).all()


def test_what_coarse_images_suggest_is_taken_only_if_better():
    space = make_space((3, 3), "zero")
    images = smooth_images((16, 16), 4, seed=6)
    fine = make_posterior(space, images, images, SquaredError(0.1))
    coarse = make_problem(SquaredError(0.1))  # of other images: bad advice
    found = find_maximum([coarse, fine], np.full(4, 3.0), max_steps=30)
    assert (found.density >= 0.0).all()
    assert not found.x.any()


def test_cooling_finds_higher_peaks_where_noise_is_small():
    space = make_space((4, 4), "slip")
    sources, targets = threes()[:40, None].reshape(2, 20, 1, 24, 24)
    prior = SmoothPrior(space, displacement=0.3, length=0.15)
    posterior = make_posterior(space, sources, targets, SquaredError(0.01), prior=prior)
    excess = np.sqrt(np.mean((sources - targets) ** 2, axis=(1, 2, 3))) / 0.01
    at_once = find_maximum([posterior], np.ones(20), max_steps=200)
    cooled = find_maximum([posterior], excess, max_steps=200)
    assert np.mean(cooled.density > at_once.density) > 0.6
    assert cooled.density.mean() > 0.6 * at_once.density.mean()  # both are negative


# -- known warps (acceptance 5 and 6)

CASES = [
    ((4, 4), "zero", (28, 28)),
    ((4, 4), "free", (28, 28)),
    ((3, 3), "periodic", (28, 28)),
    ((3, 4), "slip", (24, 32)),
    ((8,), "zero", (128,)),
    ((2, 2, 2), "zero", (16, 16, 16)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}")
def test_known_warps_of_waves_are_found_again(case):
    cells, boundary, shape = case
    space, errors = make_space(cells, boundary), []
    for seed in range(3):
        # Waves that wrap round, for the sake of the periodic space.
        image = _periodic_waves(shape, seed)
        source, target, theta = known_pair(space, image, displacement=0.03, seed=seed)
        found = align_pairs(space, source, target, sigma=0.02, progress=False)
        errors.append(pixel_error(space, found.theta[0], theta[0], image))
    assert np.mean(errors) < 0.3


def _periodic_waves(shape, seed):
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[(np.arange(n) + 0.5) / n for n in shape], indexing="ij")
    waves = [
        np.sin(2.0 * np.pi * np.tensordot(turns, axes, 1) + phase)
        for turns, phase in zip(
            rng.integers(-2, 3, (8, len(shape))), rng.uniform(0.0, 6.0, 8), strict=True
        )
    ]
    return 0.5 + np.sum(waves, axis=0) / 16.0


def recover(image, similarity, *, change=lambda x: x, seed=0, **options):
    """Error in pixels of a warp found again from a target with other intensities."""
    space = make_space((4, 4), "zero")
    source, target, theta = known_pair(space, image, seed=seed)
    found = align_pairs(
        space, source, change(target), similarity=similarity, progress=False, **options
    )
    return pixel_error(space, found.theta[0], theta[0], image)


def test_known_warps_of_digits_are_found_again():
    errors = [recover(digits()[i], "ssd", seed=i, sigma=0.03) for i in range(12)]
    unwarped = [_error_of_identity(digits()[i], seed=i) for i in range(12)]
    assert np.mean(errors) < 0.3
    assert np.mean(unwarped) > 0.5


def _error_of_identity(image, seed):
    space = make_space((4, 4), "zero")
    theta = known_pair(space, image, seed=seed)[2]
    return pixel_error(space, np.zeros(space.dim), theta[0], image)


def test_correlation_finds_warps_under_gain_and_offset():
    errors = [recover(digits()[i], "ncc", change=_dim, seed=i) for i in range(8)]
    assert np.mean(errors) < 0.3


def _dim(image):
    return 0.3 * image + 0.4


def _invert(image):
    return 1.0 - image


def _fold(image):
    """Neither end maps to an end: no line relates the two."""
    return np.abs(image - 0.4) ** 0.5


@pytest.mark.parametrize("change", [_invert, _fold])
def test_mutual_information_finds_warps_whatever_the_intensities(change):
    errors = [recover(digits()[i], "mi", change=change, seed=i, max_steps=200) for i in range(8)]
    assert np.mean(errors) < 0.5


@pytest.mark.filterwarnings("ignore:.*(could not be aligned|not converged)")
def test_squared_error_does_not_find_warps_of_inverted_digits():
    errors = [recover(digits()[i], "ssd", change=_invert, seed=i, sigma=0.1) for i in range(8)]
    assert np.mean(errors) > 0.5


def test_a_warp_and_its_inverse_go_both_ways():
    space, image = make_space((4, 4), "zero"), digits()[5]
    source, target, _ = known_pair(space, image)
    found = align_pairs(space, source, target, sigma=0.05, progress=False)
    before = np.sum((target - source) ** 2)
    back = Warp(space, -found.theta).image(target)
    assert np.sum((back - source) ** 2) < 0.1 * before


def test_a_stiffer_prior_moves_less():
    space = make_space((4, 4), "zero")
    source, target, _ = known_pair(space, digits()[3])
    energies = []
    for displacement in (0.05, 0.005):
        prior = SmoothPrior(space, displacement=displacement)
        found = align_pairs(space, source, target, prior=prior, sigma=0.1, progress=False)
        energies.append(np.sum(found.theta**2))
    assert energies[1] < 0.5 * energies[0]
