"""Alignment of one block of pairs: the unit of work of a thread or a worker."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import image_kernels as kernels
from dreamwarp.align.chains import (
    MAX_CHAINS,
    MAX_SWEEPS,
    ChainOptions,
    Sampled,
    effective_size,
    sample_posterior,
)
from dreamwarp.align.images import MIN_PIXELS, Images, reduce_images
from dreamwarp.align.posterior import Array, PairBlock, Posterior, VertexCoordinates, build_grid
from dreamwarp.align.results import Alignments
from dreamwarp.align.search import Maximum, climb, find_maximum
from dreamwarp.align.similarity import Custom, Similarity, SquaredError, squared_error
from dreamwarp.align.surrogate import Surrogate
from dreamwarp.core import draws
from dreamwarp.core.cluster import run_on
from dreamwarp.core.compiled import limit_algebra
from dreamwarp.core.defaults import MAX_STEPS, SEARCH_TOLERANCE
from dreamwarp.space import Warp, WarpSpace

if TYPE_CHECKING:
    from distributed import Client

# Pairs per block: enough that Python's overhead is small, few enough that images, states and
# Hessians stay in the cache.
BLOCK = 64
# Memory for the Hessians of a block, which are large for fine tessellations.
HESSIAN_BYTES = 64 * 2**20
MAX_LEVELS = 4
# Pixels per cell, along every axis, above which finer images hardly change the mode: with 4 x 4
# cells and 128 x 128 pixels of colour, the search at half the resolution takes 19 ms instead of 47,
# and θ is off by 1.5 % instead of 1.2 %. For an estimate of noise, half of that is enough.
MAX_PER_CELL, MAX_PER_CELL_FOR_NOISE = 16, 8


@dataclass(frozen=True, eq=False)
class Problem:
    """The settings shared by all pairs."""

    coordinates: VertexCoordinates
    precision: Array  # (d, d), of the prior, for the coordinates x
    similarity: Similarity
    grids: list[kernels.PixelGrid]  # resolutions, from coarse to fine
    method: str = "map"
    max_steps: int = MAX_STEPS  # per stage of the search: each resolution and noise level
    tolerance: float = SEARCH_TOLERANCE  # predicted gain of a step that ends the search, in nats
    chains: ChainOptions = field(default_factory=ChainOptions)
    seed: int = 0


@dataclass(frozen=True, eq=False)
class PairedImages:
    """Pairs of images, given by indices."""

    sources: Images  # (n_images, channels, *spatial)
    targets: Images
    edges: NDArray[np.int64]  # (n, 2), indices of a source and of a target

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


# -- blocks


def split_pairs(n: int, dim: int, n_threads: int = 1) -> list[slice]:
    """Blocks of nearly equal size, the same number for every thread."""
    largest = max(1, min(BLOCK, HESSIAN_BYTES // (16 * dim * dim)))
    n_blocks = -(-n // (largest * n_threads)) * n_threads
    size = max(1, -(-n // max(1, n_blocks)))
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def map_blocks(
    function: Callable[..., Any],
    shared: Any,
    tasks: Sequence[tuple[Any, ...]],
    *,
    advance: Callable[[int], None],
    n_threads: int,
    client: Client | None = None,
    stop: threading.Event | None = None,
) -> list[Any]:
    """``function(shared, *task)`` of all tasks, on threads or on the workers of a cluster.

    ``advance`` is called with the length of each result. On an exception, ``stop`` is set.
    """
    results: Any
    if client is None:
        results = _run_on_threads(function, shared, tasks, n_threads, stop or threading.Event())
    else:
        results = run_on(client, function, shared, tasks)
    found: dict[int, Any] = {}
    with closing(results):
        for place, result in results:
            found[place] = result
            advance(len(result))
    return [found[place] for place in range(len(tasks))]


def _run_on_threads(
    function: Callable[..., Any],
    shared: Any,
    tasks: Sequence[tuple[Any, ...]],
    n_threads: int,
    stop: threading.Event,
) -> Generator[tuple[int, Any]]:
    """Index and result of each task, in the order of completion."""
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="dreamwarp-align")
    with limit_algebra(), pool:
        futures = {pool.submit(function, shared, *task): k for k, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


# -- resolutions


def pyramid(space: WarpSpace, shape: tuple[int, ...]) -> list[kernels.PixelGrid]:
    """Grids of an image shape and of coarser ones, each about half the size of the next.

    At most ``MAX_LEVELS``, not counting those with more than ``MAX_PER_CELL`` pixels per cell.
    """
    shapes = [shape]
    while sum(not _is_fine(each, space.cells, MAX_PER_CELL) for each in shapes) < MAX_LEVELS:
        half = tuple(-(-size // 2) for size in shapes[0])
        if min(half) < MIN_PIXELS:
            break
        shapes.insert(0, half)
    return [build_grid(space, level) for level in shapes]


def coarse_enough(
    grids: list[kernels.PixelGrid], cells: tuple[int, ...], per_cell: int = MAX_PER_CELL
) -> list[kernels.PixelGrid]:
    """Grids with at most ``per_cell`` pixels per cell along some axis; at least the coarsest."""
    return [grids[0], *(grid for grid in grids[1:] if not _is_fine(grid.shape, cells, per_cell))]


def _is_fine(shape: tuple[int, ...], cells: tuple[int, ...], per_cell: int) -> bool:
    """Whether an image has more than ``per_cell`` pixels per cell along every axis."""
    return all(n > per_cell * k for n, k in zip(shape, cells, strict=True))


def at_resolution(
    problem: Problem, sources: Images, targets: Images, grid: kernels.PixelGrid
) -> Posterior:
    """The posterior of pairs of images (n, channels, *spatial), reduced to a grid if needed."""
    n, n_channels, *shape = sources.shape
    if grid.shape != tuple(shape):
        sources, targets = (reduce_images(images, grid.shape) for images in (sources, targets))
    pixels = math.prod(grid.shape)
    pairs = PairBlock(
        sources.reshape(n, n_channels, pixels), targets.reshape(n, n_channels, pixels), grid
    )
    weight, similarity = math.prod(shape) / pixels, problem.similarity
    if isinstance(similarity, Custom):  # the user's function gets images, not lists of pixels
        similarity = replace(similarity, shape=grid.shape)
    return Posterior(problem.coordinates, problem.precision, pairs, similarity, weight=weight)


# -- alignment


def align_block(
    shared: tuple[Problem, PairedImages],
    block: slice,
    keep: bool = False,
    stop: threading.Event | None = None,
) -> Alignments:
    """Align a block of pairs; posterior draws are returned if ``keep``."""
    problem, pairs = shared
    (sources, targets), numbers = pairs.take(block), np.arange(block.start, block.stop)
    fine, found = search_block(problem, sources, targets)
    loss_before, all_pairs = loss_of_identity(fine), np.arange(len(sources))
    x, converged = found.x, found.converged
    diagnostics: dict[str, NDArray[Any]] = {"n_steps": found.n_steps}
    sampled: Sampled | None = None
    if problem.method == "laplace":
        first_draws = numbers * (MAX_CHAINS * MAX_SWEEPS)
        normals = draws.normals(
            problem.seed, first_draws, x.shape[1], stream=draws.Stream.ALIGNMENT, n_threads=1
        )
        x = Surrogate.measured(fine, x).unwhiten(normals, all_pairs)
    elif problem.method != "map":
        sampled = sample_posterior(
            problem.method, fine, x, problem.chains, seed=problem.seed, numbers=numbers,
            stop=stop or threading.Event(),
        )  # fmt: skip
        x = np.stack([chains[0, -1] for chains in sampled.draws])
        converged = sampled.r_hat <= problem.chains.r_hat
        ess = np.array([effective_size(chains) for chains in sampled.draws])
        diagnostics |= {
            "r_hat": sampled.r_hat, "ess": ess, "acceptance": sampled.acceptance,
            "n_sweeps": sampled.n_sweeps,
        }  # fmt: skip
    to_theta = problem.coordinates.to_theta
    if fine.pairs.grid.shape == sources.shape[2:]:
        diagnostics["log_posterior"] = fine.log_density(x, all_pairs)
        loss_after = _loss(fine.similarity, fine.states.values, fine.pairs.targets)
        # Equal at the identity, without rounding; fields too stiff to follow warp nothing.
        is_warped = x.any(axis=1) & np.isfinite(diagnostics["log_posterior"])
        loss_after = np.where(is_warped, loss_after, loss_before)
    else:  # modes only: samplers use full images
        loss_before, loss_after = _full_losses(problem, to_theta(x), sources, targets)
        x[loss_after > loss_before] = 0.0  # at full resolution too, no loss may increase
        loss_after = np.minimum(loss_after, loss_before)
        diagnostics["log_posterior"] = fine.log_density(x, all_pairs)
    kept = sampled if keep else None
    return Alignments(
        to_theta(x), loss_before, loss_after, converged,
        np.isfinite(diagnostics["log_posterior"]), diagnostics, problem.similarity,
        [to_theta(chains) for chains in kept.draws] if kept else [], kept.densities if kept else [],
    )  # fmt: skip


def search_block(
    problem: Problem, sources: Images, targets: Images, start: Array | None = None
) -> tuple[Posterior, Maximum]:
    """The posterior of a block at the finest resolution, and its modes.

    ``start`` (n, d): x near the modes. Default: a search from coarse to fine.
    """
    options: Any = {"max_steps": problem.max_steps, "smallest_gain": problem.tolerance}
    fine = at_resolution(problem, sources, targets, problem.grids[-1])
    if start is not None:
        all_pairs = np.arange(len(fine))
        density = fine.log_density(start, all_pairs)
        # Modes at the limit of stiffness may lie beyond it after conversion to θ and back.
        lost = np.isneginf(density)
        start = np.where(lost[:, None], 0.0, start)
        density[lost] = fine.log_density(start[lost], all_pairs[lost])
        return fine, climb(fine, start, density, all_pairs, **options)
    levels = [at_resolution(problem, sources, targets, grid) for grid in problem.grids[:-1]]
    return fine, find_maximum([*levels, fine], _excess(fine), **options)


def _excess(posterior: Posterior) -> Array:
    """Root mean square difference (n,) of images in units of σ; 1 for similarities without σ."""
    if not isinstance(posterior.similarity, SquaredError):
        return np.ones(len(posterior))
    size = posterior.pairs.sources[0].size
    return np.sqrt(loss_of_identity(posterior) / size) / posterior.similarity.sigma


def loss_of_identity(posterior: Posterior) -> Array:
    """Loss (n,) without a warp."""
    return _loss(posterior.similarity, posterior.pairs.sources, posterior.pairs.targets)


def _full_losses(
    problem: Problem, theta: Array, sources: Images, targets: Images
) -> tuple[Array, Array]:
    """Losses (n,) without and with the warps, at full resolution."""
    warped = Warp(problem.coordinates.space, theta).image(sources, n_threads=1)
    flat = [values.reshape(*values.shape[:2], -1) for values in (sources, warped, targets)]
    return _loss(problem.similarity, flat[0], flat[2]), _loss(problem.similarity, flat[1], flat[2])


def _loss(similarity: Similarity, values: Images, targets: Images) -> Array:
    """Sum of squared differences or, for other similarities, minus the log-likelihood."""
    if isinstance(similarity, SquaredError):
        return squared_error(values, targets)
    return -similarity.log_likelihood(values, targets)
