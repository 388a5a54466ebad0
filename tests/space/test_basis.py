"""θ as coordinates: the basis, conversions, velocities."""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp import WarpSpace
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
    random_points,
    special_points,
)


def some_theta(space, n=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, space.dim))


def points_in_cells(space, n):
    """Random points, ``n`` in each cell, cell by cell: (n_cells * n, ndim)."""
    corners = space.tessellation.vertices[space.tessellation.simplices]
    shares = np.random.default_rng(1).dirichlet(np.ones(space.ndim + 1), size=(len(corners), n))
    return np.einsum("cig,cgk->cik", shares, corners).reshape(-1, space.ndim)


# -- the basis


@pytest.mark.parametrize(
    ("boundary", "dim"), [("zero", 50), ("slip", 62), ("free", 82), ("periodic", 64)]
)
def test_dimensions_of_the_papers_tessellation(boundary, dim):
    space = make_space((4, 4), boundary)
    assert space.dim == dim
    assert space.basis.shape == (384, dim)
    assert space.n_cells == 64


@pytest.mark.parametrize(
    ("cells", "dims"),
    [
        ((7,), (6, 6, 8, 7)),
        ((1, 3), (6, 10, 22, 12)),
        ((1, 1), (2, 2, 10, 4)),
        ((3, 2, 1), (39, 103, 177, 90)),
    ],
)
def test_dimensions_of_odd_tessellations(cells, dims):
    assert tuple(make_space(cells, boundary).dim for boundary in BOUNDARIES) == dims


@over_all_spaces
def test_columns_are_orthonormal(space):
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(space.dim), atol=1e-12)


@over_spaces(
    [(cells, b) for cells in ((1,), (5,), (1, 1), (1, 3), (4, 4), (1, 1, 1)) for b in BOUNDARIES
     if (cells, b) not in [((1,), "zero"), ((1,), "slip")]]
    + [((2, 1, 1), "slip"), ((1, 2, 1), "periodic")],
    slow=[*[((1, 1, 1), b) for b in BOUNDARIES[:3]], ((2, 1, 1), "slip")],
)  # fmt: skip
def test_columns_span_the_continuous_fields_that_obey_the_boundary(space):
    corners = space.tessellation.vertices[space.tessellation.simplices]
    reference = oracle.affine_basis(corners, space.boundary)
    assert reference.shape == space.basis.shape
    np.testing.assert_allclose(space.basis @ space.basis.T, reference @ reference.T, atol=1e-12)


@over_spaces([(cells, b) for cells in ((5,), (4, 4), (3, 2, 1)) for b in BOUNDARIES[:3]])
def test_order_and_sign_of_the_columns(space):
    """Gram-Schmidt on the vertex velocities, component by component and vertices row-major.

    So the field that moves one vertex along one axis has coordinates up to its own number, the last
    of them positive.
    """
    vertices = space.tessellation.vertices
    on_side = (vertices == 0) | (vertices == 1)
    forbidden = {
        "zero": np.repeat(on_side.any(axis=1, keepdims=True), space.ndim, axis=1),
        "slip": on_side,
        "free": np.zeros_like(on_side),
    }[space.boundary]
    allowed = np.argwhere(~forbidden.T)
    fields = np.zeros((len(allowed), *vertices.shape))
    fields[np.arange(len(allowed)), allowed[:, 1], allowed[:, 0]] = 1.0
    theta = space.theta_from_vertices(fields)
    np.testing.assert_allclose(np.triu(theta, 1), 0.0, atol=1e-12)
    assert np.diag(theta).min() > 0.1


SAVE_BASES = """
import sys, numpy, dreamwarp
spaces = [dreamwarp.WarpSpace(*each) for each in eval(sys.argv[1])]
numpy.savez(sys.argv[2], *(space.basis for space in spaces))
"""


def bases_of_another_process(run_python, path, spaces, **environment):
    finished = run_python("-c", SAVE_BASES, repr(spaces), str(path), **environment)
    assert finished.returncode == 0, finished.stderr
    with np.load(path) as saved:
        return [saved[name] for name in saved.files]


def test_every_machine_gets_the_same_basis(run_python, tmp_path):
    spaces = [*PLAIN[::3], *ODD[::3]]
    ours = [make_space(*each).basis for each in spaces]
    same = bases_of_another_process(run_python, tmp_path / "same.npz", spaces)
    for here, there in zip(ours, same, strict=True):
        assert here.tobytes() == there.tobytes()
    # OpenBLAS made to believe in an old processor sums in another order, as another machine would.
    other = bases_of_another_process(
        run_python, tmp_path / "other.npz", spaces,
        OPENBLAS_CORETYPE="Prescott", OPENBLAS_NUM_THREADS="1",
    )  # fmt: skip
    for here, there in zip(ours, other, strict=True):
        np.testing.assert_allclose(here, there, atol=1e-12)


def test_the_basis_cannot_be_overwritten():
    with pytest.raises(ValueError, match="read-only"):
        make_space((4, 4), "zero").basis[0, 0] = 7.0


# -- conversions


@over_all_spaces
def test_basis_lists_the_affine_maps_cell_by_cell(space):
    theta = some_theta(space)
    maps = space.affine_maps(theta)
    assert maps.shape == (3, space.n_cells, space.ndim, space.ndim + 1)
    np.testing.assert_allclose(theta @ space.basis.T, maps.reshape(3, -1), atol=1e-11)


@over_all_spaces
def test_affine_maps_give_the_velocity_in_their_cell(space):
    theta = some_theta(space, n=1)[0]
    maps = space.affine_maps(theta)
    inside = points_in_cells(space, 1)
    expected = np.einsum("ckj,cj->ck", maps[..., :-1], inside) + maps[..., -1]
    np.testing.assert_allclose(space.velocity(theta, inside), expected, atol=1e-11)


@over_all_spaces
def test_vertex_velocities_are_the_velocities_at_the_vertices(space):
    theta = some_theta(space)
    at_vertices = space.vertex_velocities(theta)
    assert at_vertices.shape == (3, *space.tessellation.vertices.shape)
    expected = space.velocity(theta, space.tessellation.vertices)
    np.testing.assert_allclose(at_vertices, expected, atol=1e-11)


@over_all_spaces
def test_conversions_lead_back_to_theta(space):
    theta = some_theta(space)
    back = space.theta_from_vertices(space.vertex_velocities(theta))
    np.testing.assert_allclose(back, theta, atol=1e-10)
    back = space.theta_from_affine(space.affine_maps(theta))
    np.testing.assert_allclose(back, theta, atol=1e-10)


@over_spaces([((5,), "free"), ((4, 4), "zero"), ((2, 2, 2), "periodic")])
def test_conversions_of_a_single_theta_drop_the_batch_axis(space):
    theta = some_theta(space)
    single, many = space.vertex_velocities(theta[1]), space.vertex_velocities(theta)
    np.testing.assert_allclose(single, many[1], atol=1e-12)
    single, many = space.affine_maps(theta[1]), space.affine_maps(theta)
    np.testing.assert_allclose(single, many[1], atol=1e-12)
    back = space.theta_from_affine(space.affine_maps(theta[1]))
    np.testing.assert_allclose(back, theta[1], atol=1e-10)
    back = space.theta_from_vertices(space.vertex_velocities(theta[1]))
    np.testing.assert_allclose(back, theta[1], atol=1e-10)


@over_all_spaces
def test_fields_outside_the_space_are_projected_on_it(space):
    maps = np.random.default_rng(2).normal(size=(space.n_cells, space.ndim, space.ndim + 1))
    theta = space.theta_from_affine(maps)
    remainder = (maps - space.affine_maps(theta)).ravel()
    np.testing.assert_allclose(space.basis.T @ remainder, 0.0, atol=1e-11)

    velocities = np.random.default_rng(3).normal(size=space.tessellation.vertices.shape)
    corners = space.tessellation.vertices[space.tessellation.simplices]
    homogeneous = np.concatenate([corners, np.ones((*corners.shape[:2], 1))], axis=2)
    maps = np.linalg.solve(homogeneous, velocities[space.tessellation.simplices])
    expected = space.theta_from_affine(np.swapaxes(maps, 1, 2))
    np.testing.assert_allclose(space.theta_from_vertices(velocities), expected, atol=1e-9)


# -- velocities


@over_all_spaces
def test_velocity_interpolates_between_vertices(space):
    theta = some_theta(space, n=1)[0]
    field = oracle_field(space, theta)
    points = np.vstack(
        [
            random_points(space, 60, margin=0.5),
            special_points(space, at_most=60),
            random_points(space, 10, margin=100.0),
        ]
    )
    expected = np.array([field(point) for point in points])
    np.testing.assert_allclose(space.velocity(theta, points), expected, atol=1e-10)


@over_all_spaces
def test_velocity_is_continuous_across_cells(space):
    theta = some_theta(space, n=1)[0]
    points = special_points(space, at_most=60)
    steps = 1e-9 * np.random.default_rng(4).normal(size=points.shape)
    here, there = space.velocity(theta, points), space.velocity(theta, points + steps)
    np.testing.assert_allclose(here, there, atol=1e-6)


@over_all_spaces
def test_velocity_obeys_the_boundary(space):
    theta = some_theta(space)
    for axis in range(space.ndim):
        for side in (0.0, 1.0):
            points = border_points(space, axis, side)
            velocity = space.velocity(theta, points)
            if space.boundary == "zero":
                np.testing.assert_allclose(velocity, 0.0, atol=1e-12)
            elif space.boundary == "slip":
                np.testing.assert_allclose(velocity[..., axis], 0.0, atol=1e-12)
            elif space.boundary == "periodic":
                turned = points + np.eye(space.ndim)[axis] * (3 - 8 * side)
                np.testing.assert_allclose(space.velocity(theta, turned), velocity, atol=1e-10)


@over_all_spaces
def test_outside_the_velocity_is_that_of_the_nearest_point(space):
    theta = some_theta(space)
    points = random_points(space, 80, margin=3.0)
    nearest = points % 1.0 if space.boundary == "periodic" else np.clip(points, 0.0, 1.0)
    expected = space.velocity(theta, nearest)
    np.testing.assert_allclose(space.velocity(theta, points), expected, atol=1e-10)


def test_velocity_is_linear_in_theta():
    space = make_space((3, 2, 1), "slip")
    first, second = some_theta(space, n=2)
    points = random_points(space, 50, margin=0.2)
    combined = space.velocity(2.0 * first - 3.0 * second, points)
    expected = 2.0 * space.velocity(first, points) - 3.0 * space.velocity(second, points)
    np.testing.assert_allclose(combined, expected, atol=1e-11)


# -- θ from seen velocities


@over_all_spaces
def test_fit_velocity_finds_theta_again(space):
    theta = some_theta(space, n=1)[0]
    points = points_in_cells(space, 2 * (space.ndim + 1))
    fitted = space.fit_velocity(points, space.velocity(theta, points))
    np.testing.assert_allclose(fitted, theta, atol=1e-8)


def test_fit_velocity_is_least_squares():
    space = make_space((3, 2), "slip")
    points = random_points(space, 400)
    seen = np.random.default_rng(5).normal(size=points.shape)
    theta = space.fit_velocity(points, seen)
    responses = space.velocity(np.eye(space.dim), points)
    left_over = seen - space.velocity(theta, points)
    np.testing.assert_allclose(np.einsum("dmk,mk->d", responses, left_over), 0.0, atol=1e-10)


def test_fit_velocity_to_few_points_is_the_smallest_theta():
    space = make_space((4, 4), "zero")
    points = random_points(space, 3)
    seen = np.random.default_rng(6).normal(size=points.shape)
    theta = space.fit_velocity(points, seen)
    np.testing.assert_allclose(space.velocity(theta, points), seen, atol=1e-9)
    responses = space.velocity(np.eye(space.dim), points).reshape(space.dim, -1)
    within, *_ = np.linalg.lstsq(responses, theta, rcond=None)
    np.testing.assert_allclose(responses @ within, theta, atol=1e-9)


def test_fit_velocity_to_no_points_is_the_identity():
    space = WarpSpace((2, 2))
    np.testing.assert_array_equal(space.fit_velocity(np.empty((0, 2)), np.empty((0, 2))), 0.0)
