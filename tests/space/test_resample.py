"""Values at moved points, against a pixel-by-pixel sum, scipy, and differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given
from hypothesis import strategies as st

from dreamwarp.core.interpolation import MAX_PIXELS
from dreamwarp.space.resample import FILL_RULES, resample, resample_into, resample_vjp
from tests import oracle

SHAPES = {1: (7,), 2: (5, 8), 3: (4, 3, 6)}
# What scipy calls the same ways of carrying on beyond the border.
SCIPY_MODES = {
    "edge": "nearest", "constant": "grid-constant", "reflect": "reflect", "wrap": "grid-wrap",
}  # fmt: skip


def case(ndim, n=2, n_channels=2, m=40, seed=0, low=-1.4, high=2.3):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, n_channels, *SHAPES[ndim]))
    return values, rng.uniform(low, high, size=(n, m, ndim))


def oracle_resample(values, positions, *options):
    return np.array(
        [
            [[oracle.resample_at(image, p, *options) for p in points] for image in sample]
            for sample, points in zip(values, positions, strict=True)
        ]
    )


# -- values


@pytest.mark.parametrize("fill", FILL_RULES)
@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_matches_a_sum_over_pixels(ndim, interpolation, fill):
    values, positions = case(ndim, m=12 if ndim == 3 else 40)
    found = resample(values, positions, interpolation=interpolation, fill=fill, fill_value=3.5)
    expected = oracle_resample(values, positions, interpolation, fill, 3.5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fill", FILL_RULES)
@pytest.mark.parametrize("order", [0, 1])
def test_matches_scipy(order, fill):
    values, positions = case(2, n=1, n_channels=1, m=500)
    interpolation = ["nearest", "linear"][order]
    found = resample(values, positions, interpolation=interpolation, fill=fill, fill_value=-2.0)
    places = positions[0].T * np.reshape(SHAPES[2], (-1, 1)) - 0.5
    expected = scipy.ndimage.map_coordinates(
        values[0, 0], places, order=order, mode=SCIPY_MODES[fill], cval=-2.0
    )
    np.testing.assert_allclose(found[0, 0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fill", FILL_RULES)
@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_axes_of_one_or_two_pixels(interpolation, fill):
    rng = np.random.default_rng(1)
    for shape in [(1, 1), (1, 2), (2, 1)]:
        values, positions = rng.normal(size=(1, 1, *shape)), rng.uniform(-4, 5, size=(1, 30, 2))
        found = resample(values, positions, interpolation=interpolation, fill=fill, fill_value=2.0)
        expected = oracle_resample(values, positions, interpolation, fill, 2.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_float32_and_uint8_match_float64(interpolation):
    rng = np.random.default_rng(2)
    values = rng.integers(0, 256, size=(3, 2, 5, 8)).astype(np.uint8)
    positions = rng.uniform(-0.2, 1.2, size=(3, 200, 2)).astype(np.float32)
    exact = resample(
        values.astype(np.float64), positions.astype(np.float64), interpolation=interpolation
    )
    single = resample(values.astype(np.float32), positions, interpolation=interpolation)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=0, atol=2e-3)
    whole = resample(values, positions, interpolation=interpolation)
    assert whole.dtype == np.uint8
    np.testing.assert_allclose(whole, exact.clip(0, 255), rtol=0, atol=0.5 + 2e-3)


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@given(
    value=st.floats(allow_nan=False, allow_infinity=False, width=32),
    seed=st.integers(0, 2**32 - 1),
)
def test_keeps_plateaus_to_the_bit(interpolation, value, seed):
    positions = np.random.default_rng(seed).uniform(size=(1, 20, 2)).astype(np.float32)
    values = np.full((1, 1, 5, 8), value, np.float32)
    assert (resample(values, positions, interpolation=interpolation) == value).all()


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_passes_through_the_pixels(interpolation):
    values, _ = case(1, n=1)
    centers = (np.arange(8) + 0.5) / 8
    values = np.concatenate([values, values[..., :1]], axis=-1)
    found = resample(values, centers[None, :, None], interpolation=interpolation)
    np.testing.assert_array_equal(found, values)  # eighths are exact


def test_cubic_is_exact_for_parabolas():
    places = np.arange(12.0)
    values = (0.3 * places**2 - 2.0 * places + 1.0)[None, None]
    positions = np.linspace(2, 10, 50)[None, :, None] / 12
    x = 12 * positions[0, :, 0] - 0.5
    found = resample(values, positions, interpolation="cubic")
    np.testing.assert_allclose(found[0, 0], 0.3 * x**2 - 2.0 * x + 1.0, rtol=0, atol=1e-12)


def test_nan_stays_near():
    values = np.zeros((1, 1, 20))
    values[..., 10] = np.nan
    positions = np.linspace(0, 1, 201)[None, :, None]
    for interpolation, reach in [("nearest", 0.5), ("linear", 1.0), ("cubic", 2.0)]:
        found = resample(values, positions, interpolation=interpolation)[0, 0]
        far = abs(20 * positions[0, :, 0] - 10.5) > reach + 1e-9
        assert np.isnan(found).any()
        assert not np.isnan(found[far]).any()


# -- dtypes


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "code", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", ">f4", ">i2"]
)
def test_every_dtype_is_kept_and_rounded(code, interpolation):
    dtype = np.dtype(code)
    rng = np.random.default_rng(3)
    high = 2 if dtype.kind == "b" else 100
    values = rng.integers(0, high, size=(2, 1, 6, 5)).astype(dtype)
    positions = rng.uniform(size=(2, 50, 2)).astype(np.float32)
    exact = resample(
        values.astype(np.float64), positions.astype(np.float64), interpolation=interpolation
    )
    found = resample(values, positions, interpolation=interpolation)
    assert found.dtype == dtype
    low, high = {"b": (0, 1), "u": (0, np.inf)}.get(dtype.kind, (-np.inf, np.inf))
    error = np.abs(found.astype(np.float64) - exact.clip(low, high))
    assert error.max() < (0.05 if dtype.kind == "f" else 0.501)


@pytest.mark.parametrize("code", ["u1", "i2", "u4", "i8", "u8"])
def test_overshoot_is_clipped_to_the_range(code):
    info = np.iinfo(code)
    edge = np.array([info.min, info.min, info.max, info.max], code)[None, None]
    positions = np.linspace(0, 1, 41)[None, :, None]
    found = resample(edge, positions, interpolation="cubic")[0, 0]
    exact = resample(edge.astype(np.float64), positions, interpolation="cubic")[0, 0]
    assert (exact > info.max).any()
    assert (exact < info.min).any()
    assert (np.diff(found.astype(object)) >= 0).all()  # a value that wrapped round would fall
    # The largest float64 below 2^64 is 2048 short of it.
    assert info.max - int(found.max()) < 2048
    assert found.min() == info.min


def test_halves_are_rounded_up():
    for dtype in (np.uint8, np.int16):
        values = np.array([[[0, 1, 2, 3]]], dtype)
        found = resample(values, np.array([[[0.25], [0.5], [0.75]]], np.float32))
        np.testing.assert_array_equal(found[0, 0], [1, 2, 3])


@pytest.mark.parametrize("code", ["?", "i4", ">u2", "f8"])
def test_nearest_fills_with_the_value_given(code):
    values = np.zeros((1, 1, 4), code)
    found = resample(
        values, [[[-0.5], [0.5], [1.5]]], interpolation="nearest", fill="constant", fill_value=1
    )
    assert found.dtype == np.dtype(code)
    np.testing.assert_array_equal(found[0, 0], [1, 0, 1])


def test_nearest_lets_no_fill_in_at_the_border():
    values = np.ones((1, 1, 9), np.uint8)
    positions = np.array([0.0, -1e-7, -4e-6, 1.0, 1.0 + 1e-6, 1.0 + 4e-6], np.float32)
    found = resample(
        values, positions[None, :, None], interpolation="nearest", fill="constant", fill_value=0
    )
    assert (found == 1).all()


# -- shapes, memory and threads


def test_one_image_for_many_points_and_the_other_way_round():
    values, positions = case(2, n=3)
    found = resample(values[:1], positions)
    assert found.shape == (3, 2, 40)
    np.testing.assert_array_equal(found[2], resample(values[:1], positions[2:])[0])
    found = resample(values, positions[:1])
    np.testing.assert_array_equal(found[2], resample(values[2:], positions[:1])[0])


@pytest.mark.parametrize("interpolation", ["nearest", "linear"])
def test_empty_inputs_give_empty_results(interpolation):
    for n, n_channels, m in [(0, 2, 5), (2, 0, 5), (2, 2, 0)]:
        values, positions = np.zeros((n, n_channels, 4, 4)), np.zeros((n, m, 2))
        found = resample(values, positions, interpolation=interpolation)
        assert found.shape == (n, n_channels, m)
    assert resample(np.zeros((1, 2, 4, 4)), np.zeros((0, 5, 2))).shape == (0, 2, 5)


def test_non_contiguous_and_read_only_inputs():
    values, positions = case(2, n=3)
    expected = resample(values, positions)
    strided = np.asfortranarray(values)
    frozen = positions[::-1].copy()[::-1]
    frozen.flags.writeable = False
    np.testing.assert_array_equal(resample(strided, frozen), expected)
    np.testing.assert_array_equal(resample(values.tolist(), positions.tolist()), expected)


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_results_do_not_depend_on_threads(interpolation):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(3, 1, 20, 20))
    positions = rng.uniform(-0.1, 1.1, size=(3, 9000, 2))  # three tasks per sample
    one = resample(values, positions, interpolation=interpolation, n_threads=1)
    four = resample(values, positions, interpolation=interpolation, n_threads=4)
    np.testing.assert_array_equal(one, four)


@pytest.mark.parametrize("fill", FILL_RULES)
@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_points_out_of_all_bounds_stay_in_memory(interpolation, fill):
    """A stiff warp of a free space may carry points past every float32."""
    values = np.arange(1.0, 6.0)[None, None]
    positions = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30])[None, :, None]
    out = np.empty((1, 1, 5))
    resample_into(
        out, values, positions, start=0, interpolation=interpolation, fill=fill, fill_value=9,
        n_threads=1,
    )  # fmt: skip
    assert np.isin(out, [*values.ravel(), 9.0]).all()


# -- derivatives


def differences(function, x, step=1e-6):
    """Derivative of a scalar function of an array, by central differences."""
    gradient = np.empty(x.shape)
    for index in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


@pytest.mark.parametrize("fill", FILL_RULES)
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_vjp_against_differences(ndim, interpolation, fill):
    values, positions = case(ndim, m=10, seed=10 + ndim, low=-0.3, high=1.3)
    cotangent = np.random.default_rng(5).normal(size=(2, 2, 10))
    options = {"interpolation": interpolation, "fill": fill, "fill_value": 1.5}

    def loss(values, positions):
        return (cotangent * resample(values, positions, n_threads=1, **options)).sum()

    by_values, by_positions = resample_vjp(values, positions, cotangent, **options)
    expected = differences(lambda p: loss(values, p), positions)
    np.testing.assert_allclose(by_positions, expected, rtol=0, atol=1e-7)
    # Linear in the values, so a step of one is exact.
    expected = differences(lambda v: loss(v, positions), values, step=1.0)
    np.testing.assert_allclose(by_values, expected, rtol=0, atol=1e-12)


def test_vjp_sums_over_what_is_shared():
    values, positions = case(2, n=3)
    cotangent = np.random.default_rng(6).normal(size=(3, 2, 40))
    by_values, _ = resample_vjp(values[:1], positions, cotangent)
    apart, _ = resample_vjp(np.repeat(values[:1], 3, axis=0), positions, cotangent)
    np.testing.assert_allclose(by_values, apart.sum(axis=0, keepdims=True), atol=1e-13)
    _, by_positions = resample_vjp(values, positions[:1], cotangent)
    _, apart = resample_vjp(values, np.repeat(positions[:1], 3, axis=0), cotangent)
    np.testing.assert_allclose(by_positions, apart.sum(axis=0, keepdims=True), atol=1e-13)


def test_vjp_leaves_out_what_is_not_wanted():
    values, positions = case(1)
    cotangent = np.ones((2, 2, 40))
    both = resample_vjp(values, positions, cotangent)
    by_values, nothing = resample_vjp(values, positions, cotangent, by_positions=False)
    assert nothing is None
    np.testing.assert_array_equal(by_values, both[0])
    nothing, by_positions = resample_vjp(values, positions, cotangent, by_values=False)
    assert nothing is None
    np.testing.assert_array_equal(by_positions, both[1])


def test_derivatives_in_float32():
    rng = np.random.default_rng(7)
    values = rng.integers(0, 256, size=(2, 3, 6, 7)).astype(np.uint8)
    positions = rng.uniform(size=(2, 50, 2)).astype(np.float32)
    cotangent = rng.normal(size=(2, 3, 50))
    exact = values.astype(np.float64), positions.astype(np.float64)
    single = resample_vjp(values, positions, cotangent)
    double = resample_vjp(*exact, cotangent)
    for found, expected in zip(single, double, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-2)


# -- bad input


VALUES, POSITIONS = np.zeros((2, 1, 4, 4)), np.zeros((2, 5, 2))


@pytest.mark.parametrize(
    ("error", "match", "arguments", "options"),
    [
        (TypeError, "`values` must be an array of booleans.*got dtype object",
         (VALUES.astype(object), POSITIONS), {}),
        (TypeError, "`values` must be .* of at most 64 bits, got dtype complex128",
         (VALUES * 1j, POSITIONS), {}),
        (TypeError, "`positions` must be .*got dtype <U1", (VALUES, np.full((2, 5, 2), "a")), {}),
        (ValueError, r"`positions` must have shape \(n, m, ndim\).*got \(5, 2\). Use `positions",
         (VALUES, POSITIONS[0]), {}),
        (ValueError, "`positions` must have shape .* 1 to 3 axes",
         (VALUES, np.zeros((1, 1, 4))), {}),
        (ValueError, "`positions` must be finite", (VALUES, np.full((1, 1, 2), np.nan)), {}),
        (ValueError, r"`values` must have shape .* with 2 spatial axes.*got \(2, 4, 4\)",
         (VALUES[:, 0], POSITIONS), {}),
        (ValueError, "`values` and `positions` must have equal lengths.*got 2 and 3",
         (VALUES, np.zeros((3, 5, 2))), {}),
        (ValueError, r"between 1 and \d+ pixels per channel, got spatial shape \(4, 0\)",
         (VALUES[..., :0], POSITIONS), {}),
        (ValueError, "between 1 and 536870912 pixels",
         (np.broadcast_to(np.uint8(0), (1, 1, MAX_PIXELS, 2)), POSITIONS), {}),
        (ValueError, "`interpolation` must be one of 'linear', 'nearest', 'cubic', got 'lanczos'",
         (VALUES, POSITIONS), {"interpolation": "lanczos"}),
        (ValueError, "`fill` must be one of 'edge', 'constant', 'reflect', 'wrap', got 'zeros'",
         (VALUES, POSITIONS), {"fill": "zeros"}),
        (ValueError, "`fill_value` must be an integer between 0 and 255 .* got 256. Convert",
         (VALUES.astype(np.uint8), POSITIONS), {"fill": "constant", "fill_value": 256}),
        (ValueError, "`fill_value` must be an integer between -128 and 127 .* got 0.5",
         (VALUES.astype(np.int8), POSITIONS), {"fill": "constant", "fill_value": 0.5}),
        (ValueError, "`fill_value` must be an integer between 0 and 1 for .* bool, got nan",
         (VALUES.astype(bool), POSITIONS), {"fill": "constant", "fill_value": np.nan}),
        (TypeError, r"`fill_value` must be one real number, got \[0, 1\]",
         (VALUES, POSITIONS), {"fill": "constant", "fill_value": [0, 1]}),
        (ValueError, "`n_threads` must be a positive integer", (VALUES, POSITIONS),
         {"n_threads": 0}),
    ],
)  # fmt: skip
def test_bad_input(error, match, arguments, options):
    with pytest.raises(error, match=match):
        resample(*arguments, **options)


def test_derivatives_refuse_nearest():
    match = "`interpolation` must be one of 'linear', 'cubic', got 'nearest'"
    with pytest.raises(ValueError, match=match):
        resample_vjp(VALUES, POSITIONS, np.zeros((2, 1, 5)), interpolation="nearest")


def test_cotangent_of_the_wrong_shape():
    match = r"`cotangent` must have the shape of the sampled values, \(2, 1, 5\), got \(2, 5\)"
    with pytest.raises(ValueError, match=match):
        resample_vjp(VALUES, POSITIONS, np.zeros((2, 5)))
