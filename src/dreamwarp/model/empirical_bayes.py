"""Covariances of warps by empirical Bayes.

An image shows only part of its warp: nothing within flat regions, little along an edge. Posterior
modes are therefore too small, and posterior draws mostly prior. The covariance that maximises the
marginal likelihood of the pairs has neither bias. Expectation maximisation finds it, with Laplace
approximations of the posteriors (``align.evidence``):

    pool       S   = (Σ_i E[u uᵀ] + ν₀ I) / (n + ν₀)        over all pairs i; θ = F u
    class y    S_y = (Σ_i E[u uᵀ] + ν S) / (n_y + ν)        over the pairs of y
    noise      σ²  = κ E[Σ (source ∘ T - target)²] / m      m values per image

The smooth prior counts as ν₀ pairs. It determines the covariance where no pair is informative, as
in a blank margin. In each class, the pool counts as ν pairs. The displacement of the prior and ν
are chosen to maximise the likelihood of held-out pairs. κ, the sum of the autocorrelation of the
residuals (``align.noise``), is measured in the first rounds and then fixed. With κ fixed, every
step increases the same likelihood, so that σ and S converge; if κ were measured again in every
round, each round would fit closer than the last.

The prior, the noise and the pool are estimated from a subset of the pairs, which is aligned again
in every round because the Laplace approximation depends on the prior. Then all pairs are aligned
under the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import noise
from dreamwarp.align.evidence import Array, Evidence, EvidenceFinder, Integers
from dreamwarp.align.prior import Prior, SmoothPrior
from dreamwarp.align.similarity import Similarity, SquaredError
from dreamwarp.core.compiled import limit_algebra, map_on_threads
from dreamwarp.core.samples import choose_balanced
from dreamwarp.space.warp import Warp

# Size of the subset that the prior, the pool and the noise are estimated from.
N_FIRST = 240
# With more than MANY_PARAMETERS parameters the subset is smaller in proportion, but not below
# MIN_FIRST: it is aligned in every round, and the time of a step grows with d² or faster.
MANY_PARAMETERS, MIN_FIRST = 128, 60
# ν₀ relative to the number of components. On held-out pairs of MNIST and Fashion-MNIST, 0.25 is
# better than 1 by 0.1 to 0.4 nats per pair at the best scales.
SMOOTH_PAIRS_PER_COMPONENT = 0.25
# Candidates for the prior's displacement.
DISPLACEMENTS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.3)
# Rounds before the displacement is chosen.
N_PRIOR_ROUNDS = 2
# Largest number of rounds, and the relative change of displacement at which they end.
MAX_ROUNDS, SETTLED = 15, 0.02
# κ is measured in this many rounds under a prior (the first prior has N_PRIOR_ROUNDS). Only the
# last measurement is kept: in earlier rounds the prior fits badly, and residuals are correlated
# over larger patches than noise.
PATCH_ROUNDS = 3
# Least factor on σ² in a step: smaller sums of squares may be rounding errors.
LEAST_DROP = 1e-4
# Largest factor of extrapolation between rounds.
LARGEST_LEAP = 1.3
# Steps of expectation maximisation: per round, for a candidate, for the final pool, and for a
# class. The last two start from a good estimate.
N_STEPS = 4
# Candidates for ν, relative to the number of components.
POOL_PAIRS_PER_COMPONENT = (0.3, 1.0, 4.0, 16.0)
# Number of folds of samples, and largest number of pairs, for choosing ν.
N_FOLDS, MAX_HELD_OUT = 2, 1000


@dataclass(frozen=True, eq=False)
class Pool:
    """What all classes share: the smooth prior, the noise, and the pool's covariance S."""

    finder: EvidenceFinder  # with the chosen prior
    covariance: Array  # (r, r), S
    sigma: float | None  # noise of a pixel; None for similarities without noise

    @property
    def similarity(self) -> Similarity:
        """The similarity, with the estimated noise."""
        given = self.finder.problem.similarity
        return given if self.sigma is None else SquaredError(self.sigma)

    @property
    def learned_prior(self) -> Prior:
        """The estimated distribution of θ, as a prior to align pairs under."""
        return self.finder.frame.gaussian(self.covariance)


class EvidenceFold(NamedTuple):
    """Held-out samples, the pairs with them, and what the pairs of the others determine."""

    held_out: NDArray[np.bool_]  # (n_samples,)
    test: Integers  # pairs of two held-out samples
    crossing: Integers  # pairs of a held-out sample and another
    pool_covariance: Array  # (r, r), S without the held-out samples
    moments: dict[int, tuple[int, Array]]  # by class: n_y and Σ E[u uᵀ], under S

    def class_covariance(self, code: int, pool_pairs: float) -> Array:
        """S_y without the held-out samples, after one step of maximisation from S."""
        if code not in self.moments:
            return self.pool_covariance
        n_pairs, moment = self.moments[code]
        return m_step(moment, n_pairs, self.pool_covariance, pool_pairs)


class ClassPosteriors(NamedTuple):
    """Posteriors of pairs, each under the learned covariance of its class."""

    means: Array  # (n, r), of u
    covariances: NDArray[np.float32]  # (n, r, r), of u
    pool_pairs: float  # ν
    folds: list[EvidenceFold]


def learn_classes(
    evidence: Evidence,
    pool_covariance: Array,
    edges: Integers,
    pair_codes: Integers,
    n_threads: int | None = None,
) -> ClassPosteriors:
    """Estimate S and every S_y from all pairs, and return the posteriors of the pairs under S_y.

    ``pair_codes`` (n,) are the classes of the pairs ``edges`` (n, 2). S starts at
    ``pool_covariance``.

    S_y is not returned. ``fitting.fit_classes`` takes one more step of maximisation from these
    posteriors: S_y from the pairs of y, and the model's pool from the posteriors of all pairs, each
    under its own S_y. So a fold can be fitted again without the pairs of its held-out samples.
    """
    pool_covariance = fit_covariance(evidence, pool_covariance, n_threads=n_threads)
    folds = hold_out(evidence, edges, pair_codes, pool_covariance, n_threads)
    pool_pairs = choose_pool_pairs(evidence, pair_codes, folds, n_threads)
    means = np.empty((len(edges), len(pool_covariance)))
    covariances = np.empty((len(edges), *pool_covariance.shape), np.float32)
    codes = np.unique(pair_codes)
    threads_each = n_threads if len(codes) == 1 else 1

    def learn_class(code: int) -> None:
        mine = np.flatnonzero(pair_codes == code)
        own = fit_covariance(
            evidence, pool_covariance, chosen=mine, target=pool_covariance, target_pairs=pool_pairs,
            n_threads=threads_each,
        )  # fmt: skip
        found = evidence.condition(own, mine, covariances_out=covariances, n_threads=threads_each)
        means[mine] = found.means

    with limit_algebra():
        map_on_threads(learn_class, list(codes), n_threads)
    return ClassPosteriors(means, covariances, pool_pairs, folds)


# -- the prior, the noise and the pool


def find_pool(
    finder: EvidenceFinder,
    edges: Integers,
    pair_codes: Integers,
    *,
    displacements: Sequence[float] = (),
    fixed_sigma: bool = False,
    n_threads: int | None = None,
) -> Pool:
    """Estimate the prior, the noise and the pool from a subset of the pairs.

    ``displacements`` are candidates for the prior's; default: keep the finder's prior.
    ``fixed_sigma``: keep the finder's noise.
    """
    n_first = max(min(N_FIRST, N_FIRST * MANY_PARAMETERS // finder.frame.space.dim), MIN_FIRST)
    first = choose_first(edges, pair_codes, n_first)
    search = _PoolSearch(finder, edges[first], fixed_sigma, n_threads)
    if len(displacements):
        search.run(N_PRIOR_ROUNDS)
        search.choose_prior(displacements)
    search.run(MAX_ROUNDS)
    return Pool(search.finder, search.pool_covariance, search.sigma)


class _PoolSearch:
    """The state of ``find_pool``."""

    def __init__(
        self,
        finder: EvidenceFinder,
        edges: Integers,
        fixed_sigma: bool,
        n_threads: int | None,
    ) -> None:
        self.finder, self.edges, self.n_threads = finder, edges, n_threads
        similarity = finder.problem.similarity
        self.sigma = similarity.sigma if isinstance(similarity, SquaredError) else None
        self.estimates_sigma = self.sigma is not None and not fixed_sigma
        self.pool_covariance = np.eye(finder.frame.rank)
        self.patch: float | None = None  # κ
        self.n_rounds = 0  # under the present prior
        self.displacement = np.nan  # of the pool after the last round
        self.evidence: Evidence | None = None  # of the last round
        self.weight = 1.0  # of the evidence: old σ² / new σ²

    def run(self, max_rounds: int) -> None:
        """Iterate until the displacement stops changing, at most ``max_rounds`` rounds."""
        while self.n_rounds < max_rounds:
            before = self.displacement
            self._run_round()
            if self.n_rounds < 2:
                continue
            change = self.displacement / before
            if self.n_rounds > PATCH_ROUNDS and abs(change - 1.0) < SETTLED:
                break
            if self.n_rounds == max_rounds:
                break
            # A round closes about half of the gap: extrapolating halves the number of rounds.
            leap = np.clip(change, 1.0 / LARGEST_LEAP, LARGEST_LEAP)
            self.pool_covariance = self.pool_covariance * leap**2

    def _run_round(self) -> None:
        """Align the pairs under the present estimate, and estimate again."""
        finder, space = self.finder, self.finder.frame.space
        before = self.evidence
        self.evidence = evidence = finder.find(
            self.edges, self.pool_covariance, sigma=self.sigma, n_threads=self.n_threads,
            start=None if before is None else before.theta,
        )  # fmt: skip
        if self.estimates_sigma and self.n_rounds < PATCH_ROUNDS:
            sources = finder.images[self.edges[:, 0]]
            warped = Warp(space, evidence.theta).image(sources, n_threads=self.n_threads)
            residuals = warped - finder.images[self.edges[:, 1]]
            self.patch = noise.patch_size(residuals, space.ndim)
        self._maximise(evidence)
        self.displacement = finder.frame.displacement(self.pool_covariance)
        self.n_rounds += 1

    def _maximise(self, evidence: Evidence) -> None:
        """Estimate S and σ by expectation maximisation, with fixed evidence."""
        n, rank = len(evidence), len(self.pool_covariance)
        covariance, sigma, weight = self.pool_covariance, self.sigma, 1.0
        for _ in range(N_STEPS):
            found = evidence.condition(covariance, weight=weight, n_threads=self.n_threads)
            if sigma is not None and self.patch is not None:
                # E[c + bᵀu - uᵀHu/2], summed over pairs. With A = S⁻¹ + wH, the posterior has mean
                # m = A⁻¹ w b and covariance A⁻¹, so that E[uᵀHu] = bᵀm + (rank - tr S⁻¹E[uuᵀ]) / w.
                linear = np.einsum("nr,nr->", evidence.linear, found.means)
                excess = np.trace(np.linalg.solve(covariance, found.moment)) - n * rank
                likelihood = evidence.constants.sum() + 0.5 * (linear + excess / weight)
                expected_ssd = -2.0 * sigma**2 * likelihood / n
                new_square = self.patch * expected_ssd / self.finder.images[0].size
                weight = sigma**2 / max(new_square, LEAST_DROP * sigma**2)
            covariance = m_step(found.moment, n, np.eye(rank), count_smooth(rank))
        self.pool_covariance, self.weight = covariance, weight
        if sigma is not None:
            self.sigma = float(sigma / np.sqrt(weight))

    def choose_prior(self, displacements: Sequence[float]) -> None:
        """Choose the prior's displacement, and start again from the present alignments."""
        assert self.evidence is not None
        prior = self.finder.frame.prior
        assert isinstance(prior, SmoothPrior)
        best = choose_displacement(
            self.evidence, self.edges, prior, displacements, weight=self.weight,
            n_threads=self.n_threads,
        )  # fmt: skip
        prior = prior.with_displacement(best)
        self.finder = EvidenceFinder(self.finder.problem, prior, self.finder.images)
        self.pool_covariance, self.n_rounds = np.eye(self.finder.frame.rank), 0


def count_smooth(rank: int) -> float:
    """ν₀, the number of pairs that the smooth prior counts as."""
    return SMOOTH_PAIRS_PER_COMPONENT * rank


def choose_first(edges: Integers, pair_codes: Integers, n_first: int = N_FIRST) -> Integers:
    """The subset of pairs to start with, balanced over classes.

    If there are enough, only pairs of two samples of one fold: each is tested when it is held out.
    """
    within = np.sort(np.concatenate([test for _, test in split_by_sample(edges, N_FOLDS)]))
    if len(within) < min(n_first, len(edges) / 4):
        within = np.arange(len(edges))
    return within[choose_balanced(pair_codes[within], n_first)]


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

    ``prior`` is the prior of the evidence. Its displacement is returned if nothing can be held out.
    """
    unit, scores = np.eye(evidence.linear.shape[1]), dict.fromkeys(displacements, 0.0)
    options: Any = {"weight": weight, "n_threads": n_threads}
    for train, test in split_by_sample(edges, N_FOLDS):
        if not len(train) or not len(test):
            continue
        seen, asked = evidence.only(train), evidence.only(test)
        for displacement in displacements:
            target = (displacement / prior.displacement) ** 2 * unit
            pool_covariance = fit_covariance(seen, target, target=target, **options)
            found = asked.condition(pool_covariance, **options)
            scores[displacement] += float(found.log_marginals.sum())
    best = max(scores, key=lambda displacement: scores[displacement])
    return best if any(scores.values()) else prior.displacement


def m_step(moment: Array, n_pairs: int, target: Array, target_pairs: float) -> Array:
    """Covariance from Σ E[u uᵀ] over ``n_pairs``; ``target`` counts as ``target_pairs`` more."""
    return (moment + target_pairs * target) / (n_pairs + target_pairs)


def fit_covariance(
    evidence: Evidence,
    start: Array,
    *,
    chosen: Integers | None = None,
    target: Array | None = None,
    target_pairs: float | None = None,
    n_steps: int = N_STEPS,
    weight: float = 1.0,
    n_threads: int | None = None,
) -> Array:
    """Covariance of u for the chosen pairs, by expectation maximisation from ``start``.

    The prior, N(0, ``target``), counts as ``target_pairs`` pairs. By default, it is the smooth
    prior and counts as ν₀.
    """
    n_pairs = len(evidence) if chosen is None else len(chosen)
    target = np.eye(len(start)) if target is None else target
    target_pairs = count_smooth(len(start)) if target_pairs is None else target_pairs
    covariance = start
    for _ in range(n_steps):
        found = evidence.condition(covariance, chosen, weight=weight, n_threads=n_threads)
        covariance = m_step(found.moment, n_pairs, target, target_pairs)
    return covariance


# -- classes


def hold_out(
    evidence: Evidence,
    edges: Integers,
    pair_codes: Integers,
    pool_covariance: Array,
    n_threads: int | None,
) -> list[EvidenceFold]:
    """Folds of the samples, and what is learned without each. S starts at ``pool_covariance``.

    One step of maximisation per class is enough to compare candidates. Folds without pairs to learn
    from are left out.
    """
    few = choose_balanced(pair_codes, MAX_HELD_OUT)
    folds = []
    for fold in range(N_FOLDS):
        held_out = fold_of_samples(edges.max(initial=-1) + 1, N_FOLDS) == fold
        n_out = held_out[edges[few]].sum(axis=1)
        train = few[n_out == 0]
        if not len(train):
            continue
        without = fit_covariance(evidence.only(train), pool_covariance, n_threads=n_threads)
        moments = {}
        for code in np.unique(pair_codes[train]).tolist():
            mine = train[pair_codes[train] == code]
            found = evidence.condition(without, mine, n_threads=n_threads)
            moments[code] = len(mine), found.moment
        folds.append(EvidenceFold(held_out, few[n_out == 2], few[n_out == 1], without, moments))
    return folds


def choose_pool_pairs(
    evidence: Evidence, pair_codes: Integers, folds: Sequence[EvidenceFold], n_threads: int | None
) -> float:
    """ν of the highest likelihood of pairs of two held-out samples.

    Returns the largest candidate if there are none, and the smallest for a single class, whose
    pairs are those of the pool.
    """
    candidates = [evidence.linear.shape[1] * share for share in POOL_PAIRS_PER_COMPONENT]
    if len(np.unique(pair_codes)) < 2:
        return candidates[0]
    scores = np.zeros(len(candidates))
    for fold in folds:
        for code in np.unique(pair_codes[fold.test]).tolist():
            asked = fold.test[pair_codes[fold.test] == code]
            for k, pool_pairs in enumerate(candidates):
                own = fold.class_covariance(code, pool_pairs)
                found = evidence.condition(own, asked, n_threads=n_threads)
                scores[k] += found.log_marginals.sum()
    if not scores.any():
        return candidates[-1]
    return candidates[int(scores.argmax())]


def fold_of_samples(n_samples: int, n_folds: int) -> Integers:
    """The fold of each sample (n_samples,), which depends on its index alone."""
    return np.random.default_rng(0).integers(n_folds, size=n_samples)


def split_by_sample(edges: Integers, n_folds: int) -> Sequence[tuple[Integers, Integers]]:
    """Indices of training and test pairs, for each fold of the samples.

    A pair is tested if both its samples are held out, and trained on if neither is.
    """
    folds = fold_of_samples(edges.max(initial=-1) + 1, n_folds)[edges]
    return [
        (np.flatnonzero((folds != fold).all(axis=1)), np.flatnonzero((folds == fold).all(axis=1)))
        for fold in range(n_folds)
    ]
