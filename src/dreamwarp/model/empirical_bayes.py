"""Covariances of warps by empirical Bayes: those under which the pairs themselves are likeliest.

A pair shows its warp only in part: nothing of a warp within flat regions, little of one along an
edge. The mode of its posterior is therefore too small, and a draw from it mostly prior. The
covariance that maximises the marginal likelihood of all pairs errs neither way. It is found by
expectation maximisation, with posteriors by Laplace's approximation (``align.evidence``):

    pool       S   = (Σ_i E[u uᵀ] + ν₀ I) / (n + ν₀)        over all pairs i, u as in the evidence
    class y    S_y = (Σ_i E[u uᵀ] + ν S) / (n_y + ν)        over the pairs of y
    noise      σ²  = κ E[Σ (source ∘ T - target)²] / m      m numbers per image

What no pair shows, as in a blank margin, is left to the smooth prior, which counts as ν₀ pairs. Its
displacement, and the number ν of pairs that the pool counts as, are those under which held-out
pairs are likeliest. κ, the number of pixels that err together (``align.noise``), is
measured in the first rounds and then held: with it fixed, every step raises one and the same
likelihood, so that σ and S settle. If both followed the residuals, each round would fit closer than
the last.

The prior, the noise and the pool are found from some of the pairs, which are aligned again in every
round, since where a likelihood is approximated depends on the prior. Then all pairs are aligned,
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

# Pairs by which the prior, the pool and the noise are found.
N_FIRST = 240
# Pairs that the prior counts as, relative to the number of components. A quarter is better than one
# for held-out pairs of MNIST and Fashion-MNIST, by 0.1 to 0.4 nats per pair at the best scales.
PRIOR_PAIRS = 0.25
# Displacements of the priors that are compared.
DISPLACEMENTS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.3)
# Rounds under the first prior before another one is chosen, and steps of expectation maximisation
# that each is given.
N_PRIOR_ROUNDS, N_PRIOR_STEPS = 2, 4
# Rounds of aligning them again, at most, and the relative change of displacement that ends them.
MAX_ROUNDS, SETTLED = 15, 0.02
# Rounds in which κ is measured: before the third, the prior is still far off, and what it leaves
# over comes in larger patches than noise does.
PATCH_ROUNDS = 3
# Largest factor on displacements by which the next round is anticipated.
LARGEST_LEAP = 1.3
# Steps of expectation maximisation between alignments.
N_STEPS = 4
# Steps for all pairs, which start at the pool of some, and for a class, which starts at the pool.
N_POOL_STEPS, N_CLASS_STEPS = 4, 4
# Steps for a class where only ν is at stake.
N_TRIAL_STEPS = 1
# Pairs that the pool counts as, relative to the number of components.
POOL_PAIRS = (0.3, 1.0, 4.0, 16.0)
# Parts that samples are divided into to hold some out, and pairs that are used for that, at most.
N_FOLDS, MAX_HELD_OUT = 2, 1000


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
class Pool:
    """What pairs of all classes have in common.

    Attributes
    ----------
    finder : EvidenceFinder
        Under the prior that was chosen.
    covariance : (r, r)
        S.
    sigma : float or None
        Noise of a pixel; None for similarities without.
    rounds : tuple of Round
    """

    finder: EvidenceFinder
    covariance: Array
    sigma: float | None
    rounds: tuple[Round, ...]

    @property
    def similarity(self) -> Similarity:
        """The one that pairs are compared by, with the noise that was found."""
        given = self.finder.problem.similarity
        return given if self.sigma is None else SquaredError(self.sigma)

    @property
    def prior(self) -> Prior:
        """The distribution of θ, to align pairs under."""
        return self.finder.frame.prior(self.covariance)

    @property
    def smooth(self) -> SmoothPrior:
        """The prior that was chosen, which the pool is drawn toward."""
        return self.finder.prior


@dataclass(frozen=True, eq=False)
class EmpiricalBayes:
    """Posteriors of pairs under covariances learned from them.

    Attributes
    ----------
    means : (n, r)
        Posterior means of u.
    spreads : (n, r, r), float32
        Posterior covariances.
    pool : (r, r)
        S.
    pool_pairs : float
        ν.
    held_out : dict of float to float
        Mean marginal log-likelihood of held-out pairs by ν, relative to the pool's; empty where
        nothing could be held out.
    """

    means: Array
    spreads: NDArray[np.float32]
    pool: Array
    pool_pairs: float
    held_out: dict[float, float]


def learn(
    pool: Pool,
    edges: Integers,
    codes: Integers,
    *,
    start: Array | None = None,
    n_threads: int | None = None,
    client: Client | None = None,
) -> EmpiricalBayes:
    """Covariances of the pool and of every class, from pairs ``edges`` (n, 2) of classes (n,).

    The search begins at the θ of ``start`` (n, d), if given. A ``client`` has a cluster align them.
    """
    evidence = pool.finder.find(
        edges, pool.covariance, sigma=pool.sigma, start=start, n_threads=n_threads, client=client
    )
    shared = fit_pool(evidence, pool.covariance, n_threads=n_threads)
    pool_pairs, held_out = choose_pool_pairs(evidence, edges, codes, shared, n_threads)
    means = np.empty((len(edges), len(shared)))
    spreads = np.empty((len(edges), *shared.shape), np.float32)
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        own = fit_class(evidence, mine, shared, pool_pairs, n_threads)
        means[mine] = evidence.condition(own, mine, spreads=spreads, n_threads=n_threads).means
    return EmpiricalBayes(means, spreads, shared, pool_pairs, held_out)


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
    """The prior, the noise and the covariance of all pairs, from some of them.

    Parameters
    ----------
    edges, codes : (n, 2), (n,)
        Pairs, and the class of each.
    start : (n, d), optional
        θ to start at.
    displacements : sequence of float
        Of the priors to choose from. Default: the finder's prior is kept.
    fixed_sigma : bool
        Keep the noise that the finder has, as similarities without any do.
    """
    first = choose_first(edges, codes)
    edges = edges[first]
    search = _Search.begin(finder, fixed_sigma, None if start is None else start[first])
    if len(displacements):
        search = search.settled(edges, N_PRIOR_ROUNDS, n_threads)
        assert search.evidence is not None
        best = choose_displacement(
            search.evidence, edges, finder.prior, displacements, weight=search.weight,
            n_threads=n_threads,
        )  # fmt: skip
        space, length = finder.prior.space, finder.prior.length
        search = search.with_prior(SmoothPrior(space, displacement=best, length=length))
    search = search.settled(edges, MAX_ROUNDS, n_threads)
    return Pool(search.finder, search.pool, search.sigma, search.rounds)


@dataclass(frozen=True, eq=False)
class _Search:
    """Where the search for a pool stands; the evidence is of the last round."""

    finder: EvidenceFinder
    pool: Array
    sigma: float | None
    estimates_sigma: bool
    theta: Array | None
    evidence: Evidence | None = None
    weight: float = 1.0  # of the evidence: σ² then / σ² now
    patch: float | None = None
    rounds: tuple[Round, ...] = ()

    @classmethod
    def begin(cls, finder: EvidenceFinder, fixed_sigma: bool, theta: Array | None) -> _Search:
        similarity = finder.problem.similarity
        sigma = similarity.sigma if isinstance(similarity, SquaredError) else None
        estimates_sigma = sigma is not None and not fixed_sigma
        return cls(finder, np.eye(finder.frame.rank), sigma, estimates_sigma, theta)

    def with_prior(self, prior: SmoothPrior) -> _Search:
        """From the same alignments and noise on, under another prior."""
        finder = self.finder.with_prior(prior)
        return replace(self, finder=finder, pool=np.eye(finder.frame.rank), rounds=())

    def settled(self, edges: Integers, max_rounds: int, n_threads: int | None) -> _Search:
        """After rounds that end when the displacement stops changing."""
        search = self
        while len(search.rounds) < max_rounds:
            search = search._next(edges, n_threads)
            if len(search.rounds) < 2:
                continue
            change = search.rounds[-1].displacement / search.rounds[-2].displacement
            if len(search.rounds) > PATCH_ROUNDS and abs(change - 1.0) < SETTLED:
                break
            # Rounds close about half of the gap each: as far again saves half of them.
            leap = np.clip(change, 1.0 / LARGEST_LEAP, LARGEST_LEAP) ** 2
            search = replace(search, pool=search.pool * leap)
        return search

    def _next(self, edges: Integers, n_threads: int | None) -> _Search:
        """Align pairs under the present estimate, and estimate anew."""
        finder = self.finder
        evidence = finder.find(
            edges, self.pool, sigma=self.sigma, start=self.theta, n_threads=n_threads
        )
        patch = self.patch
        if self.estimates_sigma and len(self.rounds) < PATCH_ROUNDS:
            patch = measure_patch(finder, edges, evidence.theta)
        pool, weight, log_marginal = maximise(
            finder, evidence, self.pool, self.sigma, patch, n_threads
        )
        sigma = None if self.sigma is None else float(self.sigma / np.sqrt(weight))
        if sigma is not None and patch is not None:
            log_marginal -= finder.n_values / patch * np.log(sigma)
        latest = Round(finder.frame.displacement(pool), sigma, log_marginal)
        return replace(
            self, theta=evidence.theta, evidence=evidence, pool=pool, sigma=sigma, weight=weight,
            patch=patch, rounds=(*self.rounds, latest),
        )  # fmt: skip


def choose_first(edges: Integers, codes: Integers) -> Integers:
    """Pairs to begin with, as many of every class: such that samples can be held out, if possible.

    Every pair lies within one half of the samples or within the other.
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
    """Displacement of the prior that, as what the pool is drawn toward, suits held-out pairs best.

    The prior's own, where nothing can be held out. ``prior`` is that of the evidence.
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
) -> tuple[Array, float, float]:
    """S, the weight σ² / (new σ)², and the mean log-marginal: with the evidence as it is."""
    n, rank = len(evidence), len(pool)
    weight = 1.0
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
        pool = shrink(found.moment, n, np.eye(rank))
    return pool, weight, log_marginal


def shrink(moment: Array, n_pairs: int, target: Array) -> Array:
    """S from the sum of E[u uᵀ] over so many pairs, and the prior's covariance (r, r)."""
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
    """S of all pairs, from where it was found for some; ``target``: another prior's covariance."""
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
    """Pairs to learn from and pairs to test on, for each fold of the samples.

    The fold of a sample depends on its number alone.
    """
    folds = np.random.default_rng(0).integers(n_folds, size=edges.max(initial=-1) + 1)[edges]
    return [
        (np.flatnonzero((folds != fold).all(axis=1)), np.flatnonzero((folds == fold).all(axis=1)))
        for fold in range(n_folds)
    ]
