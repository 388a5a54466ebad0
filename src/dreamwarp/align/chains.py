"""Posterior sampling: Markov chains of pairs, their length, and their convergence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.posterior import Array, Posterior
from dreamwarp.align.samplers import Hamiltonian, Metropolis, Sampler
from dreamwarp.align.search import SMALLEST_COARSE_GAIN, climb
from dreamwarp.align.surrogate import Surrogate
from dreamwarp.core import draws
from dreamwarp.core.defaults import MAX_DRAWS

# The first chain of a pair starts at the mode. The others start at modes found from draws of the
# prior, so far apart that R-hat reveals several modes. For these draws, this fraction of the
# likelihood's curvature is added to the prior, which may be improper.
LIKELIHOOD_SHARE = 1e-4
# Largest number of steps to those modes.
MAX_CLIMB = 20
# Step sizes are adapted at rate s^-DECAY in sweep s (Robbins and Monro: between 1/2 and 1).
DECAY = 0.6
# Number of surrogate fits during burn-in, and number of sweeps per Hessian used in a fit.
N_STAGES, HESSIAN_EVERY = 4, 4
# The last 1 / FINAL_SHARE of burn-in adapts step sizes only.
FINAL_SHARE = 5
# If chains have not converged after PATIENCE times the draws of the first test, a surrogate is
# fitted to these draws, N_READAPT sweeps adapt the step sizes, and the draws are dropped. Then the
# patience is doubled, and the next test is after 1 / FIRST_TEST of it: slow chains need more draws.
PATIENCE, N_READAPT, FIRST_TEST = 7, 20, 4
# Sweep s of chain c of pair k uses the random numbers of sample (k 2^10 + c) 2^24 + s.
MAX_CHAINS, MAX_SWEEPS = 2**10, 2**24
# Largest number of sweeps to ask for. The rest are for adapting again: at most N_READAPT sweeps
# every time that the patience is doubled.
MOST_SWEEPS = MAX_SWEEPS // 2


@dataclass(frozen=True)
class ChainOptions:
    """Number and length of chains.

    Proposals are adapted during burn-in. Most sweeps of burn-in are Hamiltonian, also for
    Metropolis: these reach the bulk of the posterior fastest. A pair that has not converged after
    ``max_draws`` is reported.
    """

    n_chains: int = 2
    n_burn_in: int = 200  # sweeps before the first draw is kept
    n_draws: int = 50  # per chain, one per sweep, before the first test of convergence
    max_draws: int = MAX_DRAWS  # including those dropped when proposals are adapted again
    r_hat: float = 1.05  # the largest split R-hat of any coordinate that counts as convergence


class Sampled(NamedTuple):
    """Draws and diagnostics of the chains of n pairs."""

    draws: list[Array]  # (n_chains, n_draws, d) each: draws of x, without burn-in
    densities: list[Array]  # (n_chains, n_draws) each: their log-posteriors, up to a constant
    acceptance: Array  # (n,), mean acceptance rate of those draws
    r_hat: Array  # (n,), largest split R-hat of any coordinate
    n_sweeps: NDArray[np.int64]  # (n,), sweeps of each chain, including burn-in


def sample_posterior(
    method: str,
    posterior: Posterior,
    modes: Array,
    options: ChainOptions,
    *,
    seed: int,
    numbers: NDArray[np.int64],
    stop: threading.Event,
) -> Sampled:
    """Run chains for a block of pairs with given modes (n, d).

    The chains of the pair with number k depend on the seed and k alone, not on the block. Setting
    ``stop`` raises InterruptedError.
    """
    n, n_chains = len(modes), options.n_chains
    surrogate = Surrogate.at_modes(posterior, modes).repeated(n_chains)
    of_chains = posterior.repeated(n_chains)
    all_chains = np.arange(n * n_chains)
    first = (np.repeat(numbers * MAX_CHAINS, n_chains) + all_chains % n_chains) * MAX_SWEEPS
    normals = draws.normals(seed, first, modes.shape[1], stream=draws.Stream.ALIGNMENT, n_threads=1)
    x = _disperse(of_chains, surrogate, normals, n_chains)
    run = _Run(Hamiltonian(of_chains, surrogate, x), seed, first, stop)
    n_explored = options.n_burn_in - options.n_burn_in // FINAL_SHARE
    run.explore(n_explored, n_chains)
    if method == "metropolis":
        run.sampler = Metropolis(of_chains, run.sampler.surrogate, run.sampler.x)
    run.adapt_steps(all_chains, options.n_burn_in - n_explored)
    return _draw_until_converged(run, options, n)


def _disperse(posterior: Posterior, surrogate: Surrogate, normals: Array, n_chains: int) -> Array:
    """Initial states of chains (n * n_chains, d): the mode for the first chain of a pair.

    Each other chain climbs from a draw of the prior to a mode, possibly a different one. A chain
    that starts at the draw itself may be so far from the bulk that it never moves.
    """
    all_chains = np.arange(len(normals))
    others = np.flatnonzero(all_chains % n_chains)
    x = surrogate.centers.copy()
    likelihood = surrogate.matrices - posterior.precision
    prior = Surrogate(np.zeros_like(x), posterior.precision + LIKELIHOOD_SHARE * likelihood)
    wide = prior.unwhiten(normals[others], others)
    density = posterior.log_density(wide, others)
    x[others] = climb(
        posterior, wide, density, others, max_steps=MAX_CLIMB, smallest_gain=SMALLEST_COARSE_GAIN
    ).x
    stiff = ~np.isfinite(posterior.log_density(x, all_chains))
    x[stiff] = surrogate.centers[stiff]
    return x


class _Draws(NamedTuple):
    """Draws of some chains, their log-posteriors and their acceptance probabilities."""

    x: Array  # (k, n_draws, d)
    densities: Array  # (k, n_draws)
    rates: Array  # (k, n_draws)

    def split(self, n: int) -> Iterator[_Draws]:
        """Those of each of n pairs."""
        return map(_Draws, *(np.split(values, n) for values in self))

    def followed_by(self, more: _Draws) -> _Draws:
        return _Draws(*(np.concatenate(both, axis=1) for both in zip(self, more, strict=True)))


class _Run:
    """Sweeps of the chains of a block, in step, with numbered random draws."""

    def __init__(
        self, sampler: Sampler, seed: int, first: NDArray[np.int64], stop: threading.Event
    ) -> None:
        self.sampler, self.n_sweeps = sampler, 0
        self._seed, self._first, self._stop = seed, first, stop

    def sweep(self, chosen: NDArray[np.int64], adaptation: float) -> Array:
        """The next sweep of the chosen chains; returns acceptance rates (k,)."""
        if self._stop.is_set():
            raise InterruptedError
        self.n_sweeps += 1
        numbers, sampler = self._first[chosen] + self.n_sweeps, self.sampler
        normals = draws.normals(
            self._seed, numbers, sampler.n_normals, stream=draws.Stream.ALIGNMENT, n_threads=1
        )
        uniforms = draws.uniforms(
            self._seed, numbers, sampler.n_uniforms, stream=draws.Stream.ACCEPTANCE, n_threads=1
        )
        return sampler.sweep(chosen, normals, uniforms, adaptation)

    def explore(self, n_sweeps: int, n_chains: int) -> None:
        """Burn-in: fit the surrogate of every pair to its chains after each of ``N_STAGES`` stages.

        The first two stages have equal length; each later one is twice as long as the one before.
        A surrogate is fitted to the draws of a pair's chains and their mean Gauss-Newton Hessian.
        """
        all_chains, posterior = np.arange(len(self.sampler.x)), self.sampler.posterior
        for stage in range(N_STAGES - 1, -1, -1):
            n_left, found, hessians = n_sweeps // 2**stage - self.n_sweeps, [], []
            for s in range(1, n_left + 1):
                self.sweep(all_chains, s**-DECAY)
                x = self.sampler.x.copy()
                found.append(x)
                if (n_left - s) % HESSIAN_EVERY == 0:
                    posterior.move(x, all_chains)
                    hessians.append(posterior.derivatives(x, all_chains)[1])
            if len(found) > 3:
                d = posterior.coordinates.dim
                mean = np.mean(hessians, 0).reshape(-1, n_chains, d, d).mean(axis=1)
                self.sampler.surrogate = Surrogate.fitted(
                    np.stack(found, 1).reshape(len(mean), -1, d), mean + posterior.precision
                ).repeated(n_chains)

    def adapt_steps(self, chosen: NDArray[np.int64], n_sweeps: int) -> None:
        """Adapt the step sizes of the chosen chains."""
        for s in range(1, n_sweeps + 1):
            self.sweep(chosen, s**-DECAY)

    def draw(self, chosen: NDArray[np.int64], n_draws: int) -> _Draws:
        """Continue the chosen chains with fixed step sizes."""
        found, densities, rates = [], [], []
        for _ in range(n_draws):
            rates.append(self.sweep(chosen, 0.0))
            found.append(self.sampler.x[chosen])
            densities.append(self.sampler.density[chosen])
        return _Draws(np.stack(found, 1), np.stack(densities, 1), np.stack(rates, 1))


def _draw_until_converged(run: _Run, options: ChainOptions, n: int) -> Sampled:
    """Run chains until those of every pair have converged, or no draws are left.

    Draws from before the last change of a pair's surrogate are dropped, so that the kept draws of a
    chain are from one Markov chain whose target is the posterior.
    """
    sampler, n_chains, d = run.sampler, options.n_chains, run.sampler.x.shape[1]
    n_left, n_kept = options.max_draws, 0
    first_test, patience = options.n_draws, PATIENCE * options.n_draws
    none = _Draws(np.empty((n_chains, 0, d)), np.empty((n_chains, 0)), np.empty((n_chains, 0)))
    found, active = [none] * n, np.arange(n)  # draws of each pair, and the pairs that go on
    chosen = np.arange(n * n_chains)  # their chains
    chains = chosen.reshape(n, n_chains)
    r_hat, n_sweeps = np.full(n, np.inf), np.zeros(n, np.int64)
    while len(active):
        n_more = min(n_kept // 2 or first_test, n_left)
        for i, more in zip(active, run.draw(chosen, n_more).split(len(active)), strict=True):
            found[i] = found[i].followed_by(more)
            r_hat[i], n_sweeps[i] = split_r_hat(found[i].x).max(), run.n_sweeps
        n_kept, n_left = n_kept + n_more, n_left - n_more
        active = active[~(r_hat[active] <= options.r_hat) & (n_left > 0)]
        chosen = chains[active].ravel()
        if len(active) and n_kept >= patience and n_left >= 2 * patience:
            of_pairs = np.stack([found[i].x.reshape(-1, d) for i in active])
            sampler.surrogate = sampler.surrogate.refitted(chosen, of_pairs)
            run.adapt_steps(chosen, N_READAPT)
            found = [none if i in active else own for i, own in enumerate(found)]
            n_kept, patience = 0, 2 * patience
            first_test = patience // FIRST_TEST
    return Sampled(
        [each.x for each in found], [each.densities for each in found],
        np.array([each.rates.mean() for each in found]), r_hat, n_sweeps,
    )  # fmt: skip


def effective_size(chains: Array) -> float:
    """Smallest effective sample size of the coordinates of chains (n_chains, n_draws, d).

    Computed by arviz. Coordinates that never move are ignored. NaN if none moves, or if there are
    too few draws.
    """
    from arviz_stats.base.array import array_stats

    by_coordinate = np.moveaxis(chains, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = array_stats.ess(by_coordinate, chain_axis=1, draw_axis=2, method="mean")
    return float(np.fmin.reduce(ess))


def split_r_hat(chains: Array) -> Array:
    """Split R-hat of every coordinate of chains (n_chains, n_draws, d): (d,).

    Gelman and Rubin's ratio of the pooled variance to the variance within half-chains. Equal to
    arviz's ``method="split"``, but for all coordinates at once, to test convergence. Infinite for
    coordinates that never move.
    """
    n_chains, n_draws, d = chains.shape
    half = n_draws // 2
    halves = np.concatenate([chains[:, :half], chains[:, n_draws - half :]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    ratio = np.sqrt((half - 1) / half + between / np.maximum(within, 1e-300))
    return np.where(within > 0.0, ratio, np.inf)
