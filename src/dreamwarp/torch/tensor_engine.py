"""Flow and resampling in tensor operations, on any device; see ``functional``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dreamwarp.core.validation import as_finite_array
from dreamwarp.torch.compiled_engine import FlowOptions, n_threads, to_numpy
from dreamwarp.torch.tensor_interpolation import resample, resample_vjp
from dreamwarp.torch.walk import DOUBLE, SINGLE, DeviceMesh, Precision, device_mesh, follow

__all__ = ["flow", "flow_vjp", "resample", "resample_vjp"]

# Paths followed at a time: enough to keep a device busy, few enough to need about 1 GB of working
# memory (4 kB each in 3-D and float64).
PATHS_AT_ONCE = 2**18


class Block(NamedTuple):
    """Some θ and some of their points, followed together."""

    mesh: DeviceMesh
    precision: Precision
    rows: Tensor  # (k,), indices of the θ
    columns: slice  # of the points
    velocities: Tensor  # (ndim, k * n_nodes)

    def take(self, values: Tensor) -> Tensor:
        """Return the block's part of (n or 1, m, ndim) as paths (ndim, P)."""
        part = values if len(values) == 1 else values[self.rows]
        part = part[:, self.columns].expand(len(self.rows), -1, -1)
        part = part.to(self.velocities.device).to(self.precision.dtype)
        return part.permute(2, 0, 1).flatten(start_dim=1)

    def put(self, paths: Tensor, out: Tensor) -> None:
        """Write paths (ndim, P) to the block's part of (n, m, ndim): the inverse of ``take``."""
        part = paths.unflatten(1, (len(self.rows), -1)).permute(1, 2, 0)
        out[self.rows, self.columns] = part.to(out.dtype).to(out.device)

    def follow(
        self, velocities: Tensor, points: Tensor, costate: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See ``walk.follow``."""
        fields = torch.arange(len(self.rows), device=points.device)
        fields = fields.repeat_interleave(points.shape[1] // len(self.rows))
        return follow(self.mesh, self.precision, velocities, fields, points, costate, gradient)


def flow(options: FlowOptions, theta: Tensor, points: Tensor) -> Tensor:
    """See ``functional``."""
    if not points.isfinite().all():
        as_finite_array("points", to_numpy(points))
    out = points.new_empty(len(theta), *points.shape[1:])
    for block in blocks(options, theta, points):
        starts = block.take(points)
        ends, _ = block.follow(block.velocities, starts, starts[:0], block.velocities[:0])
        block.put(ends, out)
    return out


def flow_vjp(
    options: FlowOptions, theta: Tensor, points: Tensor, moved: Tensor, cotangent: Tensor
) -> tuple[Tensor, Tensor]:
    """See ``functional``."""
    space, by_points = options.space, torch.empty_like(moved)
    by_velocity = np.zeros((len(theta), len(space.tessellation.nodes), space.ndim))
    for block in blocks(options, theta, points):
        gradient = torch.zeros_like(block.velocities)
        _, costate = block.follow(
            -block.velocities, block.take(moved), block.take(cotangent), gradient
        )
        block.put(costate, by_points)
        by_velocity[to_numpy(block.rows)] += to_numpy(
            gradient.unflatten(1, (len(block.rows), -1)).permute(1, 2, 0)
        )
    by_theta = space.theta_gradient(by_velocity, n_threads())
    return torch.from_numpy(by_theta).to(theta.dtype).to(theta.device), by_points


def blocks(options: FlowOptions, theta: Tensor, points: Tensor) -> Iterator[Block]:
    """Split a batch of θ (n, d) and points (n or 1, m, ndim) into blocks of one precision each.

    If float32 can't keep the tolerance for a stiff θ, float64 is used, as in the kernels.
    """
    space, method, tolerance = options
    fields = space.fields(space.check_theta(to_numpy(theta))[0], n_threads())
    is_double = (method == "exact") | (fields.steps(tolerance)[0] == 0)
    m = points.shape[1]
    size = max(1, PATHS_AT_ONCE // max(m, 1))
    for precision, chosen in ((SINGLE, ~is_double), (DOUBLE, is_double)):
        numbers = np.flatnonzero(chosen)
        device = home(points.device, precision)
        mesh = device_mesh(space, device, precision.dtype)
        for rows in np.split(numbers, range(size, len(numbers), size)):
            table = torch.from_numpy(fields.velocities[rows]).to(precision.dtype).to(device)
            table = table.permute(2, 0, 1).flatten(start_dim=1)
            for start in range(0, m if len(rows) else 0, PATHS_AT_ONCE):
                columns = slice(start, start + PATHS_AT_ONCE)
                yield Block(mesh, precision, torch.from_numpy(rows), columns, table)


def home(device: torch.device, precision: Precision) -> torch.device:
    """Device to compute on: the CPU if the points' device lacks float64, as Apple's do."""
    lacking = precision is DOUBLE and device.type == "mps"
    return torch.device("cpu") if lacking else device
