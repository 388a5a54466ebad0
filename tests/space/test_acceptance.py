"""The promises about the warp space, at full size. Each test prints the figure it saw (``-s``)."""

from __future__ import annotations

import numpy as np
import pytest

from tests import oracle
from tests.space.cases import (
    BOUNDARIES,
    PLAIN,
    border_points,
    cells_crossed,
    central_differences,
    distances,
    make_space,
    oracle_field,
    over_spaces,
    pixel_grid,
    random_points,
    random_theta,
    relative_error,
)

pytestmark = pytest.mark.slow

CELLS = ((10,), (4, 4), (2, 2, 2))
over_cells = pytest.mark.parametrize("cells", CELLS, ids=str)
over_wide_spaces = over_spaces([*PLAIN, ((10,), "slip"), ((3, 2, 1), "free")])

N_THETA = 100_000
BATCH = 2_500


def say(name, space, figure, bound):
    print(f"\n{name}, {space}: {figure:.1e} (bound {bound:g})", end="")
    assert figure <= bound


def batches(cells, seed=0):
    """``N_THETA`` in all, in turn from every boundary: (space, seed of the batch)."""
    for i in range(N_THETA // BATCH):
        yield make_space(cells, BOUNDARIES[i % len(BOUNDARIES)]), seed + i


# -- exact


@over_wide_spaces
def test_exact_against_an_adaptive_ode_solver(space):
    displacement = np.linspace(0.05, 0.5, 10)
    theta = random_theta(space, len(displacement), displacement=displacement, seed=11)
    pixels = pixel_grid(*[20] * space.ndim)
    farthest = distances(space.flow(theta, pixels), pixels).max()
    worst = 0.0
    for i, one in enumerate(theta):
        points = random_points(space, 10, margin=0.05, seed=i)
        field = oracle_field(space, one)
        expected = [oracle.follow(field, point, tolerance=1e-12) for point in points]
        worst = max(worst, np.abs(space.flow(one, points, method="exact") - expected).max())
    print(f"\ndisplacements up to {farthest:.2f}", end="")
    say("exact against DOP853 at 1e-12", space, worst, 1e-9)


@over_wide_spaces
def test_round_trip_and_group_property(space):
    theta = random_theta(space, 200, displacement=np.linspace(0.01, 0.5, 200), seed=12)
    points = random_points(space, 300, margin=0.05)
    moved = space.flow(theta, points, method="exact")
    back = space.flow(-theta, moved, method="exact")
    say("round trip", space, np.abs(back - points).max(), 1e-9)
    for share in (0.25, 0.6):
        part = space.flow(share * theta, points, method="exact")
        whole = space.flow((1.0 - share) * theta, part, method="exact")
        say("group property", space, np.abs(whole - moved).max(), 1e-9)


@over_spaces([each for each in PLAIN if each[1] != "free"])
def test_border(space):
    theta = random_theta(space, 200, displacement=np.linspace(0.01, 0.5, 200), seed=13)
    worst = 0.0
    for axis in range(space.ndim):
        for side in (0.0, 1.0):
            points = border_points(space, axis, side, n=100)
            moved = space.flow(theta, points, method="exact")
            if space.boundary == "zero":
                off = moved - points
            elif space.boundary == "slip":
                off = moved[..., axis] - side
            else:
                turn = (1.0 - 2.0 * side) * np.eye(space.ndim)[axis]
                off = space.flow(theta, points + turn, method="exact") - moved - turn
            worst = max(worst, np.abs(off).max())
    say("border rule", space, worst, 1e-12)


# -- fast


@over_cells
def test_fast_within_its_tolerance(cells):
    worst, seen, left_to_exact = dict.fromkeys(BOUNDARIES, 0.0), 0, 0
    generator = np.random.default_rng(14)
    for space, seed in batches(cells):
        displacement = generator.uniform(0.0, 1.0 / 3.0, BATCH)
        theta = random_theta(space, BATCH, displacement=displacement, seed=seed)
        points = generator.uniform(0.0, 1.0, (BATCH, 64, space.ndim))
        exact = space.flow(theta, points, method="exact")
        fast = space.flow(theta, points)
        error = distances(fast, exact).max()
        worst[space.boundary] = max(worst[space.boundary], error)
        left_to_exact += (fast == exact.astype(np.float32)).all(axis=(1, 2)).sum()
        seen += BATCH
    print(f"\n{cells}: {seen} θ, {left_to_exact} of them left to the exact flow", end="")
    for boundary, error in worst.items():
        say("fast against exact", make_space(cells, boundary), error, 1e-4)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 1e-6])
@over_cells
def test_fast_within_other_tolerances(cells, tolerance):
    for boundary in BOUNDARIES:
        space = make_space(cells, boundary)
        displacement = np.random.default_rng(15).uniform(0.0, 1.0 / 3.0, BATCH)
        theta = random_theta(space, BATCH, displacement=displacement, seed=16)
        points = random_points(space, 100, margin=0.05)
        fast = space.flow(theta, points, tolerance=tolerance)
        error = distances(fast, space.flow(theta, points, method="exact")).max()
        say("fast against exact", space, error, tolerance)


def test_fast_on_every_pixel_of_28_x_28():
    space, pixels = make_space((4, 4), "zero"), pixel_grid(28, 28)
    displacement = np.random.default_rng(17).uniform(0.0, 1.0 / 3.0, 4_000)
    theta = random_theta(space, len(displacement), displacement=displacement, seed=18)
    worst = 0.0
    for start in range(0, len(theta), 500):
        some = theta[start : start + 500]
        exact = space.flow(some, pixels, method="exact")
        worst = max(worst, distances(space.flow(some, pixels), exact).max())
    say("fast against exact, in pixels", space, 28 * worst, 0.01)


# -- no folding


def test_no_folding_at_three_times_natural_strength():
    lowest, seen = np.inf, 0
    generator = np.random.default_rng(19)
    for space, seed in batches((4, 4), seed=1000):
        theta = 3.0 * random_theta(space, BATCH, displacement=0.1, seed=seed)
        points = generator.uniform(0.0, 1.0, (BATCH, 24, 2))
        determinant = np.linalg.det(space.flow_jacobian(theta, points))
        lowest, seen = min(lowest, determinant.min()), seen + determinant.size
    print(f"\nlowest of {seen} Jacobian determinants of {N_THETA} θ: {lowest:.2e}", end="")
    assert lowest > 0.0


# -- gradients


@over_wide_spaces
def test_gradients_against_central_differences(space):
    step = 1e-7  # the second derivative jumps at cell borders: few paths may come that close to one
    theta = random_theta(space, 6, displacement=np.linspace(0.1, 0.5, 6), seed=20)
    points = random_points(space, 40)
    crossed = np.array([cells_crossed(space, one, points) for one in theta])
    expected = central_differences(
        lambda s: space.flow(theta, points + s, method="exact"), np.eye(space.ndim), step
    )
    jacobian = space.flow_jacobian(theta, points)
    say("∂T/∂p", space, relative_error(jacobian, expected), 1e-6)
    expected = central_differences(
        lambda s: space.flow(theta + s, points, method="exact"), np.eye(space.dim), step
    )
    gradient = space.flow_gradient(theta, points)
    say("∂T/∂θ", space, relative_error(gradient, expected), 1e-6)
    through = crossed >= 3
    if through.any():
        error = relative_error(gradient[through], expected[through])
        say(f"∂T/∂θ of {through.sum()} paths through 3 cells or more", space, error, 1e-6)
    cotangent = np.random.default_rng(21).normal(size=gradient.shape[:3])
    expected = np.einsum("nmk,nmkd->nd", cotangent, expected)
    found, _ = space.flow_vjp(theta, points, cotangent, method="exact")
    say("vector-Jacobian product", space, relative_error(found, expected), 1e-6)
    found, _ = space.flow_vjp(theta, points, cotangent, method="fast")
    say("fast vector-Jacobian product", space, relative_error(found, expected), 1e-3)
