"""The most plausible warp: Levenberg-Marquardt on the posterior, coarse to fine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align.posterior import Posterior

Array = NDArray[np.float64]

# A search ends when a step promises less log-density than this: far below what shows in the
# posterior, whose log-density varies by about d/2 over its bulk.
SMALLEST_GAIN = 0.05
# Likewise at resolutions that only serve to find a place to start from.
SMALLEST_COARSE_GAIN = 0.5
# Gains below this are rounding, as between identical images: no step is tried.
ROUNDING = 1e-6
# Noise is brought down by this factor at a time, until what is left is no more than the other.
COOLING, LAST_COOLING = 2.0, 1.4
# Damping of the first step, so light that it promises what an undamped one does.
FIRST_DAMPING = 1e-3
# Images between pixels have kinks, and a maximum on one has a slope that promises gains for ever.
# There a search ends when steps have shrunk to nothing by damping, or when so many steps in a row
# have led up by less than the smallest gain.
LARGEST_DAMPING, MAX_IDLE = 1e6, 2


class Maximum(NamedTuple):
    """Where a search has ended."""

    x: Array  # (n, d)
    density: Array  # (n,)
    converged: NDArray[np.bool_]  # (n,)
    n_steps: NDArray[np.int64]  # (n,)


def find_maximum(
    levels: Sequence[Posterior],
    excess: Array,
    *,
    max_steps: int,
    smallest_gain: float = SMALLEST_GAIN,
) -> Maximum:
    """Search from the identity, on coarse images first; the last level is what counts.

    Where noise is small, the posterior has many peaks, and the nearest is hardly ever the highest.
    So the search begins as if the noise were what explains the whole difference of two images, and
    brings it down step by step. What this suggests is taken up only if it is better than the
    identity, so that the log-density is never lower than the identity's.

    Parameters
    ----------
    levels : sequence of Posterior
        From coarse to fine.
    excess : (n,)
        By how much the images differ before they are aligned, in units of the noise: 1 if no more.
    smallest_gain : float
        The search ends when a step promises less log-density than this.
    """
    everyone, fine = np.arange(len(levels[-1])), levels[-1]
    x = np.zeros((len(everyone), fine.coordinates.dim))
    n_steps = np.zeros(len(x), np.int64)
    for level, factor in _stages(levels, excess):
        wanted = np.flatnonzero((factor > 1.0) | (level is not fine))
        eased = level.tempered(1.0 / factor**2)
        start = eased.log_density(x[wanted], wanted)
        found = climb(
            eased, x[wanted], start, wanted, max_steps=max_steps, smallest_gain=SMALLEST_COARSE_GAIN
        )
        x[wanted] = found.x
        n_steps[wanted] += found.n_steps
    density, suggested = fine.log_density(np.zeros_like(x), everyone), np.flatnonzero(x.any(axis=1))
    found_there = fine.log_density(x[suggested], suggested)
    worse = suggested[~(found_there > density[suggested])]
    density[suggested] = np.maximum(density[suggested], found_there)
    x[worse] = 0.0
    fine.log_density(x[worse], worse)
    found = climb(fine, x, density, everyone, max_steps=max_steps, smallest_gain=smallest_gain)
    return found._replace(n_steps=n_steps + found.n_steps)


def _stages(levels: Sequence[Posterior], excess: Array) -> Iterator[tuple[Posterior, Array]]:
    """Posteriors to climb in turn, and what the noise is multiplied by meanwhile (n,)."""
    for level in levels[:-1]:
        for start in (COOLING, 1.0):
            yield level, np.maximum(start * excess, 1.0)
    while (excess > LAST_COOLING).any():
        yield levels[-1], np.where(excess > LAST_COOLING, excess, 1.0)
        excess = excess / COOLING


def climb(
    posterior: Posterior,
    x: Array,
    density: Array,
    pairs: NDArray[np.int64],
    *,
    max_steps: int,
    smallest_gain: float,
) -> Maximum:
    """Climb from x (n, d) of some pairs (n,), whose log-density was the last to be asked for.

    Every step is up: one that would lead down is shortened instead. A pair has converged when the
    undamped step promises less than ``smallest_gain``; that step is the last.
    """
    n, d = x.shape
    x, density = x.copy(), density.copy()
    gradients, hessians = np.empty((n, d)), np.empty((n, d, d))
    damping, raise_by = np.full(n, FIRST_DAMPING), np.full(n, 4.0)
    converged = np.zeros(n, bool)
    n_steps, n_idle = np.zeros(n, np.int64), np.zeros(n, np.int64)
    active, moved = np.isfinite(density), np.ones(n, bool)

    def solve(chosen: NDArray[np.int64], damping: Array) -> tuple[Array, Array]:
        """Steps (k, d) of the chosen, and the gain that each promises (k,)."""
        steps = np.empty((len(chosen), d))
        algebra.solve_damped(
            0, len(chosen), hessians, chosen, posterior.precision, damping, gradients[chosen], steps
        )
        return steps, 0.5 * np.einsum("nd,nd->n", steps, gradients[chosen])

    for _ in range(max_steps):
        new = np.flatnonzero(active & moved)
        posterior.put_derivatives(x[new], pairs[new], new, gradients, hessians)
        moved[new] = False
        chosen = np.flatnonzero(active)
        steps, promised = solve(chosen, damping[chosen])
        uphill = promised > ROUNDING
        converged[chosen[~uphill]], active[chosen[~uphill]] = True, False
        chosen, steps, promised = chosen[uphill], steps[uphill], promised[uphill]
        last = ~(promised >= smallest_gain)
        # Strong damping makes any step promise little: only the undamped one tells.
        unsure = np.flatnonzero(last & (damping[chosen] > FIRST_DAMPING))
        last[unsure] = ~(solve(chosen[unsure], np.zeros(len(unsure)))[1] >= smallest_gain)
        trial = x[chosen] + steps
        found = posterior.log_density(trial, pairs[chosen])
        n_steps[chosen] += 1
        gain = found - density[chosen]
        better = gain > 0.0
        up, down = chosen[better], chosen[~better]
        x[up], density[up], moved[up] = trial[better], found[better], True
        kept = gain[better] / promised[better]
        damping[up] *= np.where(kept > 0.5, 0.2, np.where(kept > 0.2, 1.0, 3.0))
        damping[down] *= raise_by[down]
        raise_by[up], raise_by[down] = 4.0, 2.0 * raise_by[down]
        n_idle[up] = np.where(gain[better] < smallest_gain, n_idle[up] + 1, 0)
        last |= (n_idle[chosen] == MAX_IDLE) | (damping[chosen] > LARGEST_DAMPING)
        converged[chosen[last]], active[chosen[last]] = True, False
        if not active.any():
            break
    return Maximum(x, density, converged, n_steps)
