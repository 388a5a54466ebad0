"""Derivatives of the flow: against central differences, each other, and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from tests.space.cases import (
    BOUNDARIES,
    cells_crossed,
    central_differences,
    make_space,
    over_all_spaces,
    over_spaces,
    random_points,
    random_theta,
    relative_error,
    special_points,
    theta_of,
)

# Small enough that few paths cross a cell border within it, where the second derivative jumps;
# large enough that the rounding of the flow, about 1e-15, is far below the bound on the error.
STEP = 1e-6
BOUND = 1e-6


def by_points(space, theta, points):
    return central_differences(
        lambda step: space.flow(theta, points + step, method="exact"), np.eye(space.ndim), STEP
    )


def by_theta(space, theta, points):
    return central_differences(
        lambda step: space.flow(theta + step, points, method="exact"), np.eye(space.dim), STEP
    )


# -- against central differences


@over_all_spaces
def test_jacobian(space):
    theta = random_theta(space, 2, displacement=0.3)
    points = random_points(space, 30, margin=0.1, seed=3)
    jacobian = space.flow_jacobian(theta, points)
    assert jacobian.shape == (2, 30, space.ndim, space.ndim)
    assert relative_error(jacobian, by_points(space, theta, points)) <= BOUND


@over_all_spaces
def test_gradient(space):
    theta = random_theta(space, 2, displacement=0.3)
    points = random_points(space, 12, margin=0.1, seed=3)
    gradient = space.flow_gradient(theta, points)
    assert gradient.shape == (2, 12, space.ndim, space.dim)
    assert relative_error(gradient, by_theta(space, theta, points)) <= BOUND


@over_spaces([((5,), "periodic"), ((4, 4), "free"), ((4, 4), "slip"), ((2, 2, 2), "periodic")])
def test_derivatives_through_several_cells(space):
    theta = random_theta(space, 1, displacement=0.5)[0]
    points = random_points(space, 60)
    points = points[cells_crossed(space, theta, points) >= 3]
    assert len(points) >= 5
    jacobian, gradient = space.flow_jacobian(theta, points), space.flow_gradient(theta, points)
    for i in range(len(points)):
        one = points[i : i + 1]
        assert relative_error(jacobian[i], by_points(space, theta, one)[0]) <= BOUND
        assert relative_error(gradient[i], by_theta(space, theta, one)[0]) <= BOUND


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("cells", [(5,), (4, 4), (2, 2, 2)], ids=str)
def test_vjp_is_the_gradient_of_a_scalar(cells, boundary):
    space = make_space(cells, boundary)
    theta = random_theta(space, 1, displacement=0.3)[0]
    points = random_points(space, 300, margin=0.1)
    weights = np.random.default_rng(5).normal(size=points.shape)

    def loss(theta, points):
        return (weights * np.sin(3.0 * space.flow(theta, points, method="exact"))).sum()

    cotangent = 3.0 * weights * np.cos(3.0 * space.flow(theta, points, method="exact"))
    theta_gradient, point_gradient = space.flow_vjp(theta, points, cotangent, method="exact")
    direction = np.random.default_rng(6).normal(size=space.dim)
    seen = central_differences(lambda step: loss(theta + step, points), [direction], STEP)
    assert relative_error(theta_gradient @ direction, seen) <= BOUND
    direction = np.random.default_rng(7).normal(size=points.shape)
    seen = central_differences(lambda step: loss(theta, points + step), [direction], STEP)
    assert relative_error((point_gradient * direction).sum(), seen) <= BOUND


# -- against each other


@over_all_spaces
def test_exact_vjp_contracts_jacobian_and_gradient(space):
    theta = random_theta(space, 3, displacement=0.3)
    points = random_points(space, 40, margin=0.2)
    cotangent = np.random.default_rng(8).normal(size=(3, 40, space.ndim))
    theta_gradient, point_gradient = space.flow_vjp(theta, points, cotangent, method="exact")
    expected = np.einsum("nmk,nmkd->nd", cotangent, space.flow_gradient(theta, points))
    assert relative_error(theta_gradient, expected) <= 1e-10
    expected = np.einsum("nmk,nmkj->nmj", cotangent, space.flow_jacobian(theta, points))
    assert relative_error(point_gradient, expected) <= 1e-10


@over_all_spaces
def test_fast_vjp_is_near_the_exact_one(space):
    theta = random_theta(space, 3, displacement=0.3)
    points = random_points(space, 500, margin=0.2)
    cotangent = np.random.default_rng(9).normal(size=(3, 500, space.ndim))
    found = space.flow_vjp(theta, points, cotangent, method="fast")
    expected = space.flow_vjp(theta, points, cotangent, method="exact")
    for fast, exact in zip(found, expected, strict=True):
        assert fast.shape == exact.shape
        assert np.linalg.norm(fast - exact) <= 1e-3 * np.linalg.norm(exact)


@over_spaces([((5,), "zero"), ((4, 4), "zero"), ((2, 2, 2), "slip")])
def test_fast_vjp_copes_with_violent_theta_among_gentle_ones(space):
    theta = random_theta(space, 3, displacement=0.1)
    theta[1] *= 15.0
    points = random_points(space, 100)
    cotangent = np.random.default_rng(9).normal(size=(3, 100, space.ndim))
    found = space.flow_vjp(theta, points, cotangent, method="fast")
    expected = space.flow_vjp(theta, points, cotangent, method="exact")
    for fast, exact in zip(found, expected, strict=True):
        for one, other in zip(fast, exact, strict=True):
            assert np.linalg.norm(one - other) <= 1e-3 * np.linalg.norm(other)


@pytest.mark.parametrize("method", ["exact", "fast"])
@over_spaces([((5,), "free"), ((4, 4), "periodic"), ((3, 2, 1), "slip")])
def test_moved_points_may_be_handed_in(space, method):
    theta = random_theta(space, 2, displacement=0.3)
    points = random_points(space, 200)
    cotangent = np.random.default_rng(10).normal(size=(2, 200, space.ndim))
    moved = space.flow(theta, points, method=method)
    found = space.flow_vjp(theta, points, cotangent, moved=moved, method=method)
    expected = space.flow_vjp(theta, points, cotangent, method="exact")
    allowed = 1e-9 if method == "exact" else 1e-3
    for one, other in zip(found, expected, strict=True):
        assert np.linalg.norm(one - other) <= allowed * np.linalg.norm(other)


@over_spaces([((5,), "free"), ((4, 4), "zero"), ((2, 2, 2), "periodic")])
@pytest.mark.parametrize("method", ["exact", "fast"])
def test_vjp_is_linear_in_the_cotangent(space, method):
    theta = random_theta(space, 1, displacement=0.2)[0]
    points = random_points(space, 60)
    first, second = np.random.default_rng(11).normal(size=(2, *points.shape))
    parts = [space.flow_vjp(theta, points, part, method=method) for part in (first, second)]
    whole = space.flow_vjp(theta, points, 2.0 * first - second, method=method)
    for one, other, both in zip(*parts, whole, strict=True):
        np.testing.assert_allclose(both, 2.0 * one - other, rtol=0, atol=1e-4 * np.abs(both).max())


# -- closed forms and laws


@over_all_spaces
def test_derivatives_at_the_identity(space):
    """T^θ(p) = p + Σ θ_k v_k(p) + O(θ²)."""
    points = np.vstack([random_points(space, 30, margin=0.3), special_points(space, at_most=30)])
    theta = np.zeros(space.dim)
    jacobian, gradient = space.flow_jacobian(theta, points), space.flow_gradient(theta, points)
    np.testing.assert_allclose(jacobian, np.broadcast_to(np.eye(space.ndim), jacobian.shape))
    velocities = space.velocity(np.eye(space.dim), points)
    np.testing.assert_allclose(gradient, np.moveaxis(velocities, 0, -1), rtol=0, atol=1e-12)


@over_all_spaces
def test_jacobian_of_the_inverse_is_the_inverse(space):
    theta = random_theta(space, 3, displacement=0.3)
    points = random_points(space, 50)
    moved = space.flow(theta, points, method="exact")
    there, back = space.flow_jacobian(theta, points), space.flow_jacobian(-theta, moved)
    unit = np.broadcast_to(np.eye(space.ndim), there.shape)
    np.testing.assert_allclose(back @ there, unit, rtol=0, atol=1e-8)


@over_all_spaces
def test_derivatives_obey_the_chain_rule(space):
    """T^θ = T^{θ/2} ∘ T^{θ/2}, differentiated."""
    theta = random_theta(space, 2, displacement=0.3)
    points = random_points(space, 30, margin=0.2)
    middle = space.flow(theta / 2, points, method="exact")
    first, second = space.flow_jacobian(theta / 2, points), space.flow_jacobian(theta / 2, middle)
    whole = space.flow_jacobian(theta, points)
    assert relative_error(whole, second @ first) <= 1e-11
    first, rest = space.flow_gradient(theta / 2, points), space.flow_gradient(theta / 2, middle)
    whole = space.flow_gradient(theta, points)
    assert relative_error(whole, (second @ first + rest) / 2) <= 1e-11


@pytest.mark.parametrize("cells", [(1,), (4,), (1, 1), (3, 2), (1, 1, 1), (1, 2, 2)], ids=str)
@pytest.mark.parametrize("strength", [0.1, 1.0, 4.0])
def test_gradient_of_affine_fields_in_closed_form(cells, strength):
    """The derivative of a matrix exponential along another matrix."""
    space, ndim = make_space(cells, "free"), len(cells)
    matrix, direction = np.random.default_rng(12).normal(size=(2, ndim + 1, ndim + 1))
    matrix *= strength / np.linalg.norm(matrix)
    matrix[-1] = direction[-1] = 0.0
    matrix[:-1, -1] *= 0.05 * np.exp(-strength)  # so that no path leaves the domain
    theta, along = (
        theta_of(space, lambda x, m=m: (x - 0.5) @ m[:-1, :-1].T + m[:-1, -1])
        for m in (matrix, direction)
    )
    points = 0.5 + 0.4 * np.exp(-strength) * (random_points(space, 20) - 0.5)
    offsets = np.column_stack([points - 0.5, np.ones(len(points))])
    _, derivative = scipy.linalg.expm_frechet(matrix, direction)
    found = np.einsum("mkd,d->mk", space.flow_gradient(theta, points), along)
    assert relative_error(found, (offsets @ derivative.T)[:, :-1]) <= 1e-11


@over_all_spaces
def test_theta_moves_points_along_the_flow(space):
    """∂T^{sθ}(p) / ∂s = v(T(p)) at s = 1: the gradient along θ is the velocity at the end."""
    theta = random_theta(space, 2, displacement=0.3)
    points = np.vstack([random_points(space, 30, margin=0.2), special_points(space, at_most=30)])
    along = np.einsum("nmkd,nd->nmk", space.flow_gradient(theta, points), theta)
    ends = space.flow(theta, points, method="exact")
    np.testing.assert_allclose(along, space.velocity(theta, ends), rtol=0, atol=1e-9)


@over_all_spaces
def test_no_warp_folds(space):
    theta = random_theta(space, 5, displacement=0.5)
    points = np.vstack([random_points(space, 150, margin=0.2), special_points(space, at_most=50)])
    assert np.linalg.det(space.flow_jacobian(theta, points)).min() > 0.0


def test_derivatives_of_a_rotation():
    space = make_space((4, 4), "free")
    theta = theta_of(space, lambda x: (x[:, ::-1] - 0.5) * [-1.0, 1.0])
    points = 0.3 + 0.4 * random_points(space, 20)
    jacobian = space.flow_jacobian(theta, points)
    turn = np.array([[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]])
    np.testing.assert_allclose(jacobian, np.broadcast_to(turn, jacobian.shape), rtol=0, atol=1e-11)


@over_spaces([((5,), "free"), ((3, 2), "slip"), ((1, 2, 1), "periodic")])
def test_shapes_of_batches(space):
    theta = random_theta(space, 4, displacement=0.2)
    points = np.random.default_rng(0).uniform(0, 1, (4, 7, space.ndim))
    cotangent = np.random.default_rng(1).normal(size=points.shape)
    for function, tail in [
        (space.flow_jacobian, (space.ndim,)),
        (space.flow_gradient, (space.dim,)),
    ]:
        each = np.stack([function(one, some) for one, some in zip(theta, points, strict=True)])
        assert each.shape == (*points.shape, *tail)
        np.testing.assert_allclose(function(theta, points), each, rtol=0, atol=1e-13)
        crossed = np.stack([function(one, points[0]) for one in theta])
        np.testing.assert_allclose(function(theta, points[0]), crossed, rtol=0, atol=1e-13)
        assert function(theta[0], points).shape == (*points.shape, *tail)
    for method in ("exact", "fast"):
        batch = space.flow_vjp(theta, points, cotangent, method=method)
        assert [part.shape for part in batch] == [(4, space.dim), points.shape]
        single = space.flow_vjp(theta[0], points[0], cotangent[0], method=method)
        assert [part.shape for part in single] == [(space.dim,), points.shape[1:]]
        np.testing.assert_allclose(single[0], batch[0][0], rtol=0, atol=1e-6)
        spread_out = space.flow_vjp(theta[0], points, cotangent, method=method)
        assert [part.shape for part in spread_out] == [(4, space.dim), points.shape]


def test_gradient_in_small_portions_is_the_same(monkeypatch):
    space = make_space((4, 4), "slip")
    theta, points = random_theta(space, 2, displacement=0.2), random_points(space, 9)
    whole = space.flow_gradient(theta, points)
    monkeypatch.setattr("dreamwarp.space.warpspace.GRADIENT_BYTES", 1)
    np.testing.assert_array_equal(space.flow_gradient(theta, points), whole)
