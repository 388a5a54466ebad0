"""The paper's sampler: Metropolis with localised Gaussian proposals.

A proposal changes the velocity at one vertex and leaves all others as they are; paths that never
come near it are not followed anew. In between come proposals that change all vertices together:
under a smooth prior neighbours all but fix a vertex, and one at a time would get nowhere. Most of a
sweep is made of those: they are what takes a chain through the posterior. Burn-in is Hamiltonian
for the most part (see ``chains``); draws that are kept are of the proposals here.

Within a window W proposals are autoregressive: with N(m, H⁻¹) a Gaussian that resembles the
posterior and c its conditional mean of x_W given the rest,

    x'_W = c + ρ (x_W - c) + √(1 - ρ²) ε,    ε ~ N(0, H_WW⁻¹).

These are reversible for that Gaussian, so the chain's target is the posterior p if a proposal is
accepted with probability min(1, r(x') / r(x)), r = p / N(m, H⁻¹): what the Gaussian explains can't
get a proposal rejected, and steps may be long. ρ is adapted during burn-in, for every chain, once
for all vertices together and once for those alone, and held while draws are kept. (Metropolis and
others 1953 had a uniform proposal, ρ = 1 as it were; Hastings 1970 the ratio. The autoregressive
form is Neal's, 1998.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align import image_kernels as kernels
from dreamwarp.align.posterior import Coordinates, Posterior
from dreamwarp.align.recorded_paths import WORD
from dreamwarp.align.surrogate import Surrogate
from dreamwarp.core.compiled import count_chunks

Array = NDArray[np.float64]

# Acceptance rate that steps are adapted to: between what is best in many dimensions, 0.234, and in
# one, 0.44 (Roberts and Rosenthal 2001).
ACCEPTANCE = 0.3
FIRST_STEP, SHORTEST_STEP = 0.7, 0.01
# Proposals of a sweep that change all vertices together, and one at a time.
N_TOGETHER, N_ALONE = 8, 5


class Window(NamedTuple):
    """Coordinates that are changed together."""

    coordinates: NDArray[np.int64]
    changed: NDArray[np.uint64]  # (words,), the set of nodes that change with them


def find_windows(coordinates: Coordinates) -> list[Window]:
    """Windows: all coordinates first, then each vertex that can move."""
    n_words = count_words(coordinates)
    everything = Window(np.arange(coordinates.dim), np.full(n_words, ~np.uint64(0)))
    if coordinates.mixing is not None:  # coordinates that belong to no vertex
        return [everything]
    alone = []
    for unknowns in np.unique(coordinates.unknown, axis=1).T:  # glued vertices are one
        nodes = np.flatnonzero((coordinates.unknown == unknowns[:, None]).all(axis=0))
        changed = np.zeros(n_words, np.uint64)
        np.bitwise_or.at(changed, nodes // WORD, np.uint64(1) << (nodes % WORD).astype(np.uint64))
        if (unknowns >= 0).any():
            alone.append(Window(unknowns[unknowns >= 0], changed))
    return [everything, *alone]


def count_words(coordinates: Coordinates) -> int:
    """Words that hold a set of nodes."""
    return count_chunks(len(coordinates.mesh.nodes), WORD)


class Metropolis:
    """Chains of a block of pairs.

    Parameters
    ----------
    posterior : Posterior
        Of the pair of every chain, with a record of the nodes that paths met.
    surrogate : Surrogate
        For those pairs; what is put in its place during burn-in is used from then on.
    x : (n, d)
        Where the chains start.
    """

    def __init__(self, posterior: Posterior, surrogate: Surrogate, x: Array) -> None:
        self.posterior, self.x = posterior, x.copy()
        self.density = posterior.log_density(self.x, np.arange(len(x)))
        self.windows = find_windows(posterior.coordinates)
        self.surrogate = surrogate
        self._log_step = np.full((len(x), 2), np.log(FIRST_STEP))  # together, alone
        self._backup = kernels.Backup(
            np.empty(posterior.states.regions.shape, np.int64), np.zeros(len(x), np.int64),
            posterior.make_states(),
        )  # fmt: skip
        self._n_sweeps = 0
        self._n_alone = min(N_ALONE, len(self.windows) - 1)
        # The numbers of vertices alone come after those of proposals for all of them.
        widest = max((len(window.coordinates) for window in self.windows[1:]), default=0)
        self.n_normals = N_TOGETHER * x.shape[1] + self._n_alone * widest
        self.n_uniforms = N_TOGETHER + self._n_alone

    @property
    def surrogate(self) -> Surrogate:
        """The Gaussian that proposals are reversible for."""
        return self._surrogate

    @surrogate.setter
    def surrogate(self, surrogate: Surrogate) -> None:
        self._surrogate = surrogate
        alone = [_window_factors(surrogate, window) for window in self.windows[1:]]
        self._factors = [surrogate.factors, *alone]

    def sweep(
        self, chosen: NDArray[np.int64], normals: Array, uniforms: Array, adaptation: float
    ) -> Array:
        """Propose changes, of all vertices and of the next few in turn, for the chosen chains (k,).

        Parameters
        ----------
        normals, uniforms : (k, n_normals), (k, n_uniforms)
        adaptation : float
            How far to adapt the length of steps: 0 after burn-in.

        Returns
        -------
        Mean acceptance probability of each chain, (k,).
        """
        accepted, first = np.zeros(len(chosen)), 0
        limits = np.log(SHORTEST_STEP), 0.0
        for place, w in enumerate(self._next_windows()):
            window = self.windows[w]
            last = first + len(window.coordinates)
            steps, excess = self._draw(chosen, w, normals[:, first:last])
            probability = self._propose(chosen, window, steps, excess, uniforms[:, place])
            log_step = self._log_step[chosen, min(w, 1)] + adaptation * (probability - ACCEPTANCE)
            self._log_step[chosen, min(w, 1)] = np.clip(log_step, *limits)
            accepted += probability / self.n_uniforms
            first = last
        return accepted

    def _next_windows(self) -> list[int]:
        """Numbers of the windows of a sweep: vertices take turns over sweeps."""
        first = self._n_sweeps * self._n_alone
        self._n_sweeps += 1
        turns = [1 + (first + i) % (len(self.windows) - 1) for i in range(self._n_alone)]
        return [0] * N_TOGETHER + turns

    def _draw(self, chosen: NDArray[np.int64], w: int, normals: Array) -> tuple[Array, Array]:
        """Steps within a window, and how much they change the surrogate's log-density."""
        step = np.exp(self._log_step[chosen, min(w, 1)])[:, None]  # √(1 - ρ²)
        kept = np.sqrt(np.maximum(1.0 - step * step, 0.0))
        factors = self._factors[w]
        if w == 0:
            white = self.surrogate.whiten(self.x[chosen], chosen)
        else:  # with e = H_WW⁻¹ (H (x - m))_W, the conditional mean is x_W - e
            coordinates = self.windows[w].coordinates
            white = self.surrogate.push(self.x[chosen], chosen, coordinates)
            algebra.divide_all(0, len(white), factors, chosen, True, white)
        # In units of the conditional spread: from white to ρ white + √(1 - ρ²) normals.
        moved = kept * white + step * normals
        excess = 0.5 * np.einsum("nw,nw->n", white - moved, white + moved)
        steps = np.ascontiguousarray(moved - white)
        algebra.divide_all(0, len(steps), factors, chosen, False, steps)
        return steps, excess

    def _propose(
        self,
        chosen: NDArray[np.int64],
        window: Window,
        steps: Array,
        excess: Array,
        uniforms: Array,
    ) -> Array:
        """Propose steps, take those that are accepted; returns acceptance probabilities."""
        trial = self.x[chosen]
        trial[:, window.coordinates] += steps
        everywhere = len(window.coordinates) == trial.shape[1]
        if everywhere:
            density = self.posterior.log_density(trial, chosen, self._backup.old)
        else:
            density, followed = self.posterior.log_density_nearby(
                trial, chosen, window.changed, self._backup
            )
        gain = density - self.density[chosen] - excess
        probability = np.exp(np.minimum(gain, 0.0))
        taken = uniforms < probability
        moved = chosen[taken]
        self.x[moved], self.density[moved] = trial[taken], density[taken]
        if everywhere:
            self.posterior.adopt(self._backup.old, moved)
        else:
            undone = chosen[followed & ~taken]
            kernels.restore(0, len(undone), undone, self._backup, self.posterior.states)
        return probability


def _window_factors(surrogate: Surrogate, window: Window) -> Array:
    """Factors of the block of the surrogate's precisions of a window: (n, size, size)."""
    rows, columns = np.meshgrid(window.coordinates, window.coordinates, indexing="ij")
    upper = np.minimum(rows, columns), np.maximum(rows, columns)
    blocks = np.ascontiguousarray(surrogate.matrices[:, upper[0], upper[1]])
    algebra.factorise_all(0, len(blocks), blocks, np.empty(len(blocks), np.bool_))
    return blocks
