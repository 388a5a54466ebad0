"""Covariances of warps by empirical Bayes: those under which the pairs themselves are likeliest.

A pair shows its warp only in part: nothing of a warp within flat regions, little of one along an
edge. The mode of its posterior is therefore too small, and a draw from it mostly prior. The
covariance that maximises the marginal likelihood of all pairs errs neither way. It is found by
expectation maximisation, with posteriors by Laplace's approximation (``align.evidence``):

    pool       S   = (Σ_i E[u uᵀ] + ν₀ I) / (n + ν₀)        over all pairs i, u as in the evidence
    class y    S_y = (Σ_i E[u uᵀ] + ν S) / (n_y + ν)        over the pairs of y
    noise      σ²  = κ E[Σ (source ∘ T - target)²] / m      m numbers per image

The prior counts as ν₀ = r pairs, one per component, and settles what no pair shows, as in a blank
margin. The pool counts as ν pairs, which is chosen by the marginal likelihood of held-out pairs.
κ, the number of pixels that err together
(``align.noise``), is measured in the first rounds and then held: with it fixed, every step raises
one and the same likelihood, so that σ and S settle. If both followed the residuals, each round
would fit closer than the last.

The pool is found first, from some of the pairs, which are aligned again in every round, since
where a likelihood is approximated depends on the prior. Then all pairs are aligned, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import noise
from dreamwarp.align.evidence import Array, Evidence, EvidenceFinder, Integers, spread_evenly
from dreamwarp.align.similarity import SquaredError
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from distributed import Client

# Pairs by which the pool and the noise are found.
N_FIRST = 300
# Rounds of aligning them again, at most, and the relative change of displacement that ends them.
MAX_ROUNDS, SETTLED = 15, 0.01
# Rounds in which κ is measured: before the third, the prior is still far off, and what it leaves
# over comes in larger patches than noise does.
PATCH_ROUNDS = 3
# Largest factor on displacements by which the next round is anticipated.
LARGEST_LEAP = 1.3
# Steps of expectation maximisation between alignments.
N_STEPS = 8
# Steps for all pairs, which start at the pool of some, and for a class, which starts at the pool.
N_POOL_STEPS, N_CLASS_STEPS = 4, 4
# Steps for a class where only ν is at stake.
N_TRIAL_STEPS = 1
# Pairs that the pool counts as, relative to the number of components.
POOL_PAIRS = (0.3, 1.0, 4.0, 16.0)
# Parts that samples are divided into to hold some out, and pairs that are used for that, at most.
N_FOLDS, MAX_HELD_OUT = 2, 2000


@dataclass(frozen=True)
class Round:
    """One alignment of some pairs, and the estimate that follows from it.

    Attributes
    ----------
    displacement : float
        Root mean square displacement of warps of the pool, as a share of the domain.
    sigma : float or None
        Noise of a pixel; None for similarities without.
    log_marginal : float
        Mean marginal log-likelihood of a pair, up to a constant.
    """

    displacement: float
    sigma: float | None
    log_marginal: float


@dataclass(frozen=True, eq=False)
class EmpiricalBayes:
    """Posteriors of pairs under covariances learned from them.

    Attributes
    ----------
    evidence : Evidence
    means : (n, r)
        Posterior means of u.
    spreads : (n, r, r), float32
        Posterior covariances.
    pool : (r, r)
        S.
    pool_pairs : float
        ν.
    sigma : float or None
    rounds : tuple of Round
    held_out : dict of float to float
        Mean marginal log-likelihood of held-out pairs by ν, relative to the pool's; empty where
        nothing could be held out.
    """

    evidence: Evidence
    means: Array
    spreads: NDArray[np.float32]
    pool: Array
    pool_pairs: float
    sigma: float | None
    rounds: tuple[Round, ...]
    held_out: dict[float, float]


def learn(
    finder: EvidenceFinder,
    edges: Integers,
    codes: Integers,
    *,
    start: Array | None = None,
    fixed_sigma: bool,
    progress: ProgressOption = None,
    n_threads: int | None = None,
    client: Client | None = None,
) -> EmpiricalBayes:
    """Covariances of the pool and of every class, from pairs ``edges`` (n, 2) of classes (n,).

    The search begins at the θ of ``start`` (n, d), if given. ``fixed_sigma`` keeps the noise that
    the finder has; so do similarities without one. A
    ``client`` has a cluster align all pairs; the first few, which settle the noise, are aligned
    here.
    """
    with track(len(edges), "aligning", progress) as advance:
        first = spread_evenly(codes, N_FIRST)
        near = None if start is None else start[first]
        pool, sigma, rounds = find_pool(finder, edges[first], near, fixed_sigma, n_threads)
        evidence = finder.find(
            edges, pool, sigma=sigma, start=start, advance=advance, n_threads=n_threads,
            client=client,
        )  # fmt: skip
    pool = fit_pool(evidence, pool, n_threads)
    pool_pairs, held_out = choose_pool_pairs(evidence, edges, codes, pool, n_threads)
    means = np.empty((len(edges), len(pool)))
    spreads = np.empty((len(edges), *pool.shape), np.float32)
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        own = fit_class(evidence, mine, pool, pool_pairs, n_threads)
        means[mine] = evidence.condition(own, mine, spreads=spreads, n_threads=n_threads).means
    return EmpiricalBayes(evidence, means, spreads, pool, pool_pairs, sigma, rounds, held_out)


# -- the pool and the noise


def find_pool(
    finder: EvidenceFinder,
    edges: Integers,
    theta: Array | None,
    fixed_sigma: bool,
    n_threads: int | None,
) -> tuple[Array, float | None, tuple[Round, ...]]:
    """The covariance (r, r) of all pairs and the noise, from a few of them: S, σ, how it went.

    The search begins at θ (n, d), if given.
    """
    similarity = finder.problem.similarity
    sigma = similarity.sigma if isinstance(similarity, SquaredError) else None
    pool, patch = np.eye(finder.frame.rank), None
    rounds: list[Round] = []
    while len(rounds) < MAX_ROUNDS:
        evidence = finder.find(edges, pool, sigma=sigma, start=theta, n_threads=n_threads)
        theta = evidence.theta
        if sigma is not None and not fixed_sigma and len(rounds) < PATCH_ROUNDS:
            patch = measure_patch(finder, edges, theta)
        pool, sigma, log_marginal = maximise(finder, evidence, pool, sigma, patch, n_threads)
        rounds.append(Round(finder.frame.displacement(pool), sigma, log_marginal))
        if len(rounds) > 1:
            change = rounds[-1].displacement / rounds[-2].displacement
            if len(rounds) > PATCH_ROUNDS and abs(change - 1.0) < SETTLED:
                break
            # Rounds close about half of the gap each: as far again saves half of them.
            pool = pool * np.clip(change, 1.0 / LARGEST_LEAP, LARGEST_LEAP) ** 2
    return pool, sigma, tuple(rounds)


def measure_patch(finder: EvidenceFinder, edges: Integers, theta: Array) -> float:
    """κ of what aligned pairs leave over."""
    images = finder.images
    seen = Warp(finder.frame.space, theta).image(images[edges[:, 0]])
    return noise.patch_size(seen - images[edges[:, 1]], finder.frame.space.ndim)


def maximise(
    finder: EvidenceFinder,
    evidence: Evidence,
    pool: Array,
    sigma: float | None,
    patch: float | None,
    n_threads: int | None,
) -> tuple[Array, float | None, float]:
    """S, σ and the mean log-marginal, by expectation maximisation with the evidence as it is."""
    n, rank = len(evidence), len(pool)
    weight = 1.0  # of the evidence: σ² then / σ² now
    log_marginal = 0.0
    for _ in range(N_STEPS):
        found = evidence.condition(pool, weight=weight, n_threads=n_threads)
        log_marginal = float(np.mean(found.log_marginals + weight * evidence.constants))
        if sigma is not None and patch is not None:
            # E[c + bᵀu - uᵀHu/2], summed over pairs; its parts follow from A m = w b, A = S⁻¹ + wH.
            inside = np.einsum("nr,nr->", evidence.linear, found.means)
            outside = np.trace(np.linalg.solve(pool, found.moment)) - n * rank
            likelihood = evidence.constants.sum() + 0.5 * (inside + outside / weight)
            squares = -2.0 * sigma**2 * likelihood / n
            weight = sigma**2 / max(patch * squares / finder.n_values, 1e-4 * sigma**2)
        pool = shrink_to_prior(found.moment, n)
    if sigma is None:
        return pool, None, log_marginal
    sigma = float(sigma / np.sqrt(weight))
    if patch is not None:
        log_marginal -= finder.n_values / patch * np.log(sigma)
    return pool, sigma, log_marginal


def shrink_to_prior(moment: Array, n_pairs: int) -> Array:
    """S from the sum of E[u uᵀ] over so many pairs."""
    rank = len(moment)
    return (moment + rank * np.eye(rank)) / (n_pairs + rank)


def fit_pool(
    evidence: Evidence, pool: Array, n_threads: int | None, n_steps: int = N_POOL_STEPS
) -> Array:
    """S of all pairs, from where it was found for some."""
    for _ in range(n_steps):
        moment = evidence.condition(pool, n_threads=n_threads).moment
        pool = shrink_to_prior(moment, len(evidence))
    return pool


# -- classes


def fit_class(
    evidence: Evidence,
    chosen: Integers,
    pool: Array,
    pool_pairs: float,
    n_threads: int | None,
    n_steps: int = N_CLASS_STEPS,
) -> Array:
    """S_y from the chosen pairs; the pool, if there are none."""
    own = pool
    for _ in range(n_steps if len(chosen) else 0):
        moment = evidence.condition(own, chosen, n_threads=n_threads).moment
        own = (moment + pool_pairs * pool) / (len(chosen) + pool_pairs)
    return own


def choose_pool_pairs(
    evidence: Evidence,
    edges: Integers,
    codes: Integers,
    pool: Array,
    n_threads: int | None,
) -> tuple[float, dict[float, float]]:
    """ν under which held-out pairs are likeliest, and what each is worth against the pool alone.

    Samples are held out, not pairs: a pair is tested when both its samples are held out, and
    learned from when neither is. The largest ν, where nothing can be held out.
    """
    rank = len(pool)
    candidates = [rank * share for share in POOL_PAIRS]
    if len(np.unique(codes)) < 2:
        return candidates[0], {}
    few = spread_evenly(codes, MAX_HELD_OUT)
    scores = np.zeros(len(candidates))
    n_tested = 0
    for train, test in split_by_sample(edges[few], N_FOLDS):
        train, test = few[train], few[test]
        if not len(train) or not len(test):
            continue
        without = fit_pool(evidence.only(train), pool, n_threads)
        for code in np.unique(codes[test]):
            mine, asked = train[codes[train] == code], test[codes[test] == code]
            base = evidence.condition(without, asked, n_threads=n_threads).log_marginals.sum()
            n_tested += len(asked)
            for k, pool_pairs in enumerate(candidates):
                own = fit_class(evidence, mine, without, pool_pairs, n_threads, N_TRIAL_STEPS)
                found = evidence.condition(own, asked, n_threads=n_threads)
                scores[k] += found.log_marginals.sum() - base
    if not n_tested:
        return candidates[-1], {}
    scores /= n_tested
    return candidates[int(scores.argmax())], dict(zip(candidates, scores.tolist(), strict=True))


def split_by_sample(edges: Integers, n_folds: int) -> Sequence[tuple[Integers, Integers]]:
    """Pairs to learn from and pairs to test on, for each fold of the samples."""
    samples, ends = np.unique(edges, return_inverse=True)
    folds = (np.random.default_rng(0).permutation(len(samples)) % n_folds)[ends].reshape(-1, 2)
    return [
        (np.flatnonzero((folds != fold).all(axis=1)), np.flatnonzero((folds == fold).all(axis=1)))
        for fold in range(n_folds)
    ]
