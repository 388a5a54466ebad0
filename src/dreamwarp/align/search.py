"""Posterior modes: Levenberg-Marquardt from coarse to fine images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align.posterior import Array, Posterior
from dreamwarp.core.defaults import SEARCH_TOLERANCE

# At coarse resolutions, which only provide an initial point, a search ends when the predicted gain
# of a step in log-density is less than this.
SMALLEST_COARSE_GAIN = 0.5
# Predicted gains below this are rounding, as for identical images: no step is tried.
ROUNDING = 1e-6
# Noise is reduced by the first factor per stage, until the remaining excess is below the second.
COOLING, LAST_COOLING = 2.0, 1.4
# Smallest damping, also that of the first step: so small that the predicted gain is that of the
# undamped step. Smallest damping after a failed step: less would hardly change the step.
LEAST_DAMPING, DAMPING_AFTER_FAILURE = 1e-3, 0.1
# After a step the damping is multiplied by 0.2, 1 or 3: its gain was more than half of what was
# predicted, more than a fifth, or less. After a failed step it is multiplied by 4, then 8, and so
# on.
GOOD, FAIR = 0.5, 0.2
AFTER_GOOD, AFTER_FAIR, AFTER_POOR, AFTER_FAILURE = 0.2, 1.0, 3.0, 4.0
# Interpolated images have kinks. At a maximum on a kink the slope is not zero, and the predicted
# gain never becomes small. Such a search ends when damping exceeds LARGEST_DAMPING, or when
# MAX_IDLE successful steps in a row have gained less than ``smallest_gain``.
LARGEST_DAMPING, MAX_IDLE = 1e6, 2


class Maximum(NamedTuple):
    """Result of a search."""

    x: Array  # (n, d)
    density: Array  # (n,)
    converged: NDArray[np.bool_]  # (n,)
    n_steps: NDArray[np.int64]  # (n,)


def find_maximum(
    levels: Sequence[Posterior],
    excess: Array,
    *,
    max_steps: int,
    smallest_gain: float = SEARCH_TOLERANCE,
) -> Maximum:
    """Search from the identity, from coarse to fine levels; returns maxima of the last level.

    With small noise the posterior has many modes, and the nearest is rarely the highest. So the
    search starts with a noise that explains the whole difference of the images, and reduces it in
    stages. Their result is used only if it is better than the identity.

    ``excess`` (n,) is the root mean square difference of the images before alignment, in units of
    the noise. The search ends when the predicted gain of a step is less than ``smallest_gain``.
    """
    all_pairs, fine = np.arange(len(levels[-1])), levels[-1]
    x = np.zeros((len(all_pairs), fine.coordinates.dim))
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
    density, suggested = fine.log_density_of_identity(), np.flatnonzero(x.any(axis=1))
    found_there = fine.log_density(x[suggested], suggested)
    worse = suggested[~(found_there > density[suggested])]
    density[suggested] = np.maximum(density[suggested], found_there)
    x[worse] = 0.0
    # ``climb`` differentiates at the stored states: move pairs put back to the identity there too.
    at_identity = np.flatnonzero(~x.any(axis=1))
    fine.move(x[at_identity], at_identity)
    found = climb(fine, x, density, all_pairs, max_steps=max_steps, smallest_gain=smallest_gain)
    return found._replace(n_steps=n_steps + found.n_steps)


def _stages(levels: Sequence[Posterior], excess: Array) -> Iterator[tuple[Posterior, Array]]:
    """Posteriors to maximise in turn, each with factors (n,) of the noise."""
    for level in levels[:-1]:
        yield level, np.maximum(excess, 1.0)
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
    """Maximise from x (n, d) of the given pairs (n,).

    ``density`` must be the posterior's last ``log_density``, computed at x for these pairs. A step
    that would decrease the density is not taken, and the next one is damped more. A pair has
    converged when the predicted gain of the undamped step is less than ``smallest_gain``; that
    step is the last.
    """
    n, d = x.shape
    x, density = x.copy(), density.copy()
    gradients, hessians = np.empty((n, d)), np.empty((n, d, d))
    damping, raise_by = np.full(n, LEAST_DAMPING), np.full(n, AFTER_FAILURE)
    converged = np.zeros(n, bool)
    n_steps, n_idle = np.zeros(n, np.int64), np.zeros(n, np.int64)
    active, moved = np.isfinite(density), np.ones(n, bool)

    def solve(chosen: NDArray[np.int64], damping: Array) -> tuple[Array, Array]:
        """Steps (k, d) of the chosen pairs, and their predicted gains (k,)."""
        steps = np.empty((len(chosen), d))
        algebra.solve_damped(
            0, len(chosen), hessians, chosen, posterior.precision, damping, gradients[chosen], steps
        )
        return steps, 0.5 * np.einsum("nd,nd->n", steps, gradients[chosen])

    for _ in range(max_steps):
        new = np.flatnonzero(active & moved)
        gradients[new], hessians[new] = posterior.derivatives(x[new], pairs[new])
        moved[new] = False
        chosen = np.flatnonzero(active)
        steps, predicted = solve(chosen, damping[chosen])
        uphill = predicted > ROUNDING
        converged[chosen[~uphill]], active[chosen[~uphill]] = True, False
        chosen, steps, predicted = chosen[uphill], steps[uphill], predicted[uphill]
        last = ~(predicted >= smallest_gain)
        # With strong damping every predicted gain is small: test the undamped step.
        unsure = np.flatnonzero(last & (damping[chosen] > LEAST_DAMPING))
        last[unsure] = ~(solve(chosen[unsure], np.zeros(len(unsure)))[1] >= smallest_gain)
        trial = x[chosen] + steps
        found = posterior.log_density(trial, pairs[chosen])
        n_steps[chosen] += 1
        gain = found - density[chosen]
        better = gain > 0.0
        up, down = chosen[better], chosen[~better]
        x[up], density[up], moved[up] = trial[better], found[better], True
        ratio = gain[better] / predicted[better]
        damping[up] *= np.select([ratio > GOOD, ratio > FAIR], [AFTER_GOOD, AFTER_FAIR], AFTER_POOR)
        damping[down] = np.maximum(damping[down] * raise_by[down], DAMPING_AFTER_FAILURE)
        damping = np.maximum(damping, LEAST_DAMPING)
        raise_by[up], raise_by[down] = AFTER_FAILURE, 2.0 * raise_by[down]
        n_idle[up] = np.where(gain[better] < smallest_gain, n_idle[up] + 1, 0)
        last |= (n_idle[chosen] == MAX_IDLE) | (damping[chosen] > LARGEST_DAMPING)
        converged[chosen[last]], active[chosen[last]] = True, False
        if not active.any():
            break
    return Maximum(x, density, converged, n_steps)
