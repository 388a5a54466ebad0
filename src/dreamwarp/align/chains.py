"""Draws from the posterior of warps: chains, how long they run, and whether they have mixed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.hamiltonian import Hamiltonian
from dreamwarp.align.metropolis import Metropolis, count_words
from dreamwarp.align.posterior import ImagePairs, Posterior
from dreamwarp.align.search import SMALLEST_COARSE_GAIN, climb
from dreamwarp.align.surrogate import Surrogate
from dreamwarp.core import draws

Array = NDArray[np.float64]

# All chains of a pair but the first start at modes near draws of the prior, with as little of the
# likelihood's curvature added as makes it proper: so far apart that chains in different modes tell.
LIKELIHOOD_SHARE = 1e-4
# Steps up to those modes, at most.
CLIMB = 20
# Adaptation of steps decays like 1 / sweeps to this power (Robbins and Monro: between 1/2 and 1).
SETTLING = 0.6
# Times that the surrogate is fitted anew in burn-in, and sweeps per Hessian that it is fitted to.
N_STAGES, HESSIAN_EVERY = 4, 4
# Burn-in has so many parts; in the last one only step sizes are adapted.
SETTLING_SHARE = 5
# Chains that have not mixed after so many times the draws of the first look begin anew with a
# surrogate fitted to those draws, for twice as many. Steps are then adapted in so many sweeps, and
# the first look is after this part of them: chains slow to mix need more draws to show it.
PATIENCE, N_RESETTLED, FIRST_LOOK = 7, 20, 4
# Sweep s of chain c of pair k draws the numbers of sample (k 2^10 + c) 2^24 + s.
MAX_CHAINS, MAX_SWEEPS = 2**10, 2**24


@dataclass(frozen=True)
class Chains:
    """How chains are run.

    Attributes
    ----------
    n_chains : int
    n_burn_in : int
        Sweeps before the first draw is kept, in which proposals are adapted. Most of them are
        Hamiltonian whatever the method, which reaches the bulk of the posterior fastest.
    n_draws : int
        Draws kept of each chain, one per sweep, before it is first looked at.
    max_draws : int
        A pair whose chains have not mixed by then is reported as not converged. Draws that are
        dropped because proposals are adapted once more count too.
    r_hat : float
        Chains count as mixed when the split R-hat of every coordinate is at most this.
    """

    n_chains: int = 2
    n_burn_in: int = 200
    n_draws: int = 50
    max_draws: int = 1600
    r_hat: float = 1.05


class Transition(Protocol):
    """A Markov chain of every pair of a block, whose target is the posterior."""

    posterior: Posterior
    surrogate: Surrogate
    x: Array
    density: Array
    n_normals: int
    n_uniforms: int

    def sweep(
        self, chosen: NDArray[np.int64], normals: Array, uniforms: Array, adaptation: float
    ) -> Array:
        """Move the chosen chains; returns their acceptance rates."""
        ...


@dataclass(frozen=True)
class Sampled:
    """Draws and diagnostics of the chains of n pairs.

    Attributes
    ----------
    draws : list of (n_chains, n_draws, d)
        Of each pair, in coordinates x; burn-in left out.
    densities : list of (n_chains, n_draws)
        Log-posteriors of those, up to a constant.
    acceptance : (n,)
        Mean acceptance rate of those draws.
    r_hat : (n,)
        Largest split R-hat of any coordinate.
    n_sweeps : (n,)
        Of each chain, burn-in included.
    """

    draws: list[Array]
    densities: list[Array]
    acceptance: Array
    r_hat: Array
    n_sweeps: NDArray[np.int64]


def sample_posterior(
    method: str,
    posterior: Posterior,
    modes: Array,
    options: Chains,
    *,
    seed: int,
    numbers: NDArray[np.int64],
    stop: threading.Event,
) -> Sampled:
    """Run chains for a block of pairs from round their modes (n, d).

    The pair with number k gets the same chains whatever block it is in.
    """
    n, n_chains = len(modes), options.n_chains
    surrogate = Surrogate.at_modes(posterior, modes).repeated(n_chains)
    pairs = ImagePairs(
        np.repeat(posterior.pairs.sources, n_chains, axis=0),
        np.repeat(posterior.pairs.targets, n_chains, axis=0),
        posterior.pairs.grid,
    )
    of_chains = posterior.of(pairs)
    everyone = np.arange(n * n_chains)
    chain_numbers = np.repeat(numbers * MAX_CHAINS, n_chains) + everyone % n_chains
    random = _Random(seed, chain_numbers)
    x = _disperse(of_chains, surrogate, random.normals(everyone, 0, modes.shape[1]), n_chains)
    chains: Transition = Hamiltonian(of_chains, surrogate, x)
    n_explored = options.n_burn_in - options.n_burn_in // SETTLING_SHARE
    _explore(chains, n_explored, random, n, stop)
    if method == "metropolis":
        with_memory = posterior.of(pairs, n_words=count_words(posterior.coordinates))
        chains = Metropolis(with_memory, chains.surrogate, chains.x)
    _adapt_steps(chains, everyone, n_explored, options.n_burn_in - n_explored, random, stop)
    return _run(chains, options, random, n, stop)


def _disperse(posterior: Posterior, surrogate: Surrogate, normals: Array, n_chains: int) -> Array:
    """Starts of chains (n * n_chains, d): the first of a pair at its mode, others elsewhere.

    The others climb from a wide draw to the nearest mode, which may be another one. Started at the
    draw itself, a chain can be so far out that it never moves.
    """
    everyone = np.arange(len(normals))
    others = np.flatnonzero(everyone % n_chains)
    x = surrogate.centers.copy()
    wide = surrogate.widened(posterior.precision, LIKELIHOOD_SHARE).spread(normals[others], others)
    density = posterior.log_density(wide, others)
    found = climb(
        posterior, wide, density, others, max_steps=CLIMB, smallest_gain=SMALLEST_COARSE_GAIN
    )
    x[others] = found.x
    stiff = ~np.isfinite(posterior.log_density(x, everyone))
    x[stiff] = surrogate.centers[stiff]  # no chain starts where paths can't be followed
    return x


class _Random:
    """The random numbers of all chains of a block."""

    def __init__(self, seed: int, chain_numbers: NDArray[np.int64]) -> None:
        self.seed, self._first = seed, chain_numbers * MAX_SWEEPS

    def normals(self, chosen: NDArray[np.int64], sweep: int, dim: int) -> Array:
        return draws.normals(
            self.seed, self._first[chosen] + sweep, dim, stream=draws.Stream.ALIGNMENT, n_threads=1
        )

    def uniforms(self, chosen: NDArray[np.int64], sweep: int, dim: int) -> Array:
        return draws.uniforms(
            self.seed, self._first[chosen] + sweep, dim, stream=draws.Stream.ACCEPTANCE, n_threads=1
        )


def _explore(
    chains: Transition, last_sweep: int, random: _Random, n: int, stop: threading.Event
) -> None:
    """Fit the surrogates of chains to where they go, after each of some stages.

    The first two are equally long, each of the others twice as long as the one before it.

    The surrogate of a pair is fitted to the draws of its chains and to the mean of Gauss-Newton's
    Hessians along them.
    """
    everyone, sweep = np.arange(len(chains.x)), 0
    for stage in range(N_STAGES - 1, -1, -1):
        first, last = sweep, last_sweep // 2**stage
        found, hessians = [], []
        while sweep < last:
            if stop.is_set():
                raise InterruptedError
            sweep += 1
            _sweep(chains, random, everyone, sweep, (sweep - first) ** -SETTLING)
            found.append(chains.x.copy())
            if (last - sweep) % HESSIAN_EVERY == 0:
                chains.posterior.log_density(chains.x, everyone)
                hessians.append(chains.posterior.derivatives(chains.x, everyone)[1])
        if len(found) > 3:
            chains.surrogate = _refit(np.stack(found, 1), np.mean(hessians, 0), chains, n)


def _refit(found: Array, hessians: Array, chains: Transition, n: int) -> Surrogate:
    """A surrogate of draws (n * n_chains, n_draws, d): one per pair, given to all its chains."""
    n_chains, (_, n_draws, d) = len(found) // n, found.shape
    of_pairs = found.reshape(n, n_chains * n_draws, d)
    matrices = hessians.reshape(n, n_chains, d, d).mean(axis=1) + chains.posterior.precision
    return Surrogate.fitted(of_pairs, np.triu(matrices)).repeated(n_chains)


def _sweep(
    chains: Transition, random: _Random, chosen: NDArray[np.int64], sweep: int, adaptation: float
) -> Array:
    normals = random.normals(chosen, sweep, chains.n_normals)
    uniforms = random.uniforms(chosen, sweep, chains.n_uniforms)
    return chains.sweep(chosen, normals, uniforms, adaptation)


def _adapt_steps(
    chains: Transition,
    chosen: NDArray[np.int64],
    sweep: int,
    n_sweeps: int,
    random: _Random,
    stop: threading.Event,
) -> int:
    """Adapt the steps of the chosen chains to their surrogates; returns the last sweep."""
    for s in range(1, n_sweeps + 1):
        if stop.is_set():
            raise InterruptedError
        _sweep(chains, random, chosen, sweep + s, s**-SETTLING)
    return sweep + n_sweeps


def _run(
    chains: Transition, options: Chains, random: _Random, n: int, stop: threading.Event
) -> Sampled:
    """Run chains until those of every pair have mixed, or all draws are used up.

    Draws from before the last change of a pair's surrogate are dropped: those that are kept are of
    one Markov chain each, whose target is the posterior.
    """
    n_chains, d = options.n_chains, chains.x.shape[1]
    sweep, n_left = options.n_burn_in, options.max_draws
    first_look, patience = options.n_draws, PATIENCE * options.n_draws
    active = np.arange(n)
    chosen, found = np.arange(n * n_chains), _Draws.none(n * n_chains, d)
    r_hat, n_sweeps, kept = np.full(n, np.inf), np.zeros(n, np.int64), {}
    while True:
        n_more = min(found.n_draws // 2 or first_look, n_left)
        more = _draw_more(chains, chosen, sweep, n_more, random, stop)
        found, n_left, sweep = found.followed_by(more), n_left - n_more, sweep + n_more
        n_sweeps[active] = sweep
        by_pair = found.x.reshape(len(active), n_chains, -1, d)
        r_hat[active] = [split_r_hat(draws_of_pair).max() for draws_of_pair in by_pair]
        done = (r_hat[active] <= options.r_hat) | (n_left == 0)
        for i in np.flatnonzero(done):
            kept[int(active[i])] = found.of(slice(i * n_chains, (i + 1) * n_chains))
        if done.all():
            break
        rest = np.repeat(~done, n_chains)
        active, chosen, found = active[~done], chosen[rest], found.of(rest)
        if found.n_draws >= patience and n_left >= 2 * patience:
            chains.surrogate = chains.surrogate.refitted(
                chosen, found.x.reshape(len(active), -1, d)
            )
            sweep = _adapt_steps(chains, chosen, sweep, N_RESETTLED, random, stop)
            found, patience = _Draws.none(len(chosen), d), 2 * patience
            first_look = patience // FIRST_LOOK
    draws_of = [kept[i] for i in range(n)]
    return Sampled(
        [mine.x for mine in draws_of], [mine.heights for mine in draws_of],
        np.array([mine.rates.mean() for mine in draws_of]), r_hat, n_sweeps,
    )  # fmt: skip


class _Draws(NamedTuple):
    """Draws of some chains, their log-posteriors, and how probable it was to accept them."""

    x: Array  # (k, n_draws, d)
    heights: Array  # (k, n_draws)
    rates: Array  # (k, n_draws)

    @classmethod
    def none(cls, n_chains: int, d: int) -> _Draws:
        return cls(np.empty((n_chains, 0, d)), np.empty((n_chains, 0)), np.empty((n_chains, 0)))

    @property
    def n_draws(self) -> int:
        return self.x.shape[1]

    def of(self, some: slice | NDArray[np.bool_]) -> _Draws:
        return _Draws(*(values[some].copy() for values in self))

    def followed_by(self, more: _Draws) -> _Draws:
        return _Draws(*(np.concatenate(both, axis=1) for both in zip(self, more, strict=True)))


def _draw_more(
    chains: Transition,
    chosen: NDArray[np.int64],
    sweep: int,
    n_draws: int,
    random: _Random,
    stop: threading.Event,
) -> _Draws:
    """Continue the chosen chains with fixed steps."""
    found, heights, rates = [], [], []
    for s in range(1, n_draws + 1):
        if stop.is_set():
            raise InterruptedError
        rates.append(_sweep(chains, random, chosen, sweep + s, 0.0))
        found.append(chains.x[chosen])
        heights.append(chains.density[chosen])
    return _Draws(np.stack(found, 1), np.stack(heights, 1), np.stack(rates, 1))


def diagnose(chains: Array) -> tuple[float, float]:
    """Largest split R-hat and smallest effective number of draws of chains (n_chains, n_draws, d).

    By arviz. A coordinate that never moves has neither. NaN if none has, as where draws are too few
    for arviz.
    """
    from arviz_stats.base.array import array_stats

    by_coordinate = np.moveaxis(chains, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = array_stats.rhat(by_coordinate, chain_axis=1, draw_axis=2, method="split")
        ess = array_stats.ess(by_coordinate, chain_axis=1, draw_axis=2, method="mean")
    return float(np.fmax.reduce(r_hat)), float(np.fmin.reduce(ess))


def split_r_hat(chains: Array) -> Array:
    """Split R-hat of every coordinate of chains (n_chains, n_draws, d): (d,).

    Gelman and Rubin's ratio of what the variance would be, were the halves of all chains draws of
    one distribution, to what it is within them. The same figure as arviz's ``method="split"``, for
    all coordinates at once: this one decides when to stop. Infinite for what never moves.
    """
    n_chains, n_draws, d = chains.shape
    half = n_draws // 2
    halves = np.concatenate([chains[:, :half], chains[:, n_draws - half :]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    ratio = np.sqrt((half - 1) / half + between / np.maximum(within, 1e-300))
    return np.where(within > 0.0, ratio, np.inf)
