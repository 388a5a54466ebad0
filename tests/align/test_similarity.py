"""Similarities: slopes against differences, what leaves them as they are, and the user's own."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp.align.similarity import (
    Custom,
    MutualInformation,
    NormalizedCrossCorrelation,
    SquaredError,
    squared_error,
)
from tests.space.cases import relative_error


def own(values, targets):
    """A user's function: heavy tails, as a Cauchy distribution has."""
    ratio = (values - targets) / 0.3
    axes = tuple(range(1, values.ndim))
    return -np.log1p(ratio**2).sum(axis=axes), -2.0 * ratio / (0.3 * (1.0 + ratio**2))


SIMILARITIES = [
    SquaredError(0.3),
    NormalizedCrossCorrelation(),
    NormalizedCrossCorrelation(noise=0.1, independent=0.2),
    MutualInformation(),
    MutualInformation(n_bins=8, independent=0.5),
    Custom(own, (6, 5)),
]

over_similarities = pytest.mark.parametrize(
    "similarity", SIMILARITIES, ids=lambda s: type(s).__name__
)


def make_values(n=3, channels=2, m=30, seed=0):
    """Values and targets that depend on each other; float64, for the sake of differences."""
    rng = np.random.default_rng(seed)
    values = rng.random((n, channels, m))
    return values, np.sin(3.0 * values) + 0.2 * rng.normal(size=values.shape)


@over_similarities
def test_slopes_are_those_of_differences(similarity):
    values, targets = make_values()
    slopes, curvatures = similarity.derivatives(values, targets)
    found = np.empty_like(slopes)
    for index in np.ndindex(values.shape[1:]):
        step = np.zeros(values.shape)
        step[(slice(None), *index)] = 1e-6
        up = similarity.log_likelihood(values + step, targets)
        down = similarity.log_likelihood(values - step, targets)
        found[(slice(None), *index)] = (up - down) / 2e-6
    assert relative_error(slopes, found) < 1e-6
    assert slopes.shape == curvatures.shape == values.shape
    assert (curvatures >= 0.0).all()


@over_similarities
def test_pairs_are_judged_one_by_one(similarity):
    values, targets = make_values()
    together = similarity.log_likelihood(values, targets)
    alone = [similarity.log_likelihood(values[i : i + 1], targets[i : i + 1])[0] for i in range(3)]
    np.testing.assert_array_equal(together, alone)


@over_similarities
def test_true_values_are_likelier_than_wrong_ones(similarity):
    values, targets = make_values(n=1)
    wrong = np.random.default_rng(1).permutation(values, axis=2)
    right = similarity.log_likelihood(values, targets)
    assert right > similarity.log_likelihood(wrong, targets)


def test_squared_error_is_a_gaussian_log_likelihood():
    values, targets = make_values()
    expected = ((values - targets) ** 2).sum(axis=(1, 2))
    np.testing.assert_allclose(squared_error(values, targets), expected)
    found = SquaredError(0.3).log_likelihood(values, targets)
    np.testing.assert_allclose(found, -expected / (2.0 * 0.3**2))
    np.testing.assert_allclose(SquaredError(0.3).derivatives(values, targets)[1], 1.0 / 0.3**2)


def test_correlation_does_not_notice_gain_and_offset():
    values, targets = make_values()
    similarity = NormalizedCrossCorrelation()
    expected = similarity.log_likelihood(values, targets)
    for gain, offset in ((2.0, 0.3), (-0.5, 1.0)):
        found = similarity.log_likelihood(values, gain * targets + offset)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_correlation_is_that_of_numpy():
    values, targets = make_values()
    rho = [np.corrcoef(v.ravel(), t.ravel())[0, 1] for v, t in zip(values, targets, strict=True)]
    found = NormalizedCrossCorrelation(noise=0.02).log_likelihood(values, targets)
    np.testing.assert_allclose(found, -30.0 * np.log(1.02 - np.square(rho)))


def test_mutual_information_does_not_notice_inversion():
    values, targets = make_values()
    similarity = MutualInformation()
    expected = similarity.log_likelihood(values, targets)
    np.testing.assert_allclose(
        similarity.log_likelihood(values, 1.0 - targets), expected, rtol=1e-9
    )


def test_mutual_information_is_that_of_a_known_density():
    rho, rng = 0.8, np.random.default_rng(0)
    normals = rng.normal(size=(2, 1, 1, 200_000))
    values, targets = normals[0], rho * normals[0] + (1.0 - rho**2) ** 0.5 * normals[1]
    found = MutualInformation(n_bins=60).log_likelihood(values, targets) / 200_000
    # Windows a few bins wide hide a little.
    assert found[0] == pytest.approx(-0.5 * np.log(1.0 - rho**2), rel=0.1)


def test_unrelated_values_have_little_mutual_information():
    rng = np.random.default_rng(0)
    values, targets = rng.random((1, 1, 50_000)), rng.random((1, 1, 50_000))
    assert MutualInformation().log_likelihood(values, targets)[0] / 50_000 < 0.01


def test_constant_values_are_no_trouble():
    values, targets = np.full((1, 1, 20), 0.4), make_values(1, 1, 20)[1]
    for similarity in (NormalizedCrossCorrelation(), MutualInformation()):
        slopes, curvatures = similarity.derivatives(values, targets)
        assert np.isfinite(similarity.log_likelihood(values, targets)).all()
        assert np.isfinite(slopes).all()
        assert np.isfinite(curvatures).all()


# -- the user's own


def test_own_functions_see_images():
    seen = []

    def look(values, targets):
        seen.append((values.shape, targets.shape))
        return own(values, targets)

    values, targets = make_values()
    Custom(look, (6, 5)).derivatives(values, targets)
    assert seen == [((3, 2, 6, 5), (3, 2, 6, 5))]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda v, t: (0.0, np.zeros(v.shape)), r"got \(\) and \(3, 2, 6, 5\)"),
        (lambda v, t: (np.zeros(len(v)), np.zeros(len(v))), r"got \(3,\) and \(3,\)"),
    ],
)
def test_own_functions_must_return_both_in_shape(function, shapes):
    with pytest.raises(ValueError, match=r"`similarity` must return .* of shape \(3,\).*" + shapes):
        Custom(function, (6, 5)).log_likelihood(*make_values())


def test_gradients_in_any_memory_order_are_understood():
    values, targets = make_values()

    def turned(values, targets):
        likelihood, gradient = own(values, targets)
        gradient = np.asfortranarray(gradient)
        gradient.setflags(write=False)
        return likelihood, gradient

    slopes = Custom(turned, (6, 5)).derivatives(values, targets)[0]
    np.testing.assert_array_equal(slopes, Custom(own, (6, 5)).derivatives(values, targets)[0])
    assert slopes.flags.c_contiguous
    assert slopes.flags.writeable
