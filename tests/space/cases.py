"""Spaces, points and parameters that the tests of ``space`` share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from dreamwarp import WarpSpace
from tests import oracle

Array = NDArray[np.float64]

BOUNDARIES = ("zero", "slip", "free", "periodic")

# Every number of axes with every boundary; then odd ones with few or unequal cells.
PLAIN = [(cells, boundary) for cells in ((5,), (4, 4), (2, 2, 2)) for boundary in BOUNDARIES]
ODD = [
    ((1,), "free"),
    ((1,), "periodic"),
    ((2,), "periodic"),
    ((7,), "zero"),
    ((1, 1), "zero"),
    ((1, 1), "periodic"),
    ((1, 3), "slip"),
    ((3, 1), "free"),
    ((1, 1, 1), "periodic"),
    ((3, 2, 1), "slip"),
    ((1, 2, 3), "free"),
]
# Those that only `make slow` runs. One odd space of each kind stays in the quick run.
SLOW = [each for each in ODD if each not in (((1, 3), "slip"), ((1, 1, 1), "periodic"))]
SLOW += [((2, 2, 2), "slip"), ((2, 2, 2), "free")]


@functools.cache
def make_space(cells: tuple[int, ...], boundary: Any = "zero") -> WarpSpace:
    """A space, shared by all tests."""
    return WarpSpace(cells, boundary)


def over_spaces(spaces: Sequence[tuple[tuple[int, ...], str]], *, slow: Any = ()) -> Any:
    """Run a test with ``space`` set to each of the spaces; those in ``slow`` by `make slow`."""
    cases = [
        pytest.param(
            make_space(*each),
            id="x".join(map(str, each[0])) + f"-{each[1]}",
            marks=(pytest.mark.slow,) if each in slow else (),
        )
        for each in spaces
    ]
    return pytest.mark.parametrize("space", cases)


over_all_spaces = over_spaces(PLAIN + ODD, slow=SLOW)


def pixel_grid(*shape: int) -> Array:
    """Pixel centres of an array, row-major: (pixels, ndim)."""
    axes = [(np.arange(n) + 0.5) / n for n in shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))


def random_points(space: WarpSpace, n: int, *, margin: float = 0.0, seed: int = 0) -> Array:
    """Points of the domain and of a margin round it: (n, ndim)."""
    return np.random.default_rng(seed).uniform(-margin, 1.0 + margin, (n, space.ndim))


def special_points(space: WarpSpace, *, at_most: int = 200) -> Array:
    """Where lookups could go wrong: vertices, edges, centre lines, borders, corners, and beyond.

    All multiples of a quarter box, to half a box outside the domain.
    """
    cells = np.array(space.cells)
    steps = np.indices(4 * cells + 5).reshape(space.ndim, -1).T - 2
    points = steps / (4.0 * cells)
    order = np.random.default_rng(0).permutation(len(points))
    return points[order[:at_most]]


def border_points(space: WarpSpace, axis: int, side: float, n: int = 40) -> Array:
    """Points on one side of the domain, some of them on its corners and vertices."""
    points = random_points(space, n, seed=7)
    points[: n // 2] = np.round(points[: n // 2] * space.cells) / space.cells
    points[:, axis] = side
    return points


def distances(moved: ArrayLike, points: ArrayLike) -> Array:
    """How far points moved: (n, m)."""
    return np.linalg.norm(np.asarray(moved, dtype=np.float64) - points, axis=-1)


# Neighbouring points may part by e^10 and no more: past that, float64 rounding grows so much on the
# way there and back that not even an ideal method could keep 1e-9.
STRONGEST = 10.0


def random_theta(space: WarpSpace, n: int, *, displacement: float | Array, seed: int = 0) -> Array:
    """Independent normal θ, scaled until the farthest point moves by ``displacement``: (n, d).

    A field that stands still in many places can't move any point far, however strong it is, so
    scaling ends at ``STRONGEST`` at the latest.
    """
    theta = np.random.default_rng(seed).normal(size=(n, space.dim))
    points = random_points(space, 100, seed=seed + 1)
    gradient = space.affine_maps(theta)[..., :-1]
    symmetric = 0.5 * (gradient + np.swapaxes(gradient, -1, -2))
    strength = np.linalg.norm(symmetric, axis=(-2, -1)).max(axis=1)
    most = STRONGEST / np.maximum(strength, 1e-6)
    speed = np.linalg.norm(space.velocity(theta, points), axis=-1).max(axis=1)
    scale = np.minimum(displacement / speed, most)
    for _ in range(8):
        farthest = distances(space.flow(scale[:, None] * theta, points), points).max(axis=1)
        scale = np.minimum(scale * np.clip(displacement / farthest, 0.2, 2.0), most)
    return scale[:, None] * theta


def theta_of(space: WarpSpace, velocity_fn: Any) -> Array:
    """θ of a field that the space holds exactly, from a function of the vertices (n, ndim)."""
    wanted = velocity_fn(space.tessellation.vertices)
    theta = space.theta_from_vertices(wanted)
    np.testing.assert_allclose(space.vertex_velocities(theta), wanted, atol=1e-12)
    return theta


def oracle_field(space: WarpSpace, theta: Array) -> oracle.Field:
    """The reference field of one θ."""
    return oracle.Field(
        space.cells,
        space.tessellation.vertices,
        space.vertex_velocities(theta),
        periodic=space.boundary == "periodic",
    )


def relative_error(found: Array, expected: Array) -> float:
    """Largest error, as a share of the largest entry."""
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300))


def central_differences(
    function: Callable[[Array], Array], directions: ArrayLike, step: float
) -> Array:
    """Derivatives of ``function`` at 0 along some directions, as a new last axis."""
    steps = step * np.asarray(directions)
    return np.stack([(function(s) - function(-s)) / (2.0 * step) for s in steps], axis=-1)


def cells_crossed(space: WarpSpace, theta: Array, points: Array) -> NDArray[np.int64]:
    """How many cells the paths of points (m, ndim) see, by looking at many times: (m,)."""
    times = np.linspace(0.0, 1.0, 41)
    path = space.flow(times[:, None] * theta, points, method="exact")
    corners = space.tessellation.vertices[space.tessellation.simplices]
    homogeneous = np.concatenate([corners, np.ones((*corners.shape[:2], 1))], axis=2)
    to_weights = np.linalg.inv(np.swapaxes(homogeneous, 1, 2))
    path = np.concatenate([path, np.ones((*path.shape[:2], 1))], axis=2)
    cells = np.einsum("cgj,tmj->tmcg", to_weights, path).min(axis=3).argmax(axis=2)
    return np.array([len(set(column)) for column in cells.T])
