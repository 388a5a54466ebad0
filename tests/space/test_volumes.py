"""Volumes: memory, label maps, and modalities that no monotone map relates."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dreamwarp import SmoothPrior, Warp, WarpSpace, align_pairs
from dreamwarp.core.samples import pixel_centers

SPACE = WarpSpace((2, 2, 2))


def warp_in_bounds(n: int) -> float:
    """Megabytes beyond the volume and its result while a volume of n³ is warped."""
    rng = np.random.default_rng(0)
    volume = rng.integers(0, 256, (n, n, n), np.uint8)
    warp = Warp(SPACE, rng.normal(scale=0.1, size=SPACE.dim))
    warp.image(volume[:8, :8, :8])
    tracemalloc.start()
    out = warp.image(volume)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - out.nbytes) / 2**20


def test_memory_does_not_grow_with_the_volume() -> None:
    assert warp_in_bounds(128) < 130


@pytest.mark.slow
def test_a_volume_of_256_in_bounded_memory() -> None:
    assert warp_in_bounds(256) < 130


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int64, np.float32])
def test_label_maps_of_any_dtype_stay_in_step(dtype: type) -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((12, 12, 12)) < 0.5).astype(dtype)
    theta = rng.normal(scale=0.2, size=SPACE.dim)
    warped = Warp(SPACE, theta).mask(labels)
    centers = pixel_centers((12, 12, 12))
    places = SPACE.flow(theta, centers, method="exact").reshape(12, 12, 12, 3) * 12 - 0.5
    nearest = np.clip(np.floor(places + 0.5).astype(int), 0, 11)
    expected = labels[tuple(np.moveaxis(nearest, -1, 0))]
    assert warped.dtype == labels.dtype
    ties = np.abs(places + 0.5 - np.round(places + 0.5)).min(axis=-1) < 1e-3
    np.testing.assert_array_equal(warped[~ties], expected[~ties])


def test_mutual_information_aligns_modalities_of_a_non_monotone_map() -> None:
    """Acceptance: one volume, and itself warped and seen through a bump: bright and dark swap."""
    n, rng = 16, np.random.default_rng(0)
    places = (np.indices((n, n, n)) + 0.5) / n
    volume = np.zeros((n, n, n))
    for center in rng.uniform(0.25, 0.75, (6, 3)):
        distances = ((places - center[:, None, None, None]) ** 2).sum(axis=0)
        volume += np.exp(-distances / 0.02)
    volume /= volume.max()
    theta = SmoothPrior(SPACE, displacement=0.06).sample(1, seed=3)[0]
    moved = Warp(SPACE, theta).image(volume)
    other = np.sin(np.pi * moved) * (1.0 - 0.5 * moved)  # dark, bright, dark again
    found = align_pairs(SPACE, volume[None], other[None], similarity="mi", progress=False)
    here = pixel_centers((n, n, n))
    inside = volume.ravel() > 0.1

    def error(parameters: np.ndarray) -> float:
        """Mean distance, in voxels, from where the true warp puts what can be seen."""
        away = SPACE.flow(parameters, here) - SPACE.flow(theta, here)
        return float(np.linalg.norm(away[inside], axis=1).mean() * n)

    assert error(found.theta[0]) < 0.5 * error(np.zeros(SPACE.dim))
