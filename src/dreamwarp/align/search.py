"""The most plausible warp: Levenberg-Marquardt on the posterior, coarse to fine."""

from __future__ import annotations

from collections.abc import Sequence
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
# Damping of the first step, and damping past which steps have shrunk to nothing.
FIRST_DAMPING, LARGEST_DAMPING = 1e-3, 1e6


class Maximum(NamedTuple):
    """Where a search has ended."""

    x: Array  # (n, d)
    density: Array  # (n,)
    converged: NDArray[np.bool_]  # (n,)
    n_steps: NDArray[np.int64]  # (n,)


def find_maximum(levels: Sequence[Posterior], *, max_steps: int) -> Maximum:
    """Search from the identity, on coarse images first; the last level is what counts.

    What coarse images suggest is taken up only if it is better than the identity, so that the
    log-density is never lower than the identity's.
    """
    everyone = np.arange(len(levels[-1]))
    x = np.zeros((len(everyone), levels[-1].coordinates.dim))
    n_steps = np.zeros(len(x), np.int64)
    for level in levels[:-1]:
        start = level.log_density(x, everyone)
        found = climb(level, x, start, max_steps=max_steps, smallest_gain=SMALLEST_COARSE_GAIN)
        x, n_steps = found.x, n_steps + found.n_steps
    fine = levels[-1]
    density, suggested = fine.log_density(np.zeros_like(x), everyone), np.flatnonzero(x.any(axis=1))
    found_there = fine.log_density(x[suggested], suggested)
    worse = suggested[~(found_there > density[suggested])]
    density[suggested] = np.maximum(density[suggested], found_there)
    x[worse] = 0.0
    fine.log_density(x[worse], worse)
    found = climb(fine, x, density, max_steps=max_steps, smallest_gain=SMALLEST_GAIN)
    return found._replace(n_steps=n_steps + found.n_steps)


def climb(
    posterior: Posterior, x: Array, density: Array, *, max_steps: int, smallest_gain: float
) -> Maximum:
    """Climb from x (n, d), whose log-density must be the last that the posterior was asked for.

    Every step is up: one that would lead down is shortened instead.
    """
    n, d = x.shape
    x, density = x.copy(), density.copy()
    gradients, hessians = np.empty((n, d)), np.empty((n, d, d))
    damping, raise_by = np.full(n, FIRST_DAMPING), np.full(n, 4.0)
    converged, n_steps = np.zeros(n, bool), np.zeros(n, np.int64)
    active, moved = np.isfinite(density), np.ones(n, bool)
    for _ in range(max_steps):
        new = np.flatnonzero(active & moved)
        gradients[new], hessians[new] = posterior.derivatives(x[new], new)
        moved[new] = False
        chosen = np.flatnonzero(active)
        steps = solve(hessians[chosen], posterior.precision, damping[chosen], gradients[chosen])
        promised = 0.5 * np.einsum("nd,nd->n", steps, gradients[chosen])
        small = ~(promised >= smallest_gain)
        converged[chosen[small]], active[chosen[small]] = True, False
        chosen, steps, promised = chosen[~small], steps[~small], promised[~small]
        if not len(chosen):
            break
        trial = x[chosen] + steps
        found = posterior.log_density(trial, chosen)
        n_steps[chosen] += 1
        gain = found - density[chosen]
        better = gain > 0.0
        up, down = chosen[better], chosen[~better]
        x[up], density[up], moved[up] = trial[better], found[better], True
        kept = gain[better] / promised[better]
        damping[up] *= np.where(kept > 0.5, 0.2, np.where(kept > 0.2, 1.0, 3.0))
        damping[down] *= raise_by[down]
        raise_by[up], raise_by[down] = 4.0, 2.0 * raise_by[down]
        ended = np.concatenate(
            [up[gain[better] < smallest_gain], down[damping[down] > LARGEST_DAMPING]]
        )
        converged[ended], active[ended] = True, False
    return Maximum(x, density, converged, n_steps)


def solve(hessians: Array, precision: Array, damping: Array, gradients: Array) -> Array:
    """Levenberg-Marquardt steps: (n, d, d), (d, d), (n,), (n, d) to (n, d)."""
    steps = np.empty(gradients.shape)
    algebra.solve_damped(0, len(steps), hessians, precision, damping, gradients, steps)
    return steps
