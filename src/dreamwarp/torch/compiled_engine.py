"""The compiled kernels for tensors on the CPU; see ``functional``."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from dreamwarp.core.compiled import thread_count
from dreamwarp.space import WarpSpace
from dreamwarp.space import resample as sampler
from dreamwarp.space.warpspace import Method
from dreamwarp.torch import tensor_interpolation
from dreamwarp.torch.tensor_interpolation import Sampling


class FlowOptions(NamedTuple):
    """How a flow is computed; as in :meth:`WarpSpace.flow`."""

    space: WarpSpace
    method: Method
    tolerance: float


def flow(options: FlowOptions, theta: Tensor, points: Tensor) -> Tensor:
    """See ``functional``."""
    moved = options.space.flow(
        to_numpy(theta), _one_or_many(points),
        method=options.method, tolerance=options.tolerance, n_threads=n_threads(),
    )  # fmt: skip
    return torch.from_numpy(moved).to(points.dtype)


def flow_vjp(
    options: FlowOptions, theta: Tensor, points: Tensor, moved: Tensor, cotangent: Tensor
) -> tuple[Tensor, Tensor]:
    """See ``functional``."""
    by_theta, by_points = options.space.flow_vjp(
        to_numpy(theta), _one_or_many(points), to_numpy(cotangent), moved=to_numpy(moved),
        method=options.method, tolerance=options.tolerance, n_threads=n_threads(),
    )  # fmt: skip
    return torch.from_numpy(by_theta).to(theta.dtype), torch.from_numpy(by_points).to(theta.dtype)


def resample(values: Tensor, positions: Tensor, sampling: Sampling) -> Tensor:
    """See ``functional``."""
    sampled = sampler.resample(
        to_numpy(values), to_numpy(positions), **sampling._asdict(), n_threads=n_threads()
    )
    return torch.from_numpy(sampled)


def resample_vjp(
    values: Tensor,
    positions: Tensor,
    cotangent: Tensor,
    sampling: Sampling,
    by_values: bool,
    by_positions: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """See ``functional``."""
    if sampling.interpolation == "nearest":  # the kernels have no derivative of it
        return tensor_interpolation.resample_vjp(
            values, positions, cotangent, sampling, by_values, by_positions
        )
    gradients = sampler.resample_vjp(
        to_numpy(values), to_numpy(positions), to_numpy(cotangent), **sampling._asdict(),
        by_values=by_values, by_positions=by_positions, n_threads=n_threads(),
    )  # fmt: skip
    return _as_tensor(gradients[0], values.dtype), _as_tensor(gradients[1], positions.dtype)


def _as_tensor(array: NDArray[Any] | None, dtype: torch.dtype) -> Tensor | None:
    return None if array is None else torch.from_numpy(array).to(dtype)


def _one_or_many(points: Tensor) -> NDArray[Any]:
    """Return points (1, m, ndim) as (m, ndim), a single set that every θ moves."""
    return to_numpy(points[0] if len(points) == 1 else points)


def to_numpy(values: Tensor) -> NDArray[Any]:
    """Return a tensor as an array on the CPU."""
    array: NDArray[Any] = values.detach().cpu().numpy()
    return array


def n_threads() -> int:
    """Threads that both torch and numba allow; torch allows one in a DataLoader worker."""
    return min(torch.get_num_threads(), thread_count())
