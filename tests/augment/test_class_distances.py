"""Distances to the nearest sample of each class."""

from __future__ import annotations

import numpy as np

from dreamwarp.augment.class_distances import ClassDistances


def test_distances_are_the_least_of_each_class() -> None:
    random = np.random.default_rng(0)
    queries, samples = random.standard_normal((7, 3, 2)), random.standard_normal((23, 3, 2))
    codes = random.integers(0, 3, 23) + 1  # no sample of class 0
    found = ClassDistances.among(queries, samples, codes, 5)
    squared = ((queries[:, None] - samples[None]) ** 2).sum(axis=(2, 3))
    for code in range(1, 4):
        np.testing.assert_allclose(
            found.values[:, code], squared[:, codes == code].min(axis=1), rtol=1e-4
        )
    assert np.isinf(found.values[:, [0, 4]]).all()
    nearest = codes[squared.argmin(axis=1)]
    np.testing.assert_array_equal(found.errors(np.full(7, 2)), nearest != 2)


def test_blocks_make_no_difference() -> None:
    random = np.random.default_rng(1)
    queries, samples = random.standard_normal((4, 5)), random.standard_normal((50, 5))
    codes = np.sort(random.integers(0, 2, 50))
    whole = ClassDistances.among(queries, samples, codes, 2)
    parts = ClassDistances.among(queries, samples[:10], codes[:10], 2)
    for first in range(10, 50, 8):
        parts = parts.improve(samples[first : first + 8], codes[first : first + 8])
    np.testing.assert_allclose(parts.values, whole.values, rtol=1e-5)
