"""Covariances of warps by empirical Bayes.

An image shows only part of its warp: nothing within flat regions, little along an edge. Posterior
modes are therefore too small, and posterior draws mostly prior. The covariance that maximises the
marginal likelihood of the pairs has neither bias. Expectation maximisation finds it, with Laplace
approximations of the posteriors (``align.evidence``):

    pool       S   = (Σ_i E[u uᵀ] + ν₀ I) / (n + ν₀)        over all pairs i, u as in the evidence
    class y    S_y = (Σ_i E[u uᵀ] + ν S) / (n_y + ν)        over the pairs of y
    noise      σ²  = κ E[Σ (source ∘ T - target)²] / m      m numbers per image

The smooth prior counts as ν₀ pairs, and decides where no pair is informative, as in a blank margin.
Its displacement and ν, the number of pairs that the pool counts as in a class, maximise the
likelihood of held-out pairs. κ, the number of pixels with common errors (``align.noise``), is
measured in the first rounds and then fixed. With κ fixed, every step increases the same likelihood,
so that σ and S converge; if κ followed the residuals, each round would fit closer than the last.

The prior, the noise and the pool are estimated from a subset of the pairs, which is aligned again
in every round because the Laplace approximation depends on the prior. Then all pairs are aligned
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import noise
from dreamwarp.align.evidence import Array, Evidence, EvidenceFinder, Integers, spread_evenly
from dreamwarp.align.prior import Prior, SmoothPrior
from dreamwarp.align.similarity import Similarity, SquaredError
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from distributed import Client

# Size of the subset that the prior, the pool and the noise are estimated from.
N_FIRST = 240
# ν₀ relative to the number of components. On held-out pairs of MNIST and Fashion-MNIST, 0.25 is
# better than 1 by 0.1 to 0.4 nats per pair at the best scales.
PRIOR_PAIRS = 0.25
# Candidates for the prior's displacement.
DISPLACEMENTS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.3)
# Rounds before the displacement is chosen, and steps of expectation maximisation per candidate.
N_PRIOR_ROUNDS, N_PRIOR_STEPS = 2, 4
# Most rounds, and the relative change of displacement at which they end.
MAX_ROUNDS, SETTLED = 15, 0.02
# Rounds in which κ is measured. In the first two the prior is far off, and residuals come in larger
# patches than noise.
PATCH_ROUNDS = 3
# Largest factor of extrapolation between rounds.
LARGEST_LEAP = 1.3
# Steps of expectation maximisation: per round, for the final pool, and for a class. The last two
# start from a good estimate.
N_STEPS, N_POOL_STEPS, N_CLASS_STEPS = 4, 4, 4
# Steps for a class while ν is chosen.
N_TRIAL_STEPS = 1
# Candidates for ν, relative to the number of components.
POOL_PAIRS = (0.3, 1.0, 4.0, 16.0)
# Folds of samples, and most pairs, for choosing ν.
N_FOLDS, MAX_HELD_OUT = 2, 1000


@dataclass(frozen=True, eq=False)
class Pool:
    """The prior, the noise and the covariance for all classes.

    Attributes
    ----------
    finder : EvidenceFinder
        With the chosen prior.
    covariance : (r, r)
        S.
    sigma : float or None
        Noise of a pixel; None for similarities without noise.
    displacements : list of float
        Root mean square displacement of the pool's warps after each round, relative to the domain.
    """

    finder: EvidenceFinder
    covariance: Array
    sigma: float | None
    displacements: list[float]

    @property
    def similarity(self) -> Similarity:
        """The similarity, with the estimated noise."""
        given = self.finder.problem.similarity
        return given if self.sigma is None else SquaredError(self.sigma)

    @property
    def prior(self) -> Prior:
        """The estimated distribution of θ, as a prior to align pairs under."""
        return self.finder.frame.prior(self.covariance)

    @property
    def smooth(self) -> SmoothPrior:
        """The smooth prior that was chosen."""
        return self.finder.prior


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Posteriors of pairs under the learned covariance of their class.

    Attributes
    ----------
    means : (n, r)
        Posterior means of u.
    covariances : (n, r, r), float32
        Posterior covariances.
    pool : (r, r)
        S.
    pool_pairs : float
        ν.
    """

    means: Array
    covariances: NDArray[np.float32]
    pool: Array
    pool_pairs: float


def learn(
    pool: Pool,
    edges: Integers,
    codes: Integers,
    *,
    start: Array | None = None,
    n_threads: int | None = None,
    client: Client | None = None,
) -> Posteriors:
    """Estimate the pool and every class from all pairs ``edges`` (n, 2) of classes ``codes`` (n,).

    The search starts at θ ``start`` (n, d), if given. A ``client`` aligns pairs on a cluster.
    """
    evidence = pool.finder.find(
        edges, pool.covariance, sigma=pool.sigma, start=start, n_threads=n_threads, client=client
    )
    shared = fit_pool(evidence, pool.covariance, n_threads=n_threads)
    pool_pairs, _ = choose_pool_pairs(evidence, edges, codes, shared, n_threads)
    means = np.empty((len(edges), len(shared)))
    covariances = np.empty((len(edges), *shared.shape), np.float32)
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        own = fit_class(evidence, mine, shared, pool_pairs, n_threads)
        means[mine] = evidence.condition(own, mine, spreads=covariances, n_threads=n_threads).means
    return Posteriors(means, covariances, shared, pool_pairs)


# -- the prior, the noise and the pool


def find_pool(
    finder: EvidenceFinder,
    edges: Integers,
    codes: Integers,
    *,
    start: Array | None = None,
    displacements: Sequence[float] = (),
    fixed_sigma: bool = False,
    n_threads: int | None = None,
) -> Pool:
    """Estimate the prior, the noise and the pool from a subset of the pairs.

    Parameters
    ----------
    edges, codes : (n, 2), (n,)
        Pairs, and the class of each.
    start : (n, d), optional
        θ to start at.
    displacements : sequence of float
        Candidates for the prior's displacement. Default: keep the finder's prior.
    fixed_sigma : bool
        Keep the finder's noise.
    """
    first = choose_first(edges, codes)
    theta = None if start is None else start[first]
    search = _PoolSearch(finder, edges[first], theta, fixed_sigma, n_threads)
    if len(displacements):
        search.run(N_PRIOR_ROUNDS)
        search.choose_prior(displacements)
    search.run(MAX_ROUNDS)
    return Pool(search.finder, search.pool, search.sigma, search.displacements)


class _PoolSearch:
    """The state of ``find_pool``."""

    def __init__(
        self,
        finder: EvidenceFinder,
        edges: Integers,
        theta: Array | None,
        fixed_sigma: bool,
        n_threads: int | None,
    ) -> None:
        self.finder, self.edges, self.theta, self.n_threads = finder, edges, theta, n_threads
        similarity = finder.problem.similarity
        self.sigma = similarity.sigma if isinstance(similarity, SquaredError) else None
        self.estimates_sigma = self.sigma is not None and not fixed_sigma
        self.pool = np.eye(finder.frame.rank)
        self.patch: float | None = None  # κ
        self.displacements: list[float] = []  # after each round
        self.evidence: Evidence | None = None  # of the last round
        self.weight = 1.0  # of the evidence: old σ² / new σ²

    def run(self, max_rounds: int) -> None:
        """Iterate until the displacement stops changing."""
        while len(self.displacements) < max_rounds:
            self._run_round()
            if len(self.displacements) < 2:
                continue
            change = self.displacements[-1] / self.displacements[-2]
            if len(self.displacements) > PATCH_ROUNDS and abs(change - 1.0) < SETTLED:
                break
            # A round closes about half of the gap: extrapolating halves the number of rounds.
            self.pool = self.pool * np.clip(change, 1.0 / LARGEST_LEAP, LARGEST_LEAP) ** 2

    def _run_round(self) -> None:
        """Align the pairs under the present estimate, and estimate again."""
        finder, space = self.finder, self.finder.frame.space
        evidence = finder.find(
            self.edges, self.pool, sigma=self.sigma, start=self.theta, n_threads=self.n_threads
        )
        self.evidence, self.theta = evidence, evidence.theta
        if self.estimates_sigma and len(self.displacements) < PATCH_ROUNDS:
            warped = Warp(space, self.theta).image(finder.images[self.edges[:, 0]])
            residuals = warped - finder.images[self.edges[:, 1]]
            self.patch = noise.patch_size(residuals, space.ndim)
        self._maximise(evidence)
        self.displacements.append(finder.frame.displacement(self.pool))

    def _maximise(self, evidence: Evidence) -> None:
        """Estimate S and σ by expectation maximisation, with fixed evidence."""
        n, rank = len(evidence), len(self.pool)
        pool, sigma, weight = self.pool, self.sigma, 1.0
        for _ in range(N_STEPS):
            found = evidence.condition(pool, weight=weight, n_threads=self.n_threads)
            if sigma is not None and self.patch is not None:
                # E[c + bᵀu - uᵀHu/2], summed over pairs, by A m = w b with A = S⁻¹ + wH.
                inside = np.einsum("nr,nr->", evidence.linear, found.means)
                outside = np.trace(np.linalg.solve(pool, found.moment)) - n * rank
                likelihood = evidence.constants.sum() + 0.5 * (inside + outside / weight)
                squares = -2.0 * sigma**2 * likelihood / n
                new_square = self.patch * squares / self.finder.n_values
                weight = sigma**2 / max(new_square, 1e-4 * sigma**2)
            pool = shrink(found.moment, n, np.eye(rank))
        self.pool, self.weight = pool, weight
        if sigma is not None:
            self.sigma = float(sigma / np.sqrt(weight))

    def choose_prior(self, displacements: Sequence[float]) -> None:
        """Choose the prior's displacement, and start again from the present alignments."""
        assert self.evidence is not None
        prior = self.finder.prior
        best = choose_displacement(
            self.evidence, self.edges, prior, displacements, weight=self.weight,
            n_threads=self.n_threads,
        )  # fmt: skip
        prior = SmoothPrior(prior.space, displacement=best, length=prior.length)
        self.finder = self.finder.with_prior(prior)
        self.pool, self.displacements = np.eye(self.finder.frame.rank), []


def choose_first(edges: Integers, codes: Integers) -> Integers:
    """The subset of pairs to start with, balanced over classes.

    If there are enough, only pairs within one half of the samples, so that samples can be held out.
    """
    within = np.sort(np.concatenate([test for _, test in split_by_sample(edges, N_FOLDS)]))
    if 4 * len(within) < min(4 * N_FIRST, len(edges)):
        within = np.arange(len(edges))
    return within[spread_evenly(codes[within], N_FIRST)]


def choose_displacement(
    evidence: Evidence,
    edges: Integers,
    prior: SmoothPrior,
    displacements: Sequence[float],
    *,
    weight: float = 1.0,
    n_threads: int | None = None,
) -> float:
    """Displacement of the smooth prior under which held-out pairs are likeliest.

    ``prior`` is that of the evidence; its own displacement if nothing can be held out.
    """
    unit, scores = np.eye(evidence.linear.shape[1]), dict.fromkeys(displacements, 0.0)
    options: Any = {"weight": weight, "n_threads": n_threads}
    n_tested = 0
    for train, test in split_by_sample(edges, N_FOLDS):
        if not len(train) or not len(test):
            continue
        n_tested += len(test)
        seen, asked = evidence.only(train), evidence.only(test)
        for displacement in displacements:
            target = (displacement / prior.displacement) ** 2 * unit
            pool = fit_pool(seen, target, N_PRIOR_STEPS, target=target, **options)
            scores[displacement] += float(asked.condition(pool, **options).log_marginals.sum())
    best = max(scores, key=lambda displacement: scores[displacement])
    return best if n_tested else prior.displacement


def shrink(moment: Array, n_pairs: int, target: Array) -> Array:
    """S from Σ E[u uᵀ] over ``n_pairs`` pairs and the prior's covariance ``target`` (r, r)."""
    prior_pairs = PRIOR_PAIRS * len(moment)
    return (moment + prior_pairs * target) / (n_pairs + prior_pairs)


def fit_pool(
    evidence: Evidence,
    pool: Array,
    n_steps: int = N_POOL_STEPS,
    *,
    target: Array | None = None,
    weight: float = 1.0,
    n_threads: int | None = None,
) -> Array:
    """S of all pairs, starting at ``pool``; ``target``: covariance of another prior."""
    target = np.eye(len(pool)) if target is None else target
    for _ in range(n_steps):
        moment = evidence.condition(pool, weight=weight, n_threads=n_threads).moment
        pool = shrink(moment, len(evidence), target)
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
    """S_y of the chosen pairs; the pool if there are none."""
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
    """ν of highest held-out likelihood, and by ν the mean log-marginal relative to the pool's.

    Samples are held out, not pairs: a pair is tested if both its samples are held out, and trained
    on if neither is. The largest ν, and no values, if nothing can be held out.
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
        without = fit_pool(evidence.only(train), pool, n_threads=n_threads)
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
    """Indices of training and test pairs, for each fold of the samples.

    The fold of a sample depends on its index alone.
    """
    folds = np.random.default_rng(0).integers(n_folds, size=edges.max(initial=-1) + 1)[edges]
    return [
        (np.flatnonzero((folds != fold).all(axis=1)), np.flatnonzero((folds == fold).all(axis=1)))
        for fold in range(n_folds)
    ]
