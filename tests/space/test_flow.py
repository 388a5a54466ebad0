"""The exact flow: against an adaptive ODE solver, against closed forms, and by its own laws."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.space.cases import (
    BOUNDARIES,
    ODD,
    PLAIN,
    border_points,
    make_space,
    oracle_field,
    over_all_spaces,
    over_spaces,
    pixel_grid,
    random_points,
    random_theta,
    special_points,
    theta_of,
)

HALF = 0.5  # of the domain: how far warps here move points


def exact(space, theta, points):
    return space.flow(theta, points, method="exact")


def by_oracle(space, theta, points, **options):
    field = oracle_field(space, theta)
    return np.array([oracle.follow(field, point, **options) for point in points])


# -- against an adaptive ODE solver


@over_spaces([((7,), "free"), ((4, 4), "periodic"), ((2, 2, 2), "slip")])
def test_the_reference_itself_is_good_to_1e_11(space):
    theta = random_theta(space, 1, displacement=HALF)[0]
    points = random_points(space, 6, margin=0.1)
    loose = by_oracle(space, theta, points, tolerance=1e-12)
    strict = by_oracle(space, theta, points, tolerance=5e-13)
    np.testing.assert_allclose(loose, strict, rtol=0, atol=1e-11)


@over_all_spaces
def test_exact_is_what_an_ode_solver_finds(space):
    theta = random_theta(space, 1, displacement=HALF)[0]
    points = np.vstack(
        [
            random_points(space, 4, margin=0.1),
            special_points(space, at_most=4),
            random_points(space, 1, margin=10.0),
        ]
    )
    expected = by_oracle(space, theta, points)
    np.testing.assert_allclose(exact(space, theta, points), expected, rtol=0, atol=1e-9)


@over_spaces([((64,), "slip"), ((20, 20), "free"), ((5, 1, 4), "periodic")])
def test_exact_through_many_cells(space):
    theta = random_theta(space, 1, displacement=HALF)[0]
    points = random_points(space, 3)
    expected = by_oracle(space, theta, points)
    np.testing.assert_allclose(exact(space, theta, points), expected, rtol=0, atol=1e-9)


# -- against closed forms: a free space holds every affine field


def affine_theta(space, matrix, centre, drift):
    return theta_of(space, lambda x: (x - centre) @ np.transpose(matrix) + drift)


def affine_flow(matrix, centre, drift, points):
    """Where v = matrix (x - centre) + drift carries points, if all of them stay in the domain."""
    ndim = len(centre)
    generator = np.zeros((ndim + 1, ndim + 1))
    generator[:ndim, :ndim], generator[:ndim, ndim] = matrix, drift
    exponential = scipy.linalg.expm(generator)
    return centre + (points - centre) @ exponential[:ndim, :ndim].T + exponential[:ndim, ndim]


def inner_lattice(space, fraction):
    """Special points well inside the domain."""
    points = special_points(space, at_most=10_000)
    return points[(np.abs(points - 0.5) <= fraction / 2).all(axis=1)][:150]


AFFINE_FIELDS = {
    "rotation": np.array([[0.0, -1.0, 0.3], [1.0, 0.0, -0.2], [-0.3, 0.2, 0.0]]),
    "source": np.diag([0.5, 0.4, 0.3]),
    "sink": np.diag([-2.0, -1.0, -3.0]),
    "saddle": np.diag([0.5, -0.5, 0.2]),
    "spiral": np.array([[-1.0, -2.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, -1.0]]),
    "shear": np.array([[0.0, 0.6, 0.0], [0.0, 0.0, 0.6], [0.0, 0.0, 0.0]]),
    "degenerate": np.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, -1.0]]),
    "projection": np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
}


@pytest.mark.parametrize("cells", [(4,), (7,), (4, 4), (3, 1), (2, 2, 2), (1, 3, 2)], ids=str)
@pytest.mark.parametrize("name", AFFINE_FIELDS)
def test_affine_fields_about_the_middle(cells, name):
    """The middle is a vertex, a cell centre or lies on edges, and the field stands still there."""
    ndim = len(cells)
    space = make_space(cells, "free")
    matrix, centre = AFFINE_FIELDS[name][:ndim, :ndim], np.full(ndim, 0.5)
    points = inner_lattice(space, 0.5)
    theta = affine_theta(space, matrix, centre, 0.0)
    expected = affine_flow(matrix, centre, np.zeros(ndim), points)
    assert (np.abs(expected - 0.5) <= 0.5).all()
    np.testing.assert_allclose(exact(space, theta, points), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(exact(space, theta, centre[None]), centre[None], rtol=0, atol=1e-14)


DIRECTIONS = [
    (1, 0, 0),
    (0, 1, 0),
    (1, 1, 0),
    (1, -1, 0),
    (1, 1, 1),
    (2, -1, 1),
    (0, 0, 1),
    (-1, 1, -1),
]


@pytest.mark.parametrize("boundary", ["free", "periodic"])
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
@pytest.mark.parametrize("cells", [(4,), (4, 4), (2, 2), (2, 2, 2), (1, 1, 1)], ids=str)
def test_translations_along_edges_and_through_vertices(cells, direction, boundary):
    space = make_space(cells, boundary)
    drift = 0.25 * np.array(direction[: len(cells)])
    theta = theta_of(space, lambda x: np.broadcast_to(drift, x.shape))
    points = special_points(space, at_most=150)
    np.testing.assert_allclose(exact(space, theta, points), points + drift, rtol=0, atol=1e-11)


@pytest.mark.parametrize("rate", [-2.0, 0.0, 2.0])
def test_paths_on_an_edge_stay_on_it(rate):
    """A shear flow along the line 0.5 that draws points to it, leaves them, or drives them off."""
    space = make_space((4, 4), "free")
    matrix, drift = np.array([[rate, 0.0], [0.0, 0.0]]), np.array([0.0, 0.4])
    theta = affine_theta(space, matrix, np.array([0.5, 0.0]), drift)
    points = np.array([[0.5, 0.0], [0.5, 0.125], [0.5, 0.3], [0.5, 0.5]])
    np.testing.assert_allclose(exact(space, theta, points), points + drift, rtol=0, atol=1e-13)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_mirror_fields_keep_their_axis(boundary):
    """The field bends on the axis, where the path runs between two cells all the way."""
    space = make_space((4, 4), boundary)
    theta = random_theta(space, 1, displacement=HALF)[0]
    vertices = space.tessellation.vertices
    mirrored = np.array(
        [
            np.flatnonzero((np.abs(vertices - vertex) < 1e-12).all(axis=1))[0]
            for vertex in vertices * [-1, 1] + [1, 0]
        ]
    )
    velocities = space.vertex_velocities(theta)
    theta = theta_of(space, lambda _: velocities + velocities[mirrored] * [-1, 1])
    points = np.column_stack([np.full(9, 0.5), np.linspace(0.0, 1.0, 9)])
    moved = exact(space, theta, points)
    np.testing.assert_allclose(moved[:, 0], 0.5, rtol=0, atol=1e-12)
    np.testing.assert_allclose(moved, by_oracle(space, theta, points), rtol=0, atol=1e-9)


@pytest.mark.parametrize("turn", [0.4, 0.5, 0.6])
@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_a_path_that_meets_a_face_at_an_inflection(turn, strength):
    """x = 0.5 + 0.1 (t - turn)³ touches the face x = 0.5 with no slope and no curvature."""
    space = make_space((2, 2, 2), "free")
    matrix = np.diag([strength, strength], k=1)
    theta = affine_theta(space, matrix, np.array([0.5, 0.6, 0.5]), np.array([0.0, 0.0, 0.6]))

    def position(time):
        since = time - turn
        x = 0.5 + 0.1 * strength**2 * since**3
        return np.array([[x, 0.6 + 0.3 * strength * since**2, 0.5 + 0.6 * since]])

    np.testing.assert_allclose(exact(space, theta, position(0)), position(1), rtol=0, atol=1e-11)


@pytest.mark.parametrize("slope", [0.0, 1e-300, -1e-17, 1e-12, -1e-9, 1e-6, 0.3, -2.0, 5.0])
def test_one_dimension_in_closed_form(slope):
    """x(1) = e^a x + (b / a)(e^a - 1), which is x + b for a = 0; the space adds cell borders."""
    offset = 0.1
    points = np.linspace(0.0, 0.3, 13)[:, None] * np.exp(-abs(slope))
    growth = np.expm1(slope) / slope if slope else 1.0
    expected = points * np.exp(slope) + offset * growth * np.exp(-abs(slope))
    for cells in [(1,), (2,), (9,)]:
        space = make_space(cells, "free")
        theta = theta_of(space, lambda x: slope * x + offset * np.exp(-abs(slope)))
        np.testing.assert_allclose(exact(space, theta, points), expected, rtol=0, atol=1e-12)


# -- the laws of the exponential map


@over_all_spaces
def test_zero_theta_is_the_identity(space):
    points = np.vstack([random_points(space, 50, margin=2.0), special_points(space, at_most=50)])
    moved = exact(space, np.zeros(space.dim), points)
    np.testing.assert_allclose(moved, points, rtol=0, atol=1e-14)


@over_all_spaces
def test_minus_theta_is_the_inverse(space):
    theta = random_theta(space, 3, displacement=HALF)
    points = np.vstack([random_points(space, 80, margin=0.3), special_points(space, at_most=40)])
    back = exact(space, -theta, exact(space, theta, points))
    np.testing.assert_allclose(back, np.broadcast_to(points, back.shape), rtol=0, atol=1e-9)


@over_all_spaces
def test_times_add_up(space):
    """T^{sθ} ∘ T^{tθ} = T^{(s+t)θ}."""
    theta = random_theta(space, 3, displacement=HALF)
    points = np.vstack([random_points(space, 40, margin=0.3), special_points(space, at_most=40)])
    for s, t in [(0.3, 0.7), (1.5, -0.5), (0.5, 0.5)]:
        twice = exact(space, s * theta, exact(space, t * theta, points))
        np.testing.assert_allclose(twice, exact(space, theta, points), rtol=0, atol=1e-9)


@given(
    specification=st.sampled_from(PLAIN + ODD),
    seed=st.integers(0, 10_000),
    first=st.floats(-1.0, 1.0),
    second=st.floats(-1.0, 1.0),
    point=st.tuples(*3 * [st.floats(-0.5, 1.5)]),
)
def test_times_add_up_whatever_the_field_and_point(specification, seed, first, second, point):
    space = make_space(*specification)
    theta = 0.3 * np.random.default_rng(seed).normal(size=space.dim)
    points = np.array([point[: space.ndim]])
    twice = exact(space, first * theta, exact(space, second * theta, points))
    once = exact(space, (first + second) * theta, points)
    np.testing.assert_allclose(twice, once, rtol=0, atol=1e-9)


@over_all_spaces
def test_neighbours_stay_neighbours(space):
    """Also across cell borders, where the map to follow is another."""
    theta = random_theta(space, 2, displacement=0.2)
    points = special_points(space, at_most=100)
    steps = 1e-10 * np.random.default_rng(0).normal(size=points.shape)
    here, there = exact(space, theta, points), exact(space, theta, points + steps)
    np.testing.assert_allclose(here, there, rtol=0, atol=1e-7)


# -- borders and beyond


@over_all_spaces
def test_border_rule(space):
    theta = random_theta(space, 3, displacement=HALF)
    for axis in range(space.ndim):
        for side in (0.0, 1.0):
            points = border_points(space, axis, side)
            moved = exact(space, theta, points)
            if space.boundary == "zero":
                still = np.broadcast_to(points, moved.shape)
                np.testing.assert_allclose(moved, still, rtol=0, atol=1e-12)
            elif space.boundary == "slip":
                np.testing.assert_allclose(moved[..., axis], side, rtol=0, atol=1e-12)
            elif space.boundary == "periodic":
                turned = exact(space, theta, points + 1.0 - 2.0 * side)
                np.testing.assert_allclose(turned, moved + 1.0 - 2.0 * side, rtol=0, atol=1e-12)


@over_spaces([each for each in PLAIN + ODD if each[1] in ("zero", "slip")])
def test_closed_borders_keep_points_inside(space):
    theta = random_theta(space, 3, displacement=HALF)
    moved = exact(space, theta, np.vstack([random_points(space, 200), pixel_grid(*space.cells)]))
    assert moved.min() >= -1e-12
    assert moved.max() <= 1.0 + 1e-12


@over_all_spaces
def test_outside_rule(space):
    theta = random_theta(space, 3, displacement=HALF)
    points = random_points(space, 100, margin=2.0)
    outside = ((points < 0.0) | (points > 1.0)).any(axis=1)
    points = points[outside]
    moved = exact(space, theta, points)
    nearest = np.clip(points, 0.0, 1.0)
    if space.boundary == "zero":
        still = np.broadcast_to(points, moved.shape)
        np.testing.assert_allclose(moved, still, rtol=0, atol=1e-12)
    elif space.boundary == "slip":  # along with the border, at the same distance from it
        along = exact(space, theta, nearest) + (points - nearest)
        np.testing.assert_allclose(moved, along, rtol=0, atol=1e-11)
    elif space.boundary == "periodic":
        turns = np.floor(points)
        expected = exact(space, theta, points - turns) + turns
        np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-11)


@over_spaces([(cells, "free") for cells in ((5,), (4, 4), (2, 2, 2))])
def test_far_outside_a_free_space_points_go_with_the_border(space):
    theta = random_theta(space, 1, displacement=0.2)[0]
    for distance in (1.0, 1e3, 1e6):
        points = random_points(space, 30)
        points[:, 0] = 1.0 + distance
        expected = by_oracle(space, theta, points[:3])
        moved = exact(space, theta, points)
        np.testing.assert_allclose(moved[:3], expected, rtol=1e-12, atol=1e-9)
        nearer = exact(space, theta, points - (distance - 1.0) * np.eye(space.ndim)[0])
        shift = (distance - 1.0) * np.eye(space.ndim)[0]
        np.testing.assert_allclose(moved, nearer + shift, rtol=1e-12, atol=1e-9)


# -- shapes


@over_spaces([((5,), "free"), ((3, 2), "slip"), ((1, 2, 1), "periodic")])
@pytest.mark.parametrize("method", ["exact", "fast"])
def test_shapes_of_batches(space, method):
    theta = random_theta(space, 4, displacement=0.2)
    points = np.random.default_rng(0).uniform(0, 1, (4, 7, space.ndim))

    def flow(theta, points):
        return space.flow(theta, points, method=method)

    each = np.stack([flow(one, some) for one, some in zip(theta, points, strict=True)])
    assert each.shape == (4, 7, space.ndim)
    assert each.dtype == (np.float64 if method == "exact" else np.float32)
    np.testing.assert_array_equal(flow(theta, points), each)
    crossed = np.stack([flow(one, points[0]) for one in theta])
    np.testing.assert_array_equal(flow(theta, points[0]), crossed)
    spread_out = np.stack([flow(theta[0], some) for some in points])
    np.testing.assert_array_equal(flow(theta[0], points), spread_out)
    np.testing.assert_array_equal(flow(theta[:1], points), spread_out)
    assert flow(theta[0], points[0]).shape == (7, space.ndim)
    assert flow(theta[:1], points[0]).shape == (1, 7, space.ndim)
