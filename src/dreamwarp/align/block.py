"""Alignment of one block of pairs: the unit of work of a thread or a worker."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import image_kernels as kernels
from dreamwarp.align.chains import (
    MAX_CHAINS,
    MAX_SWEEPS,
    Chains,
    Sampled,
    diagnose,
    sample_posterior,
)
from dreamwarp.align.posterior import Coordinates, ImagePairs, Posterior, build_grid, shrink
from dreamwarp.align.search import find_maximum
from dreamwarp.align.similarity import Custom, Similarity, SquaredError, squared_error
from dreamwarp.align.surrogate import Surrogate
from dreamwarp.core import draws
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]
Images = NDArray[np.float32]

# Pairs per block: enough to make Python's share small, few enough that images, states and Hessians
# of all of them stay in the processor's cache.
BLOCK = 64
# Memory for the Hessians of a block, which for fine tessellations are large.
HESSIAN_BYTES = 64 * 2**20
# No axis of a coarse image is shorter than this: structure would be gone.
SMALLEST_AXIS = 12
MAX_LEVELS = 4
# Pixels per cell, along every axis, from which finer images say little more of where the mode is:
# with 4 x 4 cells and 128 x 128 pixels of colour, the search at half the resolution takes 19 ms
# instead of 47, and θ is off by 1.5 % instead of 1.2 %. To estimate noise, half of that will do.
MAX_PER_CELL, MAX_PER_CELL_FOR_NOISE = 16, 8


@dataclass(frozen=True)
class Problem:
    """The settings shared by all pairs.

    Attributes
    ----------
    coordinates : Coordinates
    precision : (d, d)
        The prior's, for the coordinates x.
    similarity : Similarity
    grids : list of Grid
        Resolutions, the coarsest first.
    method : str
    max_steps : int
        Of the search, at each resolution.
    chains : Chains
    seed : int
    """

    coordinates: Coordinates
    precision: Array
    similarity: Similarity
    grids: list[kernels.Grid]
    method: str
    max_steps: int
    chains: Chains
    seed: int


@dataclass(frozen=True)
class Aligned:
    """Results for a block of n pairs.

    Attributes
    ----------
    theta : (n, d)
    loss_before, loss_after : (n,)
    converged : (n,)
    diagnostics : dict of str to (n,)
    chains, densities : lists of (n_chains, n_draws, d) and (n_chains, n_draws), or empty
        Posterior draws of θ, and their log-posteriors.
    """

    theta: Array
    loss_before: Array
    loss_after: Array
    converged: NDArray[np.bool_]
    diagnostics: dict[str, NDArray[Any]]
    chains: list[Array] = field(default_factory=list)
    densities: list[Array] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class PairedImages:
    """Pairs of images, as numbers into them.

    Attributes
    ----------
    sources, targets : (n_images, channels, *spatial)
    edges : (n, 2)
        Numbers of a source and of a target.
    """

    sources: Images
    targets: Images
    edges: NDArray[np.int64]

    @classmethod
    def in_order(cls, sources: Images, targets: Images) -> PairedImages:
        """Source k with target k."""
        return cls(sources, targets, np.repeat(np.arange(len(sources))[:, None], 2, axis=1))

    def __len__(self) -> int:
        return len(self.edges)

    def take(self, some: slice | NDArray[np.int64]) -> tuple[Images, Images]:
        """Sources and targets of some pairs."""
        sources, targets = self.edges[some].T
        return self.sources[sources], self.targets[targets]


def split_pairs(n: int, dim: int, n_threads: int = 1) -> list[slice]:
    """Blocks of nearly equal size, the same number for every thread."""
    largest = max(1, min(BLOCK, HESSIAN_BYTES // (16 * dim * dim)))
    n_blocks = -(-n // (largest * n_threads)) * n_threads
    size = max(1, -(-n // max(1, n_blocks)))
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def pyramid(coordinates: Coordinates, shape: tuple[int, ...]) -> list[kernels.Grid]:
    """Grids of an image shape and of coarser ones, each about half the one after it.

    Those with more than ``MAX_PER_CELL`` pixels per cell are not counted among ``MAX_LEVELS``.
    """
    shapes, cells = [shape], coordinates.space.cells
    n_fine = int(_is_fine(shape, cells, MAX_PER_CELL))
    while len(shapes) < MAX_LEVELS + n_fine:
        half = tuple(-(-size // 2) for size in shapes[0])
        if min(half) < SMALLEST_AXIS:
            break
        shapes.insert(0, half)
        n_fine += int(_is_fine(half, cells, MAX_PER_CELL))
    return [build_grid(coordinates.space, level) for level in shapes]


def coarse_enough(
    grids: list[kernels.Grid], cells: tuple[int, ...], per_cell: int = MAX_PER_CELL
) -> list[kernels.Grid]:
    """Grids without those, at the fine end, that have more pixels per cell along every axis."""
    kept = list(grids)
    while len(kept) > 1 and _is_fine(kept[-1].shape, cells, per_cell):
        kept.pop()
    return kept


def _is_fine(shape: tuple[int, ...], cells: tuple[int, ...], per_cell: int) -> bool:
    """Whether an image has more than so many pixels per cell along every axis."""
    return all(n > per_cell * k for n, k in zip(shape, cells, strict=True))


def align_some(
    problem: Problem, pairs: PairedImages, block: slice, keep: bool, stop: threading.Event
) -> Aligned:
    """Align a block of pairs; without ``keep``, posterior draws are dropped."""
    numbers = np.arange(block.start, block.stop)
    found = align_block(problem, *pairs.take(block), numbers, stop)
    return found if keep else replace(found, chains=[], densities=[])


def align_block(
    problem: Problem,
    sources: Images,
    targets: Images,
    numbers: NDArray[np.int64],
    stop: threading.Event,
) -> Aligned:
    """Align pairs of images (n, channels, *spatial), known by their numbers (n,)."""
    levels = [at_resolution(problem, sources, targets, grid) for grid in problem.grids]
    fine, everyone = levels[-1], np.arange(len(sources))
    loss_before = loss_at(fine, np.zeros((len(sources), problem.coordinates.dim)))
    found = find_maximum(levels, excess(fine, loss_before), max_steps=problem.max_steps)
    x, converged = found.x, found.converged
    diagnostics: dict[str, NDArray[Any]] = {"n_steps": found.n_steps}
    sampled: Sampled | None = None
    if problem.method == "laplace":
        first_draws = numbers * (MAX_CHAINS * MAX_SWEEPS)
        normals = draws.normals(
            problem.seed, first_draws, x.shape[1], stream=draws.Stream.ALIGNMENT, n_threads=1
        )
        x = Surrogate.measured(fine, x).spread(normals, everyone)
    elif problem.method != "map":
        sampled = sample_posterior(
            problem.method, fine, x, problem.chains, seed=problem.seed, numbers=numbers, stop=stop
        )
        x = np.stack([chains[0, -1] for chains in sampled.draws])
        converged = sampled.r_hat <= problem.chains.r_hat
        r_hat, ess = np.array([diagnose(chains) for chains in sampled.draws]).T
        diagnostics |= {
            "r_hat": r_hat, "ess": ess, "acceptance": sampled.acceptance,
            "n_sweeps": sampled.n_sweeps,
        }  # fmt: skip
    diagnostics["log_posterior"] = fine.log_density(x, everyone)
    to_theta = problem.coordinates.to_theta
    theta = to_theta(x)
    if fine.pairs.grid.shape == sources.shape[2:]:
        loss_after = loss_at(fine, x)
    else:
        loss_before, loss_after = _full_losses(problem, theta, sources, targets)
        # At the full resolution too, no pair is left worse than it was.
        theta[loss_after > loss_before] = 0.0
        loss_after = np.minimum(loss_after, loss_before)
    return Aligned(
        theta, loss_before, loss_after, converged, diagnostics,
        [to_theta(chains) for chains in sampled.draws] if sampled else [],
        sampled.densities if sampled else [],
    )  # fmt: skip


def at_resolution(
    problem: Problem, sources: Images, targets: Images, grid: kernels.Grid
) -> Posterior:
    """The posterior of pairs of images (n, channels, *spatial), on a grid as fine or coarser."""
    n, n_channels, *shape = sources.shape
    if grid.shape != tuple(shape):
        sources, targets = shrink(sources, grid.shape), shrink(targets, grid.shape)
    pixels = len(grid.every)
    pairs = ImagePairs(
        sources.reshape(n, n_channels, pixels), targets.reshape(n, n_channels, pixels), grid
    )
    weight, similarity = math.prod(shape) / pixels, problem.similarity
    if isinstance(similarity, Custom):  # the user's function gets images at every resolution
        similarity = replace(similarity, shape=grid.shape)
    return Posterior(problem.coordinates, problem.precision, pairs, similarity, weight=weight)


def excess(posterior: Posterior, loss: Array) -> Array:
    """Root mean square difference of images in units of σ; 1 for similarities without σ."""
    if not isinstance(posterior.similarity, SquaredError):
        return np.ones(len(loss))
    size = posterior.pairs.sources[0].size
    return np.sqrt(loss / size) / posterior.similarity.sigma


def _full_losses(
    problem: Problem, theta: Array, sources: Images, targets: Images
) -> tuple[Array, Array]:
    """Losses (n,) without and with warps, of images (n, channels, *spatial) as they are."""
    n, n_channels = sources.shape[:2]
    seen = Warp(problem.coordinates.space, theta).image(sources, n_threads=1)
    flat = [values.reshape(n, n_channels, -1) for values in (sources, seen, targets)]
    if isinstance(problem.similarity, SquaredError):
        return squared_error(flat[0], flat[2]), squared_error(flat[1], flat[2])
    before, after = (-problem.similarity.log_likelihood(v, flat[2]) for v in flat[:2])
    return before, after


def loss_at(posterior: Posterior, x: Array) -> Array:
    """Sum of squared differences or, for other similarities, minus the log-likelihood."""
    posterior.log_density(x, np.arange(len(x)))
    seen, targets = posterior.states.values, posterior.pairs.targets
    if isinstance(posterior.similarity, SquaredError):
        return squared_error(seen, targets)
    return -posterior.similarity.log_likelihood(seen, targets)
