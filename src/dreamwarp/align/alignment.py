"""align_pairs: posterior modes and draws of the warps between pairs of samples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align import noise
from dreamwarp.align.block import (
    MAX_PER_CELL_FOR_NOISE,
    Aligned,
    PairedImages,
    Problem,
    align_some,
    coarse_enough,
    pyramid,
    split_pairs,
)
from dreamwarp.align.chains import MAX_CHAINS, Chains
from dreamwarp.align.distributed_blocks import align_all_on
from dreamwarp.align.posterior import Coordinates
from dreamwarp.align.prior import Prior, SmoothPrior
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
from dreamwarp.core.defaults import MAX_DRAWS, MAX_STEPS
from dreamwarp.core.progress import ProgressOption, silenced, track
from dreamwarp.core.samples import add_channels, as_array, check_finite, check_layout
from dreamwarp.core.validation import (
    check_choice,
    check_resolution,
    check_whole,
    warn_of_fine_cells,
    warn_user,
)
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Images = NDArray[np.float32]
Method = Literal["map", "laplace", "metropolis", "hmc"]
METHODS = ("map", "laplace", "metropolis", "hmc")

# Images whose values differ by less than this share of their size have no structure to align.
FLAT = 1e-6
# Posterior draws are kept unless told otherwise if they take no more memory than this.
CHAIN_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Alignments:
    """Warps between pairs of samples.

    Attributes
    ----------
    theta : (n, d)
        Of each pair: the source warped by θ looks like the target. The other way round it is -θ.
    loss_before, loss_after : (n,)
        Sum of squared differences to the target, without and with the warp. For other similarities
        than ``"ssd"``, minus the log-likelihood.
    converged : (n,)
        Whether the search ended before its last step or, for samplers, whether chains have mixed.
    usable : (n,)
        False for pairs that can't be aligned: one of the two has no structure. A posterior draw
        that fits worse than the identity is usable: without such draws, those left would not be of
        the posterior.
    diagnostics : dict of str to (n,)
        ``n_steps`` of the search and ``log_posterior`` (up to a constant); for samplers also
        ``r_hat`` (the largest of all parameters), ``ess`` (the smallest effective number of
        draws), ``acceptance`` and ``n_sweeps``.
    similarity : Similarity
        The one used, calibrated: passed on as ``similarity``, it gives the same alignments.
    chains : list of (n_chains, n_draws, d)
        Posterior draws of each pair's θ, burn-in left out; empty if not kept.
    log_posteriors : list of (n_chains, n_draws)
        Traces of their log-posterior.
    """

    theta: Array
    loss_before: Array
    loss_after: Array
    converged: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    diagnostics: dict[str, NDArray[Any]]
    similarity: Similarity
    chains: list[Array] = field(default_factory=list, repr=False)
    log_posteriors: list[Array] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.theta)

    def plot(self) -> Figure:
        """Losses of pairs before and after or, where chains were kept, their traces."""
        from dreamwarp.report.notebooks import plot_alignments

        return plot_alignments(self)

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_alignments

        return summarize_alignments(self)

    @property
    def sigma(self) -> float | None:
        """Standard deviation of a pixel's noise; None for similarities without."""
        return self.similarity.sigma if isinstance(self.similarity, SquaredError) else None


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
        Integers of 8 and 16 bits are divided by the largest number of their type, so that uint8
        becomes [0, 1]; wider ones, whose range images hardly use, by the largest in both.
    edges : (n, 2) of int, optional
        Pairs as numbers of a source and a target, such as ``neighbor_pairs`` gives for
        ``align_pairs(space, X, X, edges=edges)``. Memory then grows with the images, not with the
        pairs. Default: source k with target k.
    method : {"map", "laplace", "metropolis", "hmc"}
        ``"map"``: the posterior's mode, by Levenberg-Marquardt from coarse to fine images, never
        worse than the identity. ``"laplace"``: a draw from the Gaussian that fits the posterior at
        its mode. ``"metropolis"``: a posterior draw by the paper's sampler, with proposals for all
        vertices together added to its local ones, after a burn-in that is mostly Hamiltonian.
        ``"hmc"``: a posterior draw by Hamiltonian Monte Carlo, faster.
    prior : Prior, optional
        Default: ``SmoothPrior(space)``.
    sigma : float or "auto"
        Standard deviation of the noise of a pixel, for ``"ssd"``; on the [0, 1] scale for integer
        images. ``"auto"`` estimates it from the pairs: see ``align.noise``.
    similarity : {"ssd", "ncc", "mi"}, object or callable
        Sum of squared differences, normalised cross-correlation (any gain and offset), mutual
        information (any relation of intensities), both with the share of pixels that count
        estimated as ``sigma="auto"`` estimates σ; an object with the methods of
        ``align.similarity.Similarity``, or a function ``(values, targets) -> (log_likelihood,
        gradient by values)`` of batches (n, channels, *spatial).
    seed : int or numpy.random.Generator
        The random numbers of pair k depend on the seed and k alone.
    n_chains, n_burn_in, n_draws, max_draws, r_hat
        For samplers: chains per pair, sweeps of each to adapt and forget where it started, draws
        kept before its R-hat is first looked at. Until that is at most ``r_hat``, there are half
        as many draws again, up to ``max_draws``. Chains that take long adapt to what they have
        seen, and drop the draws from before that.
    keep_chains : bool, optional
        Whether to return all draws. Default: if they can take no more than 256 MB.
    max_steps : int
        Of the search, per resolution.
    progress : bool or callable, optional
        False: none. A function of (pairs done, pairs in all) is called. Default: a bar on a
        terminal or in a notebook, now and then a line in a log.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.
    client : distributed.Client, optional
        Lets the workers of a cluster do the work, with the same results.

    Returns
    -------
    Alignments

    Examples
    --------
    >>> space = WarpSpace((4, 4))
    >>> digits = np.random.default_rng(0).random((2, 28, 28))
    >>> align_pairs(space, digits, digits, progress=False).theta.any()
    False
    """
    check_choice("method", method, METHODS)
    pairs = _check_pairs(space, sources, targets, edges)
    check_resolution("sources", pairs.sources.shape, space.cells)
    warn_of_fine_cells(pairs.sources.shape, space.cells)
    prior = _check_prior(space, prior)
    options = _check_chains(n_chains, n_burn_in, n_draws, max_draws, r_hat)
    coordinates, shape = Coordinates(space), pairs.sources.shape[2:]
    chosen, calibrated = choose_similarity(similarity, sigma, shape)
    grids = pyramid(coordinates, shape)
    problem = Problem(
        coordinates, coordinates.precision(prior.precision), chosen,
        coarse_enough(grids, space.cells) if method == "map" else grids, method,
        check_count("max_steps", max_steps), options, draws.as_key(seed),
    )  # fmt: skip
    flat = is_flat(pairs.sources)[pairs.edges[:, 0]] | is_flat(pairs.targets)[pairs.edges[:, 1]]
    with silenced(progress):
        if not calibrated:
            some = choose_some(np.flatnonzero(~flat))
            problem = calibrate(problem, *pairs.take(some), progress, n_threads)
        keep = _decide_to_keep(keep_chains, problem, len(pairs))
        work = problem, pairs, keep, progress
        blocks = _align_all(*work, n_threads) if client is None else align_all_on(client, *work)
    return _join(problem, blocks, flat)


# -- the work


def _align_all(
    problem: Problem,
    pairs: PairedImages,
    keep: bool,
    progress: ProgressOption,
    n_threads: int | None,
) -> list[Aligned]:
    with track(len(pairs), "aligning", progress) as advance:
        return _align_blocks(problem, pairs, keep, advance, n_threads)


def _align_blocks(
    problem: Problem,
    pairs: PairedImages,
    keep: bool,
    advance: Callable[[int], None],
    n_threads: int | None,
) -> list[Aligned]:
    n_threads = thread_count(n_threads)
    blocks = split_pairs(len(pairs), problem.coordinates.dim, n_threads)
    stop = threading.Event()

    def align(block: slice) -> Aligned:
        return align_some(problem, pairs, block, keep, stop)

    return list(_map_blocks(align, blocks, advance, stop, n_threads))


def _map_blocks(
    align: Any, blocks: list[slice], advance: Any, stop: threading.Event, n_threads: int
) -> Iterator[Aligned]:
    """Results of all blocks, in order. An interruption stops the others at once."""
    with ThreadPoolExecutor(n_threads, thread_name_prefix="dreamwarp-align") as pool:
        futures: list[Future[Aligned]] = [pool.submit(align, block) for block in blocks]
        sizes = {
            future: block.stop - block.start for future, block in zip(futures, blocks, strict=True)
        }
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    advance(sizes[future])
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        for future in futures:
            yield future.result()


def choose_some(candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs to calibrate a similarity by, spread evenly over those that have structure (n,)."""
    spaced = np.linspace(0, len(candidates) - 1, min(noise.N_PAIRS, len(candidates)))
    return candidates[spaced.round().astype(np.int64)]


def calibrate(
    problem: Problem,
    sources: Images,
    targets: Images,
    progress: ProgressOption,
    n_threads: int | None,
) -> Problem:
    """The problem with its similarity calibrated by ``align.noise`` on some pairs."""
    if not len(sources):
        return problem
    similarity = noise.first_guess(problem.similarity, sources, targets)
    cells = problem.coordinates.space.cells
    grids = coarse_enough(problem.grids, cells, MAX_PER_CELL_FOR_NOISE)
    shown = None if progress is None or progress is True else False  # a callable counts pairs
    with track(noise.N_ROUNDS * len(sources), "estimating noise", shown) as advance:
        for _ in range(noise.N_ROUNDS):
            trial = replace(problem, method="map", similarity=similarity, grids=grids)
            pairs = PairedImages.in_order(sources, targets)
            blocks = _align_blocks(trial, pairs, False, advance, n_threads)
            theta = np.concatenate([block.theta for block in blocks])
            seen = Warp(problem.coordinates.space, theta).image(sources)
            similarity = noise.calibrate(similarity, seen, sources, targets)
    return replace(problem, similarity=similarity)


def _join(problem: Problem, blocks: list[Aligned], flat: NDArray[np.bool_]) -> Alignments:
    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(block, name) for block in blocks])

    if not blocks:
        empty = np.empty(0)
        theta = np.empty((0, problem.coordinates.dim))
        return Alignments(theta, empty, empty, flat, flat, {}, problem.similarity)
    diagnostics = {
        name: np.concatenate([block.diagnostics[name] for block in blocks])
        for name in blocks[0].diagnostics
    }
    before, after, converged = join("loss_before"), join("loss_after"), join("converged")
    usable = ~flat & np.isfinite(diagnostics["log_posterior"])
    warn_of_failures(problem.method, converged, usable)
    return Alignments(
        join("theta"), before, after, converged, usable, diagnostics, problem.similarity,
        [chain for block in blocks for chain in block.chains],
        [trace for block in blocks for trace in block.densities],
    )  # fmt: skip


def warn_of_failures(method: str, converged: NDArray[np.bool_], usable: NDArray[np.bool_]) -> None:
    """Warn if alignments have not converged or pairs could not be aligned."""
    n = len(usable)
    if not converged.all():
        remedy = "max_draws" if method in ("metropolis", "hmc") else "max_steps"
        warn_user(
            f"{(~converged).sum()} of {n} alignments have not converged: see `converged` of the "
            f"result. A larger `{remedy}` may help.",
            RuntimeWarning,
        )
    if not usable.all():
        warn_user(
            f"{n - usable.sum()} of {n} pairs could not be aligned: see `usable` of the result.",
            RuntimeWarning,
        )


# -- checks


def scale_images(space: WarpSpace, name: str, images: NDArray[Any]) -> Images:
    """As float32 (n, channels, *spatial), on the [0, 1] scale for integers."""
    values = _as_images(space, name, images)
    if images.dtype.kind in "iu":
        values /= np.float32(_full_scale(images, (images,)))
    return values


def _check_pairs(
    space: WarpSpace, sources: ArrayLike, targets: ArrayLike, edges: ArrayLike | None
) -> PairedImages:
    """Images as float32 (n, channels, *spatial), on the [0, 1] scale for integers."""
    arrays = as_array("sources", sources), as_array("targets", targets)
    if edges is not None and targets is sources:
        images = scale_images(space, "sources", arrays[0])
        return PairedImages(images, images, _check_edges(edges, len(images), len(images)))
    found = [_as_images(space, "sources", arrays[0]), _as_images(space, "targets", arrays[1])]
    for values, array in zip(found, arrays, strict=True):
        if array.dtype.kind in "iu":
            values /= np.float32(_full_scale(array, arrays))
    if found[0].shape[1:] != found[1].shape[1:] or (
        edges is None and len(arrays[0]) != len(arrays[1])
    ):
        raise ValueError(
            f"`sources` and `targets` must have the same shape, got {np.shape(sources)} and "
            f"{np.shape(targets)}. Resample one to the size of the other."
        )
    if edges is None:
        return PairedImages.in_order(found[0], found[1])
    return PairedImages(found[0], found[1], _check_edges(edges, len(found[0]), len(found[1])))


def _check_edges(edges: ArrayLike, n_sources: int, n_targets: int) -> NDArray[np.int64]:
    """Numbers (n, 2) of a source and a target each."""
    found = np.asarray(edges)
    if found.ndim != 2 or found.shape[1] != 2 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(
            "`edges` must be whole numbers of shape (n, 2), a source and a target each, got dtype "
            f"{found.dtype} and shape {found.shape}. `neighbor_pairs` makes them."
        )
    if found.size and (found.min() < 0 or (found.max(axis=0) >= [n_sources, n_targets]).any()):
        raise ValueError(
            f"`edges` must have numbers of sources, 0 to {n_sources - 1}, and of targets, 0 to "
            f"{n_targets - 1}, got {found.min()} to {found.max()}."
        )
    return found.astype(np.int64)


def _full_scale(array: NDArray[Any], both: tuple[NDArray[Any], ...]) -> float:
    """What an array of integers is divided by."""
    if array.dtype.itemsize <= 2:
        return float(np.iinfo(array.dtype).max)
    largest = max(float(np.abs(some.astype(np.float64)).max(initial=0.0)) for some in both)
    return largest or 1.0


def _as_images(space: WarpSpace, name: str, array: NDArray[Any]) -> Images:
    check_layout(name, array.shape, space.ndim)
    with np.errstate(over="ignore"):  # the check below says so
        values = np.ascontiguousarray(array, dtype=np.float32)
    if not values.flags.writeable:
        values = values.copy()  # numba would compile other kernels for read-only arrays
    check_finite(name, values)
    return add_channels(values, space.ndim)


def _check_prior(space: WarpSpace, prior: Prior | None) -> Prior:
    if prior is None:
        return SmoothPrior(space)
    if not isinstance(prior, Prior):
        raise TypeError(
            f"`prior` must be a SmoothPrior, a GMRFPrior or another Prior, got "
            f"{type(prior).__name__}."
        )
    if prior.space != space:
        raise ValueError(
            f"`prior` must be over the space that is aligned in, {space!r}, got one over "
            f"{prior.space!r}."
        )
    return prior


def _check_chains(
    n_chains: int, n_burn_in: int, n_draws: int, max_draws: int, r_hat: float
) -> Chains:
    n_chains = check_count("n_chains", n_chains)
    n_draws = check_count("n_draws", n_draws, lowest=4)
    n_burn_in = check_count("n_burn_in", n_burn_in, lowest=0)
    max_draws = max(check_count("max_draws", max_draws), n_draws)
    if n_chains > MAX_CHAINS:
        raise ValueError(f"`n_chains` must be at most {MAX_CHAINS}, got {n_chains}.")
    if not isinstance(r_hat, Real) or not float(r_hat) > 1:
        raise ValueError(f"`r_hat` must be a number above 1, such as 1.05, got {r_hat!r}.")
    return Chains(n_chains, n_burn_in, n_draws, max_draws, float(r_hat))


def check_count(name: str, value: int, lowest: int = 1) -> int:
    """A whole number of at least ``lowest``."""
    return check_whole(name, value, lowest)


def choose_similarity(
    similarity: Any, sigma: Any, shape: tuple[int, ...]
) -> tuple[Similarity, bool]:
    """The similarity, and whether it needs no calibration."""
    noise_level = _check_sigma(sigma)
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


def _check_sigma(sigma: Any) -> float | Literal["auto"]:
    if isinstance(sigma, str) and sigma == "auto":
        return "auto"
    if not isinstance(sigma, Real) or isinstance(sigma, bool) or not 0 < float(sigma) < np.inf:
        raise ValueError(
            f"`sigma` must be a positive number or 'auto', got {sigma!r}. It is the standard "
            "deviation of a pixel's noise."
        )
    return float(sigma)


def is_flat(images: Images) -> NDArray[np.bool_]:
    """Which of the images (n, channels, *spatial) are constant."""
    axes = tuple(range(1, images.ndim))
    low, high = images.min(axis=axes), images.max(axis=axes)
    return high - low <= FLAT * np.maximum(np.abs(low), np.abs(high))


def _decide_to_keep(keep: bool | None, problem: Problem, n_pairs: int) -> bool:
    if problem.method not in ("metropolis", "hmc"):
        return False
    if keep is not None:
        return bool(keep)
    per_pair = 8 * problem.chains.n_chains * problem.chains.max_draws * problem.coordinates.dim
    return n_pairs * per_pair <= CHAIN_BYTES
