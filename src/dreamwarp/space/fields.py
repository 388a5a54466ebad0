"""Fields: velocity fields of one mesh, ready to be followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.space import exact, fast, line
from dreamwarp.space.compiled import spread
from dreamwarp.space.mesh import Mesh

Array = NDArray[np.float64]


def count_chunks(n_items: int, size: int) -> int:
    """How many chunks of at most ``size`` hold all items."""
    return -(-n_items // size)


@dataclass(frozen=True)
class Fields:
    """n velocity fields, with bounds on how violent each is.

    Attributes
    ----------
    mesh : Mesh
    velocities : (n, n_nodes, ndim)
    speed, rate, growth : (n,)
        See :func:`coordinates.node_velocities`. The same for a field and its reverse.
    n_threads : int or None
    """

    mesh: Mesh
    velocities: Array
    speed: Array
    rate: Array
    growth: Array
    n_threads: int | None

    def __len__(self) -> int:
        return len(self.velocities)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.mesh.cells)

    @property
    def _exact(self) -> Any:
        return line if self.ndim == 1 else exact

    def reversed(self) -> Fields:
        """The fields whose flow undoes that of these."""
        return Fields(
            self.mesh, -self.velocities, self.speed, self.rate, self.growth, self.n_threads
        )

    def only(self, chosen: NDArray[Any]) -> Fields:
        """The fields at an index."""
        return Fields(
            self.mesh, self.velocities[chosen], self.speed[chosen], self.rate[chosen],
            self.growth[chosen], self.n_threads,
        )  # fmt: skip

    # -- exact

    def flow_exactly(self, points: Array) -> Array:
        """φ_1 of points (n or 1, m, ndim): (n, m, ndim)."""
        out = np.empty((len(self), points.shape[1], self.ndim))
        n_tasks = len(self) * count_chunks(points.shape[1], exact.CHUNK)
        self._spread(self._exact.flow, n_tasks, self.velocities, points, 1.0, out)
        return out

    def carry_exactly(self, points: Array, cotangents: Array, *, add_up: bool = True) -> Array:
        """Carry cotangents (n, m, rows, ndim) along the paths from points (n, m, ndim), in place.

        Returns their integrals by node, (n, rows, n_nodes, ndim), see ``exact.follow``; unless they
        are not to be added up.
        """
        n_chunks = count_chunks(points.shape[1], exact.CHUNK)
        rows, n_nodes = cotangents.shape[2], self.velocities.shape[1] if add_up else 0
        sums = np.zeros((len(self), n_chunks, rows, n_nodes, self.ndim))
        n_tasks = len(self) * n_chunks
        self._spread(self._exact.pull_back, n_tasks, self.velocities, points, 1.0, cotangents, sums)
        return np.asarray(sums.sum(axis=1))

    # -- fast

    def flow_fast(self, points: Array, tolerance: float) -> NDArray[np.float32]:
        """φ_1 of points (n or 1, m, ndim) to a tolerance: (n, m, ndim)."""
        lengths = self.step_lengths(tolerance)
        gentle = lengths > 0
        out = np.empty((len(self), points.shape[1], self.ndim), np.float32)
        if not gentle.all():
            some = points if len(points) == 1 else points[~gentle]
            out[~gentle] = self.only(~gentle).flow_exactly(some)
            points = points if len(points) == 1 else points[gentle]
        nothing = np.empty((0, 0, 0)), np.empty((0, 0, 0, 0))
        self._walk(np.flatnonzero(gentle), lengths, points, out, *nothing)
        return out

    def sharpen(self, points: Array, ends: Array, tolerance: float) -> Array:
        """Ends of paths, with float64 ones where the way back is left to the exact flow.

        Fields as violent as that would make the rounding of the ends grow past all bounds.
        """
        violent = self.step_lengths(tolerance) == 0
        if not violent.any():
            return ends
        some = points if len(points) == 1 else points[violent]
        sharpened = ends.copy()
        sharpened[violent] = self.only(violent).flow_exactly(some)
        return sharpened

    def carry_fast(self, points: Array, cotangents: Array, tolerance: float) -> Array:
        """Carry cotangents (n, m, ndim) along the paths from points (n, m, ndim), in place.

        Returns their integrals by node, (n, n_nodes, ndim).
        """
        lengths = self.step_lengths(tolerance)
        gentle = lengths > 0
        n_chunks = count_chunks(points.shape[1], fast.CHUNK)
        sums = np.zeros((len(self), n_chunks, *self.velocities.shape[1:]))
        out = np.empty(points.shape, np.float32)
        chosen = np.flatnonzero(gentle)
        self._walk(chosen, lengths, points[chosen], out, cotangents, sums)
        total = np.asarray(sums.sum(axis=1))
        if not gentle.all():
            rest = cotangents[~gentle][:, :, None]
            total[~gentle] = self.only(~gentle).carry_exactly(points[~gentle], rest)[:, 0]
            cotangents[~gentle] = rest[:, :, 0]
        return total

    def step_lengths(self, tolerance: float) -> Array:
        """Longest step of the fast flow for each field; 0 where float32 can't keep to it."""
        lengths = np.empty(len(self))
        bounds = self.speed, self.rate, self.growth
        fast.step_lengths(0, len(self), self.mesh.cells, *bounds, tolerance, lengths)
        return lengths

    def _walk(
        self,
        chosen: NDArray[np.int64],
        lengths: Array,
        points: Array,
        out: NDArray[np.float32],
        cotangents: Array,
        sums: Array,
    ) -> None:
        n_tasks = len(chosen) * count_chunks(points.shape[1], fast.CHUNK)
        starts = self._locate(points)
        # A task of the walk takes some 20 ns per point.
        block = max(1, 8192 // max(1, min(points.shape[1], fast.CHUNK)))
        self._spread(
            fast.walk, n_tasks, self.velocities, chosen, lengths, starts, out, cotangents, sums,
            smallest_block=block,
        )  # fmt: skip

    def _locate(self, points: Array) -> tuple[NDArray[Any], ...]:
        """Region, weights and turns round the torus of points (k, m, ndim)."""
        flat = points.reshape(-1, self.ndim)
        regions = np.empty(len(flat), np.int64)
        weights, turns = np.empty(flat.shape, np.float32), np.empty(flat.shape, np.float32)
        self._spread(fast.enter_all, len(flat), flat, regions, weights, turns, smallest_block=8192)
        shape = points.shape
        return regions.reshape(shape[:2]), weights.reshape(shape), turns.reshape(shape)

    def _spread(self, kernel: Any, n_tasks: int, *arguments: Any, smallest_block: int = 1) -> None:
        spread(
            kernel, n_tasks, self.mesh, *arguments,
            n_threads=self.n_threads, smallest_block=smallest_block,
        )  # fmt: skip
