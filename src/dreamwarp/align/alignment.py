"""align_pairs: posterior modes and draws of warps between pairs of samples."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align import noise
from dreamwarp.align.block import (
    MAX_PER_CELL_FOR_NOISE,
    PairedImages,
    Problem,
    align_block,
    coarse_enough,
    map_blocks,
    pyramid,
    split_pairs,
)
from dreamwarp.align.chains import MAX_CHAINS, MOST_SWEEPS, ChainOptions
from dreamwarp.align.images import is_flat, scale_images
from dreamwarp.align.posterior import VertexCoordinates
from dreamwarp.align.prior import Prior, check_prior
from dreamwarp.align.results import Alignments
from dreamwarp.align.similarity import (
    SIMILARITIES,
    Custom,
    LikelihoodFn,
    MutualInformation,
    NormalizedCrossCorrelation,
    Similarity,
    SquaredError,
)
from dreamwarp.core import draws
from dreamwarp.core.compiled import thread_count
from dreamwarp.core.defaults import LEARNING_TOLERANCE, MAX_DRAWS, MAX_STEPS, SEARCH_TOLERANCE
from dreamwarp.core.progress import ProgressOption, silenced, track, without_callback
from dreamwarp.core.samples import as_array, spaced
from dreamwarp.core.validation import (
    check_choice,
    check_factor,
    check_integer,
    check_resolution,
    warn_of_fine_cells,
    warn_user,
)
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from distributed import Client

Method = Literal["map", "laplace", "metropolis", "hmc"]
METHODS = ("map", "laplace", "metropolis", "hmc")

# By default, posterior draws are kept if they need no more memory than this.
CHAIN_BYTES = 256 * 2**20


def align_pairs(
    space: WarpSpace,
    sources: ArrayLike,
    targets: ArrayLike,
    *,
    edges: ArrayLike | None = None,
    method: Method = "map",
    prior: Prior | None = None,
    sigma: float | Literal["auto"] = "auto",
    similarity: str | Similarity | LikelihoodFn = "ssd",
    seed: draws.Seed = 0,
    n_chains: int = 2,
    n_burn_in: int = 200,
    n_draws: int = 50,
    max_draws: int = MAX_DRAWS,
    r_hat: float = 1.05,
    keep_chains: bool | None = None,
    max_steps: int = MAX_STEPS,
    tolerance: float = SEARCH_TOLERANCE,
    progress: ProgressOption = None,
    n_threads: int | None = None,
    client: Client | None = None,
) -> Alignments:
    """Find warps T^θ for which source ∘ T^θ looks like target.

    The posterior is p(θ | source, target) ∝ p(target | source ∘ T^θ) p(θ), the paper's section
    "Estimating Transformations by Aligning Images".

    Parameters
    ----------
    space : WarpSpace
    sources, targets : (n, *spatial) or (n, channels, *spatial)
        Integers of 8 and 16 bits are divided by the largest number of their dtype, so that uint8
        becomes [0, 1]; wider ones by the largest value in both arrays.
    edges : (n, 2) of int, optional
        Pairs as indices of a source and a target, such as those of ``neighbor_pairs`` for
        ``align_pairs(space, X, X, edges=edges)``. Memory then grows with the number of images, not
        of pairs. Default: source k with target k.
    method : {"map", "laplace", "metropolis", "hmc"}
        ``"map"``: the posterior mode, by Levenberg-Marquardt from coarse to fine images, never
        worse than the identity. ``"laplace"``: a draw from a Gaussian approximation at the mode.
        ``"metropolis"``: a posterior draw by Metropolis-Hastings, the paper's method, after a
        mostly Hamiltonian burn-in. ``"hmc"``: a posterior draw by Hamiltonian Monte Carlo, faster.
    prior : Prior, optional
        Default: ``SmoothPrior(space)``.
    sigma : float or "auto"
        Standard deviation of the pixel noise, for ``"ssd"``; on the [0, 1] scale for integer
        images. ``"auto"`` estimates it from the pairs: see ``align.noise``.
    similarity : {"ssd", "ncc", "mi"}, object or callable
        Sum of squared differences, normalised cross-correlation (invariant to gain and offset),
        mutual information (any relation of intensities); for the last two, the effective
        fraction of independent pixels is estimated. Or an object with the methods of
        ``align.similarity.Similarity``, or a function ``(values, targets) -> (log_likelihood,
        gradient by values)`` of batches (n, channels, *spatial).
    seed : int or numpy.random.Generator
        The random numbers of pair k depend on the seed and k alone.
    n_chains, n_burn_in, n_draws, max_draws, r_hat
        For samplers: chains per pair, sweeps of burn-in, and draws per chain before the first test
        of R-hat. While R-hat is above ``r_hat``, the number of draws grows by half, up to
        ``max_draws``. Chains that converge slowly are adapted again and drop their earlier draws.
    keep_chains : bool, optional
        Whether to return all draws. Default: if they need no more than 256 MB.
    max_steps : int
        Largest number of steps per stage of the search. Each resolution and noise level is a stage.
    tolerance : float
        A search ends when a step is predicted to raise the log-posterior by less than this.
    progress : bool or callable, optional
        False for none, or a function called with (pairs done, pairs in total). Default: a progress
        bar on a terminal or in a notebook, occasional lines in a log.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.
    client : distributed.Client, optional
        A cluster to run on, with the same results.

    Examples
    --------
    >>> space = WarpSpace((4, 4))
    >>> digits = np.random.default_rng(0).random((2, 28, 28))
    >>> align_pairs(space, digits, digits, progress=False).theta.any()
    False
    """
    check_choice("method", method, METHODS)
    pairs = _check_pairs(space, sources, targets, edges)
    problem, calibrated = set_up(
        check_prior(space, prior), pairs.sources.shape, similarity, sigma, max_steps,
        method=method, tolerance=check_factor("tolerance", tolerance), seed=draws.as_key(seed),
        chains=_check_chains(n_chains, n_burn_in, n_draws, max_draws, r_hat),
    )  # fmt: skip
    if method == "map":  # draws need the likelihood of all pixels
        problem = replace(problem, grids=coarse_enough(problem.grids, space.cells))
    flat = is_flat(pairs.sources)
    flat_targets = flat if pairs.targets is pairs.sources else is_flat(pairs.targets)
    flat = flat[pairs.edges[:, 0]] | flat_targets[pairs.edges[:, 1]]
    with silenced(progress):
        if not calibrated:
            problem = calibrate_problem(problem, pairs, np.flatnonzero(~flat), progress, n_threads)
        keep = _decide_to_keep(keep_chains, problem, len(pairs))
        with track(len(pairs), "aligning", progress) as advance:
            found = _align_all(problem, pairs, advance, n_threads, keep=keep, client=client)
    found = replace(found, usable=found.usable & ~flat)
    _warn_of_failures(method, found)
    return found


def align_quietly(
    space: WarpSpace, sources: ArrayLike, targets: ArrayLike, **options: Any
) -> Alignments:
    """:func:`align_pairs` without a progress bar or RuntimeWarnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return align_pairs(space, sources, targets, progress=False, **options)


# -- the work


def set_up(
    prior: Prior,
    shape: tuple[int, ...],
    similarity: Any,
    sigma: Any,
    max_steps: int,
    **options: Any,
) -> tuple[Problem, bool]:
    """The problem for images of shape (n, channels, *spatial), and whether it is calibrated.

    ``options``: other attributes of the problem.
    """
    spatial = shape[2:]
    check_resolution("sources", shape, prior.space.cells)
    warn_of_fine_cells(shape, prior.space.cells)
    chosen, calibrated = _choose_similarity(similarity, sigma, spatial)
    coordinates = VertexCoordinates(prior.space)
    problem = Problem(
        coordinates, coordinates.precision(prior.precision), chosen,
        pyramid(prior.space, spatial), max_steps=check_integer("max_steps", max_steps, 1),
        **options,
    )  # fmt: skip
    return problem, calibrated


def _align_all(
    problem: Problem,
    pairs: PairedImages,
    advance: Callable[[int], None],
    n_threads: int | None,
    *,
    keep: bool = False,
    client: Client | None = None,
) -> Alignments:
    """Align all pairs, block by block; posterior draws are returned if ``keep``."""
    n_threads = thread_count(n_threads)
    blocks = split_pairs(len(pairs), problem.coordinates.dim, n_threads if client is None else 1)
    stop = threading.Event()
    found = map_blocks(
        partial(align_block, stop=stop) if client is None else align_block, (problem, pairs),
        [(block, keep) for block in blocks], advance=advance, n_threads=n_threads, client=client,
        stop=stop,
    )  # fmt: skip
    if found:
        return Alignments.join(found)
    no_numbers, no_flags = np.empty(0), np.empty(0, bool)
    theta = np.empty((0, problem.coordinates.dim))
    return Alignments(theta, no_numbers, no_numbers, no_flags, no_flags, {}, problem.similarity)


def calibrate_problem(
    problem: Problem,
    pairs: PairedImages,
    candidates: NDArray[np.int64],
    progress: ProgressOption,
    n_threads: int | None,
    *,
    n_rounds: int = noise.N_ROUNDS,
) -> Problem:
    """The problem with its similarity calibrated on some of the candidates; see ``align.noise``.

    ``n_rounds=0``: only the first guess.
    """
    n_most = noise.count_pairs(math.prod(pairs.sources.shape[1:]))
    sources, targets = pairs.take(candidates[spaced(len(candidates), n_most)])
    if not len(sources):
        return problem
    similarity = noise.first_guess(problem.similarity, sources, targets)
    space, chosen = problem.coordinates.space, PairedImages.in_order(sources, targets)
    grids = coarse_enough(problem.grids, space.cells, MAX_PER_CELL_FOR_NOISE)
    trial = replace(problem, method="map", grids=grids, tolerance=LEARNING_TOLERANCE)
    shown = without_callback(progress)
    with track(n_rounds * len(sources), "estimating noise", shown) as advance:
        for _ in range(n_rounds):
            trial = replace(trial, similarity=similarity)
            theta = _align_all(trial, chosen, advance, n_threads).theta
            warped = Warp(space, theta).image(sources, n_threads=n_threads)
            similarity = noise.calibrate(similarity, warped, sources, targets)
    return replace(problem, similarity=similarity)


def _warn_of_failures(method: str, found: Alignments) -> None:
    n = len(found)
    if not found.converged.all():
        remedy = "max_draws" if method in ("metropolis", "hmc") else "max_steps"
        warn_user(
            f"{(~found.converged).sum()} of {n} alignments have not converged: see `converged` of "
            f"the result. A larger `{remedy}` may help.",
            RuntimeWarning,
        )
    if not found.usable.all():
        warn_user(
            f"{n - found.usable.sum()} of {n} pairs could not be aligned: see `usable` of the "
            "result.",
            RuntimeWarning,
        )


# -- checks


def _check_pairs(
    space: WarpSpace, sources: ArrayLike, targets: ArrayLike, edges: ArrayLike | None
) -> PairedImages:
    arrays = as_array("sources", sources), as_array("targets", targets)
    first = scale_images(space, "sources", *arrays)
    second = first if targets is sources else scale_images(space, "targets", *arrays[::-1])
    if first.shape[1:] != second.shape[1:] or (edges is None and len(first) != len(second)):
        raise ValueError(
            f"`sources` and `targets` must have the same shape, got {arrays[0].shape} and "
            f"{arrays[1].shape}. Resample one to the size of the other."
        )
    if edges is None:
        return PairedImages.in_order(first, second)
    return PairedImages(first, second, _check_edges(edges, len(first), len(second)))


def _check_edges(edges: ArrayLike, n_sources: int, n_targets: int) -> NDArray[np.int64]:
    """Indices (n, 2) of sources and targets."""
    found = np.asarray(edges)
    if found.ndim != 2 or found.shape[1] != 2 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(
            "`edges` must be integers of shape (n, 2), indices of a source and a target, got dtype "
            f"{found.dtype} and shape {found.shape}. Use `neighbor_pairs`."
        )
    if found.size and (found.min() < 0 or (found.max(axis=0) >= [n_sources, n_targets]).any()):
        raise ValueError(
            f"`edges` must have indices of sources, 0 to {n_sources - 1}, and of targets, 0 to "
            f"{n_targets - 1}, got {found.min()} to {found.max()}."
        )
    return found.astype(np.int64)


def _check_chains(
    n_chains: int, n_burn_in: int, n_draws: int, max_draws: int, r_hat: float
) -> ChainOptions:
    n_chains = check_integer("n_chains", n_chains, 1)
    n_draws = check_integer("n_draws", n_draws, 4)
    n_burn_in = check_integer("n_burn_in", n_burn_in, 0)
    max_draws = max(check_integer("max_draws", max_draws, 1), n_draws)
    if n_chains > MAX_CHAINS:
        raise ValueError(f"`n_chains` must be at most {MAX_CHAINS}, got {n_chains}.")
    if n_burn_in + max_draws > MOST_SWEEPS:
        raise ValueError(
            f"`n_burn_in` plus `max_draws` must be at most {MOST_SWEEPS}, got {n_burn_in} plus "
            f"{max_draws}. Use more chains, or fewer draws."
        )
    if not isinstance(r_hat, Real) or not float(r_hat) > 1:
        raise ValueError(f"`r_hat` must be a number above 1, such as 1.05, got {r_hat!r}.")
    return ChainOptions(n_chains, n_burn_in, n_draws, max_draws, float(r_hat))


def _choose_similarity(
    similarity: Any, sigma: Any, shape: tuple[int, ...]
) -> tuple[Similarity, bool]:
    """The similarity, and whether it is calibrated already."""
    noise_level = noise.check_sigma(sigma, similarity)
    if isinstance(similarity, str):
        check_choice("similarity", similarity, SIMILARITIES)
        if similarity == "ssd":
            if noise_level == "auto":
                return SquaredError(1.0), False
            return SquaredError(noise_level), True
        return NormalizedCrossCorrelation() if similarity == "ncc" else MutualInformation(), False
    if hasattr(similarity, "log_likelihood") and hasattr(similarity, "derivatives"):
        return similarity, True
    if callable(similarity):
        return Custom(similarity, shape), True
    raise TypeError(
        "`similarity` must be one of 'ssd', 'ncc', 'mi', an object with `log_likelihood` and "
        f"`derivatives`, or a function, got {similarity!r}."
    )


def _decide_to_keep(keep: bool | None, problem: Problem, n_pairs: int) -> bool:
    if problem.method not in ("metropolis", "hmc"):
        return False
    if keep is not None:
        return bool(keep)
    per_pair = 8 * problem.chains.n_chains * problem.chains.max_draws * problem.coordinates.dim
    return n_pairs * per_pair <= CHAIN_BYTES
