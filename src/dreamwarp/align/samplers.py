"""Metropolis-Hastings and Hamiltonian Monte Carlo, with a Gaussian that approximates the posterior.

Let N(m, (Uᵀ U)⁻¹) be that Gaussian: Laplace's approximation at first, then fitted to the chains
during burn-in. With z = U (x - m), the posterior of z is a standard normal density times a
correction. Steps are reversible for the normal density, so only the correction can reject them, and
they may be long. Their size is adapted for each chain during burn-in and fixed while draws are
kept.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.posterior import Array, Posterior
from dreamwarp.align.surrogate import Surrogate

# Proposals per sweep of Metropolis.
N_PROPOSALS = 8
# Mean length of Hamiltonian trajectories. They decorrelate after π/2 if the Gaussian fits, and
# later where the posterior is wider.
TRAJECTORY_LENGTH = 0.75 * np.pi


class Sampler:
    """Chains of a block of pairs, from initial states x (n, d).

    ``posterior`` has one pair per chain. ``surrogate`` holds the approximating Gaussians, and may
    be replaced during burn-in.
    """

    acceptance: ClassVar[float]  # target rate
    first_step: ClassVar[float]
    shortest_step: ClassVar[float]
    longest_step: ClassVar[float]
    n_normals: int  # random numbers per sweep of a chain
    n_uniforms: int

    def __init__(self, posterior: Posterior, surrogate: Surrogate, x: Array) -> None:
        self.posterior, self.surrogate, self.x = posterior, surrogate, x.copy()
        self.density = posterior.log_density(self.x, np.arange(len(x)))
        self._log_step = np.full(len(x), np.log(self.first_step))

    def sweep(
        self, chosen: NDArray[np.int64], normals: Array, uniforms: Array, adaptation: float
    ) -> Array:
        """Advance the chosen chains (k,); return the mean acceptance probability of each.

        ``normals`` are (k, n_normals), ``uniforms`` (k, n_uniforms). ``adaptation`` is the rate of
        adaptation of the step size; 0 after burn-in.
        """
        raise NotImplementedError

    def _adapt(self, chosen: NDArray[np.int64], probability: Array, adaptation: float) -> None:
        """Change the step sizes of the chosen chains toward the target acceptance rate."""
        log_step = self._log_step[chosen] + adaptation * (probability - self.acceptance)
        limits = np.log(self.shortest_step), np.log(self.longest_step)
        self._log_step[chosen] = np.clip(log_step, *limits)


class Metropolis(Sampler):
    """Metropolis-Hastings with autoregressive proposals (Neal 1998).

    A proposal is z' = ρ z + √(1 - ρ²) ε, ε ~ N(0, I). It is accepted with probability
    min(1, r(x') / r(x)), where r is the ratio of the posterior to the Gaussian (Hastings 1970). The
    step size is √(1 - ρ²).

    The paper changes the velocity of one vertex at a time. Under a smooth prior a vertex is almost
    determined by its neighbours. When such moves were added to these, digits on (4, 4) cells gave
    0.6 times as many effective draws per second, and digits on (8, 8) cells equally many.
    """

    # Between the optimum in many dimensions, 0.234, and in one, 0.44 (Roberts and Rosenthal 2001).
    acceptance = 0.3
    first_step, shortest_step, longest_step = 0.7, 0.01, 1.0

    def __init__(self, posterior: Posterior, surrogate: Surrogate, x: Array) -> None:
        super().__init__(posterior, surrogate, x)
        self.n_normals, self.n_uniforms = N_PROPOSALS * x.shape[1], N_PROPOSALS

    def sweep(
        self, chosen: NDArray[np.int64], normals: Array, uniforms: Array, adaptation: float
    ) -> Array:
        """Make ``N_PROPOSALS`` proposals for the chosen chains."""
        rates = np.zeros(len(chosen))
        for some, uniform in zip(np.split(normals, N_PROPOSALS, axis=1), uniforms.T, strict=True):
            trial, correction = self._propose(chosen, some)
            density = self.posterior.log_density(trial, chosen)
            log_ratio = density - self.density[chosen] + correction
            probability = np.exp(np.minimum(log_ratio, 0.0))
            taken = uniform < probability
            moved = chosen[taken]
            self.x[moved], self.density[moved] = trial[taken], density[taken]
            self._adapt(chosen, probability, adaptation)
            rates += probability / N_PROPOSALS
        return rates

    def _propose(self, chosen: NDArray[np.int64], normals: Array) -> tuple[Array, Array]:
        """Proposals (k, d), and log N(x) - log N(x') of the approximating Gaussian (k,)."""
        step = np.exp(self._log_step[chosen])[:, None]
        white = self.surrogate.whiten(self.x[chosen], chosen)
        moved = np.sqrt(np.maximum(1.0 - step * step, 0.0)) * white + step * normals
        correction = 0.5 * np.einsum("nd,nd->n", moved - white, moved + white)
        return self.surrogate.unwhiten(moved, chosen), correction


class Hamiltonian(Sampler):
    """Hamiltonian Monte Carlo with split dynamics (Shahbaba, Lan, Johnson and Neal 2014).

    The dynamics of z under the normal density are a rotation, which is computed exactly. Only the
    correction is integrated numerically, so a trajectory long enough to decorrelate takes few
    gradients.
    """

    acceptance = 0.75  # Beskos and others 2013: 0.65 and above
    first_step, shortest_step, longest_step = 0.5, 0.05, 0.5 * np.pi

    def __init__(self, posterior: Posterior, surrogate: Surrogate, x: Array) -> None:
        super().__init__(posterior, surrogate, x)
        self._gradient = posterior.derivatives(self.x, np.arange(len(x)), second=False)[0]
        self.n_normals, self.n_uniforms = x.shape[1], 2

    def sweep(
        self, chosen: NDArray[np.int64], normals: Array, uniforms: Array, adaptation: float
    ) -> Array:
        """One trajectory of the chosen chains."""
        length = TRAJECTORY_LENGTH * (0.75 + 0.5 * uniforms[:, 1])  # random, to avoid resonance
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
        self._adapt(chosen, probability, adaptation)
        return probability

    def _travel(
        self,
        chosen: NDArray[np.int64],
        z: Array,
        momentum: Array,
        n_steps: NDArray[np.int64],
        step: Array,
    ) -> tuple[Array, Array, Array, Array]:
        """Ends of trajectories: x, log-density, its gradient with respect to x, momentum."""
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
            x[going] = self.surrogate.unwhiten(turned, who)
            density[going] = self.posterior.log_density(x[going], who)
            lost = ~np.isfinite(density[going])
            n_steps[going[lost]] = s + 1  # overflow: rejected
            kept = going[~lost]
            gradient[kept] = self.posterior.derivatives(x[kept], chosen[kept], second=False)[0]
            force[kept] = self.surrogate.pull(gradient[kept], chosen[kept]) + z[kept]
            momentum[kept] += 0.5 * step[kept, None] * force[kept]
        return x, density, gradient, momentum
