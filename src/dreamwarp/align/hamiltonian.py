"""Hamiltonian Monte Carlo in coordinates where the posterior is nearly a standard Gaussian.

Let N(m, (Uᵀ U)⁻¹) be a Gaussian that approximates the posterior: Laplace's approximation at first,
then fitted to the chains during burn-in. With x = m + U⁻¹ z, the density of z is a standard normal
density times a correction. The dynamics under the normal density are a rotation, which is computed
exactly; only the correction is integrated numerically (Shahbaba, Lan, Johnson and Neal 2014), so a
trajectory long enough to decorrelate takes few gradients. The step length is adapted during burn-in
and fixed while draws are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.posterior import Posterior
from dreamwarp.align.surrogate import Surrogate

Array = NDArray[np.float64]

# Target acceptance rate (Beskos and others 2013: 0.65 and above).
ACCEPTANCE = 0.75
# Mean length of trajectories. They decorrelate after π/2 if the Gaussian fits, and later where the
# posterior is wider.
LENGTH = 0.75 * np.pi
FIRST_STEP, SHORTEST_STEP, LONGEST_STEP = 0.5, 0.05, 0.5 * np.pi


class Hamiltonian:
    """Chains of a block of pairs; parameters as for :class:`metropolis.Metropolis`."""

    def __init__(self, posterior: Posterior, surrogate: Surrogate, x: Array) -> None:
        self.posterior, self.surrogate = posterior, surrogate
        self.x = x.copy()
        everyone = np.arange(len(x))
        self.density = posterior.log_density(self.x, everyone)
        self._gradient = posterior.derivatives(self.x, everyone, second=False)[0]
        self._log_step = np.full(len(x), np.log(FIRST_STEP))
        self.n_normals, self.n_uniforms = x.shape[1], 2

    def sweep(
        self, chosen: NDArray[np.int64], normals: Array, uniforms: Array, adaptation: float
    ) -> Array:
        """One trajectory of the chosen chains; see :meth:`metropolis.Metropolis.sweep`."""
        length = LENGTH * (0.75 + 0.5 * uniforms[:, 1])  # random, to avoid resonance
        n_steps = np.ceil(length / np.exp(self._log_step[chosen])).astype(np.int64)
        step = length / n_steps
        z, momentum = self.surrogate.whiten(self.x[chosen], chosen), normals.copy()
        energy = self.density[chosen] - 0.5 * np.einsum("nd,nd->n", momentum, momentum)
        x, density, gradient, momentum = self._travel(chosen, z, momentum, n_steps, step)
        found = density - 0.5 * np.einsum("nd,nd->n", momentum, momentum)
        probability = np.exp(np.minimum(np.nan_to_num(found - energy, nan=-np.inf), 0.0))
        taken = uniforms[:, 0] < probability
        moved = chosen[taken]
        self.x[moved], self.density[moved] = x[taken], density[taken]
        self._gradient[moved] = gradient[taken]
        change = adaptation * (probability - ACCEPTANCE)
        limits = np.log(SHORTEST_STEP), np.log(LONGEST_STEP)
        self._log_step[chosen] = np.clip(self._log_step[chosen] + change, *limits)
        return probability

    def _travel(
        self,
        chosen: NDArray[np.int64],
        z: Array,
        momentum: Array,
        n_steps: NDArray[np.int64],
        step: Array,
    ) -> tuple[Array, Array, Array, Array]:
        """Ends of trajectories: x, density, gradient with respect to x, momentum."""
        x, density = self.x[chosen], self.density[chosen]
        gradient = self._gradient[chosen]
        force = self.surrogate.pull(gradient, chosen) + z
        cosine, sine = np.cos(step)[:, None], np.sin(step)[:, None]
        for s in range(int(n_steps.max(initial=0))):
            going = np.flatnonzero(n_steps > s)
            momentum[going] += 0.5 * step[going, None] * force[going]
            turned = cosine[going] * z[going] + sine[going] * momentum[going]
            momentum[going] = cosine[going] * momentum[going] - sine[going] * z[going]
            z[going], who = turned, chosen[going]
            x[going] = self.surrogate.spread(turned, who)
            density[going] = self.posterior.log_density(x[going], who)
            lost = ~np.isfinite(density[going])
            n_steps[going[lost]] = s + 1  # overflow: rejected
            kept = going[~lost]
            gradient[kept] = self.posterior.derivatives(x[kept], chosen[kept], second=False)[0]
            force[kept] = self.surrogate.pull(gradient[kept], chosen[kept]) + z[kept]
            momentum[kept] += 0.5 * step[kept, None] * force[kept]
        return x, density, gradient, momentum
