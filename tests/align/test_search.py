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


def test_it_ends_where_a_general_optimiser_does():
    posterior = make_problem(SquaredError(0.4), n=2)
    found = find_maximum([posterior], np.ones(2), max_steps=50)
    assert found.converged.all()
    for i in range(2):
        me = np.array([i])

        def minus(x, me=me):
            density = posterior.log_density(x[None], me)[0]
            return -density, -posterior.derivatives(x[None], me, second=False)[0][0]

        best = scipy.optimize.minimize(minus, found.x[i], jac=True, method="BFGS")
        # What is left is little beside d/2, by which the log-density varies over the posterior.
        assert -best.fun - found.density[i] < 0.05 * posterior.coordinates.dim / 2


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
