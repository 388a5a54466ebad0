"""What pairs say: right for independent noise, less where it comes in patches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from dreamwarp import Warp, WarpSpace, align_pairs
from dreamwarp.align import SmoothPrior
from dreamwarp.align.noise import MIN_CALIBRATION_PAIRS, N_PAIRS, count_pairs, residual_noise
from dreamwarp.align.similarity import NormalizedCrossCorrelation
from tests.align.problems import smooth_images, threes
from tests.space.cases import pixel_grid


@pytest.mark.parametrize("shape", [(200,), (28, 20), (12, 10, 8)])
def test_independent_noise_is_found(shape):
    residuals = np.random.default_rng(0).normal(0.0, 0.3, (50, 2, *shape)).astype(np.float32)
    assert residual_noise(residuals, len(shape)) == pytest.approx(0.3, rel=0.1)


def test_patches_count_once():
    # Smoothed by a Gaussian of width w, noise has 4 π w² pixels that err together.
    noise = np.random.default_rng(0).normal(size=(200, 1, 64, 64))
    residuals = gaussian_filter(noise, (0, 0, 1.5, 1.5), mode="wrap")
    expected = residuals.std() * np.sqrt(4.0 * np.pi * 1.5**2)
    assert residual_noise(residuals, 2) == pytest.approx(expected, rel=0.1)


def test_no_residuals_no_noise():
    assert residual_noise(np.zeros((3, 1, 8, 8), np.float32), 2) == 0.0


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_noise_of_pairs_is_estimated(noise):
    space, rng = WarpSpace((3, 3)), np.random.default_rng(0)
    sources = smooth_images((20, 20), 60)[:, 0].astype(np.float32)
    theta = SmoothPrior(space, displacement=0.03).sample(60, 1)
    targets = Warp(space, theta).image(sources) + rng.normal(0.0, noise, sources.shape)
    found = align_pairs(space, sources, targets, progress=False)
    assert found.sigma == pytest.approx(noise, rel=0.25)


def test_pairs_without_structure_have_no_say():
    space, images = WarpSpace((2, 2)), smooth_images((14, 14), 6)[:, 0]
    sources, targets = images[:3].copy(), images[3:].copy()
    expected = align_pairs(space, sources[:2], targets[:2], progress=False).sigma
    sources[2] = 0.5
    with pytest.warns(RuntimeWarning, match="1 of 3 pairs could not be aligned"):
        found = align_pairs(space, sources, targets, progress=False)
    assert found.sigma == expected


def displacement(similarity):
    """Root mean square displacement of warps between threes."""
    space = WarpSpace((4, 4))
    sources, targets = threes()[:60].reshape(2, 30, 24, 24)
    prior = SmoothPrior(space, displacement=0.05)
    found = align_pairs(space, sources, targets, prior=prior, similarity=similarity, progress=False)
    velocity = space.velocity(found.theta, pixel_grid(24, 24))
    return float(np.sqrt((velocity**2).sum(axis=-1).mean()))


def test_warps_are_as_large_whatever_the_similarity():
    sizes = {name: displacement(name) for name in ("ssd", "ncc", "mi")}
    assert sizes["ncc"] == pytest.approx(sizes["ssd"], rel=0.25)
    assert sizes["mi"] == pytest.approx(sizes["ssd"], rel=0.25)
    # Every pixel counted, as if all were independent, correlation moves much further.
    assert displacement(NormalizedCrossCorrelation()) > 1.4 * sizes["ssd"]


def test_large_samples_need_fewer_pairs() -> None:
    assert count_pairs(28 * 28) == N_PAIRS
    assert count_pairs(8192) == 32
    assert count_pairs(3 * 128 * 128) == MIN_CALIBRATION_PAIRS
