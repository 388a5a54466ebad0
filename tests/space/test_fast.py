"""The fast flow keeps its tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dreamwarp.space.passes import SLACK, lowest_root
from tests.compiled import callable_part
from tests.space.cases import (
    BOUNDARIES,
    border_points,
    distances,
    make_space,
    over_all_spaces,
    over_spaces,
    pixel_grid,
    random_points,
    random_theta,
    special_points,
    theta_of,
)

TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6)


def error(space, theta, points, **options):
    """Largest distance between fast and exact."""
    exact = space.flow(theta, points, method="exact")
    return distances(space.flow(theta, points, **options), exact).max(initial=0.0)


@over_all_spaces
def test_the_default_tolerance_holds(space):
    theta = random_theta(space, 40, displacement=np.linspace(0.01, 1 / 3, 40))
    points = np.vstack([random_points(space, 100, margin=0.1), special_points(space, at_most=60)])
    assert error(space, theta, points) <= 1e-4


@pytest.mark.parametrize("tolerance", TOLERANCES)
@over_spaces([
    *[(cells, boundary) for cells in ((5,), (4, 4), (2, 2, 2)) for boundary in BOUNDARIES],
    ((1,), "free"), ((40,), "periodic"), ((1, 1), "periodic"), ((16, 16), "slip"),
])  # fmt: skip
def test_a_stated_tolerance_holds(space, tolerance):
    theta = random_theta(space, 40, displacement=np.linspace(0.01, 1 / 3, 40))
    points = np.vstack([random_points(space, 150, margin=0.1), special_points(space, at_most=50)])
    assert error(space, theta, points, tolerance=tolerance) <= tolerance


@pytest.mark.parametrize("tolerance", TOLERANCES)
@pytest.mark.parametrize("speed", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("cells", [(5,), (4, 4), (2, 2, 2)], ids=str)
@pytest.mark.parametrize("boundary", ["free", "periodic"])
def test_the_tolerance_holds_over_long_ways(cells, boundary, speed, tolerance):
    """A translation never parts points, but float32 rounding adds up cell after cell."""
    space = make_space(cells, boundary)
    drift = speed * np.array([0.8, -0.5, 0.33])[: len(cells)]
    theta = theta_of(space, lambda x: np.broadcast_to(drift, x.shape))
    points = random_points(space, 50)
    representable = np.abs(drift).max() * np.finfo(np.float32).eps
    allowed = max(tolerance, representable)
    assert error(space, theta, points, tolerance=tolerance) <= allowed


@pytest.mark.parametrize("turns", [1.0, 10.0, 60.0])
def test_the_tolerance_holds_for_fast_rotations(turns):
    space = make_space((4, 4), "free")
    theta = theta_of(space, lambda x: turns * (x[:, ::-1] - 0.5) * [-1.0, 1.0])
    points = 0.2 + 0.6 * random_points(space, 100)
    inside = np.linalg.norm(points - 0.5, axis=1) < 0.5
    if turns > 50:
        with pytest.warns(RuntimeWarning, match="distances between points may grow"):
            assert error(space, theta, points[inside]) <= 1e-4
    else:
        assert error(space, theta, points[inside]) <= 1e-4


@pytest.mark.parametrize("rate", [2.0, 5.0, 9.0, 13.0])
@pytest.mark.parametrize("cells", [(1,), (1, 1), (1, 1, 1), (5,), (3, 3)], ids=str)
def test_the_tolerance_holds_near_a_source(cells, rate):
    """Paths part by e^rate, and with them whatever float32 rounds off at their start."""
    space = make_space(cells, "free")
    theta = theta_of(space, lambda x: rate * (x - 0.5))
    points = 0.5 + np.exp(-rate) * (random_points(space, 100) - 0.5)
    assert error(space, theta, points) <= 1e-4


def test_a_hundredth_of_a_pixel_on_28_x_28():
    space = make_space((4, 4), "zero")
    theta = random_theta(space, 200, displacement=np.linspace(0.01, 1 / 3, 200))
    assert 28 * error(space, theta, pixel_grid(28, 28)) <= 0.01


@over_spaces([((5,), "slip"), ((4, 4), "zero"), ((2, 2, 2), "free")])
def test_beyond_float32_it_is_the_exact_flow(space):
    theta = random_theta(space, 5, displacement=0.2)
    points = random_points(space, 50, margin=0.1)
    exact = space.flow(theta, points, method="exact").astype(np.float32)
    np.testing.assert_array_equal(space.flow(theta, points, tolerance=2e-7), exact)


@over_spaces([((5,), "zero"), ((4, 4), "zero"), ((2, 2, 2), "slip")])
@pytest.mark.parametrize("own_points", [False, True], ids=["one set of points", "a set each"])
def test_violent_theta_among_gentle_ones(space, own_points):
    """Those that float32 can't hold go another way; each must end up in its own place."""
    theta = random_theta(space, 9, displacement=0.1)
    theta[[0, 3, 4, 8]] *= 20.0
    points = np.random.default_rng(0).uniform(-0.1, 1.1, (9, 70, space.ndim))
    points = points if own_points else points[0]
    together = space.flow(theta, points)
    assert distances(together, space.flow(theta, points, method="exact")).max() <= 1e-4
    for i in range(9):
        alone = space.flow(theta[i], points[i] if own_points else points)
        np.testing.assert_array_equal(together[i], alone)


@over_all_spaces
def test_zero_theta_is_the_identity(space):
    points = np.vstack([random_points(space, 50, margin=1.0), special_points(space, at_most=50)])
    moved = space.flow(np.zeros(space.dim), points)
    np.testing.assert_allclose(moved, points, rtol=0, atol=1e-6)


@over_all_spaces
def test_minus_theta_is_the_inverse(space):
    """To within the tolerance grown by the way back."""
    theta = random_theta(space, 5, displacement=0.1)
    points = random_points(space, 100, margin=0.1)
    back = space.flow(-theta, space.flow(theta, points))
    assert distances(back, points).max() <= 1e-3


@over_all_spaces
def test_border_rule(space):
    theta = random_theta(space, 5, displacement=0.3)
    for axis in range(space.ndim):
        for side in (0.0, 1.0):
            points = border_points(space, axis, side)
            moved = space.flow(theta, points)
            if space.boundary == "zero":
                assert distances(moved, points).max() <= 1e-4
            elif space.boundary == "slip":
                assert np.abs(moved[..., axis] - side).max() <= 1e-4
            elif space.boundary == "periodic":
                turned = space.flow(theta, points + 1.0 - 2.0 * side)
                assert distances(turned, moved + 1.0 - 2.0 * side).max() <= 1e-4


@given(
    value=st.floats(float(SLACK), 1.0, width=32),
    slope=st.floats(-1e4, 1e4, width=32, allow_subnormal=True),
    bend=st.floats(-1e8, 1e8, width=32, allow_subnormal=True),
)
@example(value=float(SLACK), slope=0.0, bend=float(np.float32(1e-42)))
def test_no_step_is_of_length_zero(value, slope, bend):
    """A root at 0, by underflow say, would keep a path where it is for ever."""
    value, slope, bend = np.float32(value), np.float32(slope), np.float32(bend)
    root = float(callable_part(lowest_root)(value, slope, bend))
    assert root > 0.0
    if root < 1.0:
        left = float(value) + float(slope) * root - float(bend) * root**2
        scale = float(value) + abs(float(slope)) * root + abs(float(bend)) * root**2
        assert abs(left) <= 1e-3 * scale


@over_spaces([((5,), "free"), ((4, 4), "zero"), ((2, 2, 2), "periodic")])
@pytest.mark.parametrize("n_points", [1, 7, 8, 9, 31, 32, 33, 65, 4095, 4096, 4097, 9000])
def test_any_number_of_points(space, n_points):
    """Points travel in lanes and chunks; none may be left out at their ends."""
    theta = random_theta(space, 2, displacement=0.2)
    points = random_points(space, n_points)
    assert error(space, theta, points) <= 1e-4


@over_spaces([((5,), "periodic"), ((4, 4), "periodic"), ((2, 2, 2), "periodic")])
def test_turns_round_the_torus_are_counted(space):
    theta = random_theta(space, 3, displacement=0.3)
    points = random_points(space, 40)
    moved = space.flow(theta, points)
    for turns in (-3, 1, 20):
        np.testing.assert_allclose(space.flow(theta, points + turns), moved + turns, atol=1e-5)


@over_spaces([(cells, "free") for cells in ((5,), (4, 4), (2, 2, 2))])
def test_far_outside_points_go_with_the_border(space):
    theta = random_theta(space, 2, displacement=0.2)
    points = random_points(space, 40)
    for distance in (2.0, 100.0):
        points[:, 0] = 1.0 + distance
        representable = distance * np.finfo(np.float32).eps
        assert error(space, theta, points) <= 1e-4 + representable
