"""Fields: velocity fields of one mesh and their flows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import count_chunks, spread
from dreamwarp.space import exact, fast
from dreamwarp.space.fast import Starts
from dreamwarp.space.mesh import Mesh

Array = NDArray[np.float64]
Floats = NDArray[np.float32] | NDArray[np.float64]

# Fields with their own points that a thread processes together: their starts stay in the cache, and
# the same memory is used again.
BATCH = 16


@dataclass(frozen=True)
class Fields:
    """n velocity fields, with bounds on their stiffness, the same for a field and its reverse."""

    mesh: Mesh
    velocities: Array  # (n, n_nodes, ndim)
    speed: Array  # (n,), like the next two; see ``velocities.node_velocities``
    rate: Array
    growth: Array
    n_threads: int | None

    def __len__(self) -> int:
        return len(self.velocities)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.mesh.cells)

    def reversed(self) -> Fields:
        """The fields with the inverse flow."""
        return replace(self, velocities=-self.velocities)

    def only(self, chosen: NDArray[Any]) -> Fields:
        """The chosen fields."""
        return Fields(
            self.mesh, self.velocities[chosen], self.speed[chosen], self.rate[chosen],
            self.growth[chosen], self.n_threads,
        )  # fmt: skip

    # -- exact

    def flow_exactly(self, points: Array) -> Array:
        """φ_1 of points (n or 1, m, ndim): (n, m, ndim)."""
        out = np.empty((len(self), points.shape[1], self.ndim))
        self._follow_exactly(points, out, np.empty((*out.shape[:2], 0, 0)), 0)
        return out

    def carry_exactly(self, points: Array, cotangents: Array, *, add_up: bool = True) -> Array:
        """Pull cotangents (n, m, rows, ndim) back along paths, in place.

        The paths start at points (n, m, ndim). Returns gradients with respect to the node
        velocities, (n, rows, n_nodes, ndim), see ``exact.follow``; n_nodes is 0 without ``add_up``.
        """
        n_nodes = self.velocities.shape[1] if add_up else 0
        return self._follow_exactly(points, np.empty((len(self), 0, 0)), cotangents, n_nodes)

    def _follow_exactly(self, points: Array, out: Array, cotangents: Array, n_nodes: int) -> Array:
        """See ``exact.follow_all``; returns the sum of the gradients over chunks."""
        n_chunks, rows = count_chunks(points.shape[1], exact.CHUNK), cotangents.shape[2]
        sums = np.zeros((len(self), n_chunks, rows, n_nodes, self.ndim))
        self._spread(
            exact.follow_all, len(self) * n_chunks, self.velocities, points, out, cotangents, sums
        )
        return np.asarray(sums.sum(axis=1))

    # -- fast

    def flow(
        self, points: Array, method: str, tolerance: float, starts: Starts | None = None
    ) -> NDArray[Any]:
        """φ_1 of points (n or 1, m, ndim), exact or with errors below ``tolerance``: (n, m, ndim).

        ``starts``: those of the points, if they were located before; see :meth:`locate`.
        """
        if method == "exact":
            return self.flow_exactly(points)
        steps = self.steps(tolerance)
        mild = steps[0] > 0
        out = np.empty((len(self), points.shape[1], self.ndim), np.float32)
        nothing = np.empty((len(self), 0, 0)), np.empty((len(self), 0, 0, 0))
        self._walk(np.flatnonzero(mild), points, 1.0, *steps, out, *nothing, starts=starts)
        if not mild.all():
            some = points if len(points) == 1 else points[~mild]
            out[~mild] = self.only(~mild).flow_exactly(some)
        return out

    def carry_fast(self, points: Array, ends: Floats, cotangents: Array, tolerance: float) -> Array:
        """Pull cotangents (n, m, ndim) back along paths, in place.

        The paths start at points (n or 1, m, ndim) and end at ``ends`` (n, m, ndim). Returns
        gradients with respect to the node velocities, (n, n_nodes, ndim).
        """
        lengths, _ = self.steps(tolerance)
        mild = lengths > 0
        n_chunks = count_chunks(ends.shape[1], fast.CHUNK)
        sums = np.zeros((len(self), n_chunks, *self.velocities.shape[1:]))
        nowhere = np.empty((len(self), 0, self.ndim), np.float32)
        # ``ease`` is 0: derivatives have ten times the error of a path.
        steps = lengths, np.zeros(len(self))
        self._walk(np.flatnonzero(mild), ends, -1.0, *steps, nowhere, cotangents, sums)
        total = sums[:, 0] if n_chunks == 1 else np.asarray(sums.sum(axis=1))
        if not mild.all():
            stiff, rest = self.only(~mild), cotangents[~mild][:, :, None]
            # From ends in float64: tracing a stiff field backwards amplifies rounding errors.
            sharp = stiff.flow_exactly(points if len(points) == 1 else points[~mild])
            total[~mild] = stiff.reversed().carry_exactly(sharp, rest)[:, 0]
            cotangents[~mild] = rest[:, :, 0]
        return total

    def steps(self, tolerance: float) -> tuple[Array, Array]:
        """Longest step and ``ease`` of each field; see ``fast.step_lengths``.

        A step of 0 means that float32 can't keep the tolerance.
        """
        lengths, ease = np.empty(len(self)), np.empty(len(self))
        bounds = self.speed, self.rate, self.growth
        fast.step_lengths(0, len(self), self.mesh.cells, *bounds, tolerance, lengths, ease)
        return lengths, ease

    def _walk(
        self,
        chosen: NDArray[np.int64],
        points: Floats,
        sign: float,
        *others: Any,
        starts: Starts | None = None,
    ) -> None:
        """Run ``fast.walk`` for the chosen fields, with points (n or 1, m, ndim)."""
        shared, n_points = len(points) == 1, points.shape[1]
        n_chunks = count_chunks(n_points, fast.CHUNK)
        # A task of the walk takes about 20 ns per point.
        block = max(1, 8192 // max(1, min(n_points, fast.CHUNK)))
        if shared or n_chunks != 1:
            some = points if shared or len(chosen) == len(self) else points[chosen]
            starts = self.locate(some) if starts is None else starts
            self._spread(
                fast.walk, len(chosen) * n_chunks, self.velocities, sign, chosen, starts, *others,
                smallest_block=block,
            )  # fmt: skip
            return

        def locate_and_walk(first: int, last: int, mesh: Mesh, *_: Any) -> None:
            starts = self._make_starts(min(BATCH, last - first), n_points)
            for begin in range(first, last, BATCH):
                some = chosen[begin : min(begin + BATCH, last)]
                fast.enter_all(0, len(some) * n_points, mesh, points, some, *starts)
                fast.walk(0, len(some), mesh, self.velocities, sign, some, starts, *others)

        self._spread(locate_and_walk, len(chosen), smallest_block=block)

    def locate(self, points: Floats) -> Starts:
        """Starts of paths at points (k, m, ndim)."""
        starts = self._make_starts(*points.shape[:2])
        everyone, n_tasks = np.arange(len(points)), starts.regions.size
        self._spread(fast.enter_all, n_tasks, points, everyone, *starts, smallest_block=8192)
        return starts

    def _make_starts(self, n_sets: int, n_points: int) -> Starts:
        n_turns = n_points if self.mesh.periodic else 0
        return Starts(
            np.empty((n_sets, n_points), np.uint32),
            np.empty((n_sets, n_points, self.ndim), np.float32),
            np.empty((n_sets, n_turns, self.ndim), np.float32),
        )

    def _spread(self, kernel: Any, n_tasks: int, *arguments: Any, smallest_block: int = 1) -> None:
        spread(
            kernel, n_tasks, self.mesh, *arguments,
            n_threads=self.n_threads, smallest_block=smallest_block,
        )  # fmt: skip
