"""The posterior: its density against plain loops, derivatives against differences.

All in float32 paths of a tolerance of 1e-4: hence the tolerances here.
"""

from __future__ import annotations

import numpy as np
import pytest

from dreamwarp import WarpSpace
from dreamwarp.align import GMRFPrior, SmoothPrior, algebra
from dreamwarp.align.images import reduce_images
from dreamwarp.align.posterior import VertexCoordinates
from dreamwarp.align.similarity import NormalizedCrossCorrelation, SquaredError
from tests.align.problems import make_posterior, see_slowly, smooth_images
from tests.space.cases import make_space, pixel_grid, relative_error

SIGMA = 0.2

# Every number of axes and boundary, images square or not, one channel or more.
CASES = [
    ((5,), "zero", (40,), 1),
    ((4,), "free", (33,), 3),
    ((4,), "periodic", (40,), 1),
    ((3, 3), "zero", (14, 14), 1),
    ((3, 2), "slip", (10, 15), 3),
    ((2, 2), "free", (12, 9), 1),
    ((3, 3), "periodic", (12, 12), 1),
    ((2, 2), "periodic", (12, 12), 3),
    ((2, 2, 2), "zero", (6, 5, 6), 1),
    ((2, 1, 1), "slip", (4, 5, 4), 2),
    ((1, 1, 2), "free", (5, 4, 5), 1),
    ((2, 2, 1), "periodic", (5, 5, 4), 1),
]


def name_of(case):
    cells, boundary, shape, channels = case
    return f"{'x'.join(map(str, cells))}-{boundary}-{'x'.join(map(str, shape))}-{channels}"


over_cases = pytest.mark.parametrize("case", CASES, ids=name_of)


def set_up(case, *, n=3, similarity=None):
    """A posterior of n pairs, with θ drawn from its prior."""
    cells, boundary, shape, channels = case
    space = make_space(cells, boundary)
    prior = SmoothPrior(space, displacement=0.04)
    sources = smooth_images(shape, n, channels=channels, seed=1)
    targets = smooth_images(shape, n, channels=channels, seed=2)
    similarity = SquaredError(SIGMA) if similarity is None else similarity
    posterior = make_posterior(space, sources, targets, similarity, prior=prior)
    return posterior, prior, sources, targets, prior.sample(n, seed=3)


# -- against plain loops


def slow_density(prior, theta, source, target):
    """Log-posterior of one θ (d,), from the exact flow and plain loops."""
    residuals = see_slowly(prior.space, theta, source) - target.reshape(len(target), -1)
    return prior.log_prob(theta) - np.sum(residuals**2) / (2.0 * SIGMA**2)


@over_cases
def test_density_is_that_of_plain_loops(case):
    posterior, prior, sources, targets, theta = set_up(case, n=2)
    everyone, nothing = np.arange(2), np.zeros(prior.space.dim)
    x = posterior.coordinates.from_theta(theta)
    found = posterior.log_density(x, everyone)
    start = posterior.log_density(np.zeros_like(x), everyone)
    for i in everyone:
        after, before = (
            slow_density(prior, each, sources[i], targets[i]) for each in (theta[i], nothing)
        )
        assert found[i] - start[i] == pytest.approx(after - before, abs=0.02, rel=2e-4)


@over_cases
def test_hessian_is_that_of_the_gradient_of_the_flow(case):
    posterior, prior, sources, _, theta = set_up(case, n=1)
    x, space = posterior.coordinates.from_theta(theta), prior.space
    posterior.log_density(x, np.arange(1))
    gradient, hessian = posterior.derivatives(x, np.arange(1))
    jacobian = _jacobian(space, theta[0], sources[0])
    expected = jacobian.T @ jacobian / SIGMA**2
    full = np.triu(hessian[0]) + np.triu(hessian[0], 1).T
    # d/dθ = Cᵀ d/dx.
    change = posterior.coordinates.from_theta(np.eye(space.dim)).T
    assert relative_error(change.T @ full @ change, expected) < 2e-3
    residuals = (posterior.pairs.targets - posterior.states.values)[0].ravel()
    by_theta = jacobian.T @ residuals / SIGMA**2 - prior.precision @ theta[0]
    assert relative_error(change.T @ gradient[0], by_theta) < 2e-3


def _jacobian(space, theta, image):
    """d value / dθ of every pixel and channel by differences of images and ``flow_gradient``."""
    shape = image.shape[1:]
    points = pixel_grid(*shape)
    moved = space.flow(theta, points, method="exact")
    by_theta = space.flow_gradient(theta, points)
    rows = []
    for channel in image:
        slopes = np.array([_slopes(channel, p, space.boundary == "periodic") for p in moved])
        rows.append(np.einsum("mk,mkd->md", slopes, by_theta))
    return np.concatenate(rows)


def _slopes(image, point, periodic):
    """Gradient of the linear interpolant of an image at a point, by its definition per axis."""
    places = point * image.shape - 0.5
    low = np.floor(places).astype(int)
    share = places - low
    out = np.zeros(image.ndim)
    for corner in np.ndindex(*(2,) * image.ndim):
        index = low + corner
        index = index % image.shape if periodic else np.clip(index, 0, np.array(image.shape) - 1)
        weights = np.where(corner, share, 1.0 - share)
        for k in range(image.ndim):
            others = np.prod(np.delete(weights, k))
            sign = 1.0 if corner[k] else -1.0
            out[k] += sign * image.shape[k] * others * image[tuple(index)]
    return out


@over_cases
def test_gradient_is_that_of_differences(case):
    posterior, prior, sources, targets, theta = set_up(case, n=2)
    rng, everyone = np.random.default_rng(0), np.arange(2)
    x = posterior.coordinates.from_theta(theta)
    posterior.log_density(x, everyone)
    gradients = posterior.derivatives(x, everyone, second=False)[0]
    for i in everyone:
        direction = rng.normal(size=prior.space.dim)
        direction /= np.linalg.norm(direction)
        # So short that no pixel passes a kink of the interpolant.
        ends = [theta[i] + step * direction for step in (1e-7, -1e-7)]
        up, down = (slow_density(prior, each, sources[i], targets[i]) for each in ends)
        by_theta = posterior.coordinates.from_theta(np.eye(prior.space.dim)) @ gradients[i]
        error = abs((up - down) / 2e-7 - by_theta @ direction)
        assert error < 2e-3 * np.linalg.norm(by_theta)


def test_gradient_alone_is_that_with_the_hessian():
    posterior, _, _, _, theta = set_up(CASES[4])
    x, everyone = posterior.coordinates.from_theta(theta), np.arange(3)
    posterior.log_density(x, everyone)
    gradient, nothing = posterior.derivatives(x, everyone, second=False)
    assert nothing.size == 0
    np.testing.assert_array_equal(posterior.derivatives(x, everyone)[0], gradient)


def test_the_log_of_crossings_grows_as_needed():
    space = WarpSpace((12, 12))
    images = smooth_images((16, 16), 4)
    posterior = make_posterior(space, images[:2], images[2:], SquaredError(SIGMA))
    x = posterior.coordinates.from_theta(SmoothPrior(space, displacement=0.15).sample(2, 0))
    posterior.log_density(x, np.arange(2))
    roomy = posterior.derivatives(x, np.arange(2))
    before, posterior._capacity = posterior._capacity, 10
    again = posterior.derivatives(x, np.arange(2))
    assert posterior._capacity > 10
    assert before > 0
    for one, other in zip(roomy, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pairs_do_not_notice_each_other():
    posterior, _, _, _, theta = set_up(CASES[3])
    x = posterior.coordinates.from_theta(theta)
    together = posterior.log_density(x, np.arange(3))
    derivatives = posterior.derivatives(x, np.arange(3))
    for i in (2, 0):
        alone = posterior.log_density(x[i : i + 1], np.array([i]))
        assert alone[0] == together[i]
        one = posterior.derivatives(x[i : i + 1], np.array([i]))
        for of_one, of_all in zip(one, derivatives, strict=True):
            np.testing.assert_array_equal(of_one[0], of_all[i])


def test_stiff_fields_have_no_density():
    posterior, _, _, _, theta = set_up(CASES[3])
    x = posterior.coordinates.from_theta(theta)
    x[1] *= 1e4
    density = posterior.log_density(x, np.arange(3))
    assert density[1] == -np.inf
    assert np.isfinite(density[[0, 2]]).all()


def test_modes_at_the_limit_of_stiffness_have_derivatives_in_any_batch():
    posterior, *_, theta = set_up(CASES[5], n=33)
    directions = posterior.coordinates.from_theta(theta)
    pairs = np.arange(len(directions))
    low, high = np.zeros(len(pairs)), np.full(len(pairs), 1e3)
    for _ in range(40):  # the strongest fields of finite density, each found by itself
        middle = 0.5 * (low + high)
        x = middle[:, None] * directions
        finite = np.array(
            [np.isfinite(posterior.log_density(x[[k]], pairs[[k]]))[0] for k in pairs]
        )
        low, high = np.where(finite, middle, low), np.where(finite, high, middle)
    x = low[:, None] * directions
    assert posterior.move(x, pairs).all()
    assert np.isfinite(posterior.derivatives(x, pairs)[0]).all()


@pytest.mark.parametrize("similarity", [SquaredError(0.1), NormalizedCrossCorrelation()])
def test_nothing_to_do_is_no_trouble(similarity):
    posterior, *_ = set_up(CASES[3], similarity=similarity)
    nobody, nothing = np.empty(0, np.int64), np.empty((0, posterior.coordinates.dim))
    assert posterior.log_density(nothing, nobody).shape == (0,)
    gradient, hessian = posterior.derivatives(nothing, nobody)
    assert gradient.shape == nothing.shape
    assert hessian.shape == (0, *2 * nothing.shape[1:])


# -- coordinates


@over_cases
def test_coordinates_go_there_and_back(case):
    space = make_space(*case[:2])
    coordinates, prior = VertexCoordinates(space), SmoothPrior(space)
    theta = prior.sample(4, 0)
    x = coordinates.from_theta(theta)
    np.testing.assert_allclose(coordinates.to_theta(x), theta, atol=1e-10)
    energy = np.einsum("nd,de,ne->n", x, coordinates.precision(prior.precision), x)
    np.testing.assert_allclose(energy, np.einsum("nd,de,ne->n", theta, prior.precision, theta))
    velocities = coordinates.fields(x)[0][:, : len(space.tessellation.vertices)]
    np.testing.assert_allclose(velocities, space.vertex_velocities(theta), atol=1e-6)


# -- coarse images


def test_coarse_images_keep_constants_and_means():
    images = np.full((2, 3, 30, 21), 0.7, np.float32)
    coarse = reduce_images(images, (15, 11))
    assert coarse.shape == (2, 3, 15, 11)
    np.testing.assert_allclose(coarse, 0.7, rtol=1e-6)


def test_coarse_images_keep_structure_in_place():
    fine = smooth_images((48, 48), 1)
    coarse = reduce_images(fine.astype(np.float32), (24, 24))[0, 0]
    averaged = fine[0, 0].reshape(24, 2, 24, 2).mean(axis=(1, 3))
    assert np.abs(coarse - averaged)[2:-2, 2:-2].max() < 0.02


# -- many small systems


def random_systems(n=5, d=17, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n, d, d + 3))
    return roots @ np.swapaxes(roots, 1, 2), rng.normal(size=(n, d))


def test_steps_are_those_of_numpy():
    matrices, gradients = random_systems()
    precision = random_systems(1, seed=1)[0][0]
    damping, steps = np.linspace(0.0, 2.0, 5), np.empty_like(gradients)
    which = np.array([4, 2, 0, 3, 1])
    algebra.solve_damped(0, 5, np.triu(matrices), which, precision, damping, gradients, steps)
    for i in range(5):
        hessian = matrices[which[i]]
        whole = hessian + precision + damping[i] * (np.diag(np.diag(hessian)) + precision)
        np.testing.assert_allclose(steps[i], np.linalg.solve(whole, gradients[i]), rtol=1e-9)


def test_steps_of_indefinite_systems_are_nan():
    matrices, gradients = random_systems()
    matrices[2] -= 100.0 * np.eye(17)
    steps = np.empty_like(gradients)
    everyone, nothing = np.arange(5), np.zeros((17, 17))
    algebra.solve_damped(0, 5, matrices, everyone, nothing, np.zeros(5), gradients, steps)
    assert np.isnan(steps[2]).all()
    assert np.isfinite(np.delete(steps, 2, axis=0)).all()


@pytest.mark.parametrize("d", [1, 2, 4, 5, 16, 17, 19])
def test_factors_are_those_of_numpy(d):
    matrices, values = random_systems(d=d)
    factors, good = np.triu(matrices), np.empty(5, np.bool_)
    algebra.factorise_all(0, 5, factors, good)
    lower = np.linalg.cholesky(matrices)
    assert good.all()
    np.testing.assert_allclose(np.triu(factors), np.swapaxes(lower, 1, 2), rtol=1e-9, atol=1e-9)
    which = np.array([3, 0, 3, 1])
    lower, values = lower[which], values[:4]
    for transposed in (False, True):
        out = values.copy()
        algebra.divide_all(0, 4, factors, which, transposed, out)
        side = lower if transposed else np.swapaxes(lower, 1, 2)
        np.testing.assert_allclose(out, np.linalg.solve(side, values[..., None])[..., 0], rtol=1e-8)
    out = np.empty_like(values)
    algebra.multiply_all(0, 4, factors, which, values, out)
    np.testing.assert_allclose(out, np.einsum("nji,nj->ni", lower, values), rtol=1e-9, atol=1e-9)


def test_the_prior_is_weighed_as_it_says():
    space = make_space((3, 3), "free")
    images, prior = smooth_images((8, 8), 4), GMRFPrior(space)
    posterior = make_posterior(space, images[:2], images[2:], SquaredError(1.0), prior=prior)
    theta = prior.sample(2, 0)
    x = posterior.coordinates.from_theta(theta)
    density, gradient = posterior.log_prior(x)
    np.testing.assert_allclose(density, prior.log_prob(theta), rtol=1e-7)
    np.testing.assert_allclose(gradient, -x @ posterior.precision, rtol=1e-7, atol=1e-7)
