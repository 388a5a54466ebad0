"""Images, pairs and slow references that the tests of alignment share."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp import Warp, WarpSpace
from dreamwarp.align import SmoothPrior
from dreamwarp.align.posterior import PairBlock, Posterior, VertexCoordinates, build_grid
from dreamwarp.align.prior import Prior
from tests import oracle
from tests.space.cases import Array, pixel_grid


def smooth_images(shape: tuple[int, ...], n: int, *, channels: int = 1, seed: int = 0) -> Array:
    """Random images without edges, a few waves along every axis: (n, channels, *shape)."""
    rng = np.random.default_rng(seed)
    points = pixel_grid(*shape)
    out = np.zeros((n, channels, len(points)))
    for _ in range(6):
        waves = rng.uniform(-2.0, 2.0, (n, channels, len(shape)))
        phases = rng.uniform(0.0, 2.0 * np.pi, (n, channels, 1))
        out += np.sin(2.0 * np.pi * np.einsum("nck,mk->ncm", waves, points) + phases)
    return (0.5 + out / 12.0).reshape(n, channels, *shape)


@functools.cache
def digits() -> NDArray[np.float32]:
    """Real handwriting, of scikit-learn, enlarged smoothly: (1797, 24, 24), from 0 to 1."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    small = load_digits().images / 16.0
    large = zoom(small, (1, 3, 3), order=3, grid_mode=True, mode="grid-constant")
    return np.clip(large, 0.0, 1.0).astype(np.float32)


def threes() -> NDArray[np.float32]:
    """All threes of :func:`digits`: (183, 24, 24)."""
    from sklearn.datasets import load_digits

    return digits()[load_digits().target == 3]


def make_posterior(
    space: WarpSpace, sources: Array, targets: Array, similarity: Any, *, prior: Prior | None = None
) -> Posterior:
    """The posterior of pairs (n, channels, *spatial)."""
    n, channels, *shape = sources.shape
    coordinates = VertexCoordinates(space)
    flat = [
        np.ascontiguousarray(a, np.float32).reshape(n, channels, -1) for a in (sources, targets)
    ]
    pairs = PairBlock(flat[0], flat[1], build_grid(space, tuple(shape)))
    precision = coordinates.precision((prior or SmoothPrior(space)).precision)
    return Posterior(coordinates, precision, pairs, similarity)


def see_slowly(space: WarpSpace, theta: Array, image: Array) -> Array:
    """Values of an image (channels, *spatial) at where its pixels go: exact flow, plain loops."""
    shape = image.shape[1:]
    moved = space.flow(theta, pixel_grid(*shape), method="exact")
    fill = "wrap" if space.boundary == "periodic" else "edge"
    return np.array(
        [[oracle.resample_at(each, p, "linear", fill) for p in moved] for each in image]
    )


def known_pair(
    space: WarpSpace, image: Array, *, displacement: float = 0.06, seed: int = 0
) -> tuple[Array, Array, Array]:
    """A source (1, *spatial), a target made from it by a warp, and the θ of that."""
    theta = SmoothPrior(space, displacement=displacement).sample(1, seed)
    source = np.asarray(image)[None]
    return source, Warp(space, theta).image(source, method="exact"), theta


def pixel_error(space: WarpSpace, found: Array, theta: Array, image: Array) -> float:
    """Mean distance in pixels between two warps of an image (*spatial), where it has structure.

    Across edges only: along one, nothing shows where a pixel came from.
    """
    points = pixel_grid(*image.shape)
    steps = (space.flow(found, points) - space.flow(theta, points)) * image.shape
    moved = Warp(space, theta).image(image.astype(np.float64))
    slopes = np.stack(np.gradient(moved), axis=-1).reshape(-1, image.ndim)
    sizes = np.linalg.norm(slopes, axis=1)
    structured = sizes > 0.2 * sizes.max()
    across = np.einsum("mk,mk->m", steps[structured], slopes[structured]) / sizes[structured]
    return float(np.abs(across).mean())
