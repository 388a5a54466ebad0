"""The compiled kernels, for tensors on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dreamwarp.core.compiled import thread_count
from dreamwarp.space import WarpSpace
from dreamwarp.space import resample as sampler
from dreamwarp.space.warpspace import Method
from dreamwarp.torch import tensor_interpolation as tensor_sampling
from dreamwarp.torch.tensor_interpolation import Sampling


def flow(
    space: WarpSpace, theta: Tensor, points: Tensor, method: Method, tolerance: float
) -> Tensor:
    """See ``engines.Engine``."""
    moved = space.flow(
        as_array(theta), _one_or_many(points),
        method=method, tolerance=tolerance, n_threads=n_threads(),
    )  # fmt: skip
    return torch.from_numpy(moved).to(points.dtype)


def flow_vjp(
    space: WarpSpace,
    theta: Tensor,
    points: Tensor,
    moved: Tensor,
    cotangent: Tensor,
    method: Method,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """See ``engines.Engine``."""
    by_theta, by_points = space.flow_vjp(
        as_array(theta), _one_or_many(points), as_array(cotangent), moved=as_array(moved),
        method=method, tolerance=tolerance, n_threads=n_threads(),
    )  # fmt: skip
    return torch.from_numpy(by_theta).to(theta.dtype), torch.from_numpy(by_points).to(theta.dtype)


def resample(values: Tensor, positions: Tensor, sampling: Sampling) -> Tensor:
    """See ``engines.Engine``."""
    sampled = sampler.resample(
        as_array(values), as_array(positions), **sampling._asdict(), n_threads=n_threads()
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
    """See ``engines.Engine``."""
    if sampling.interpolation == "nearest":  # pixels are only copied: no kernel derives that
        return tensor_sampling.resample_vjp(
            values, positions, cotangent, sampling, by_values, by_positions
        )
    gradients = sampler.resample_vjp(
        as_array(values), as_array(positions), as_array(cotangent), **sampling._asdict(),
        by_values=by_values, by_positions=by_positions, n_threads=n_threads(),
    )  # fmt: skip
    return _as_tensor(gradients[0], values.dtype), _as_tensor(gradients[1], positions.dtype)


def _as_tensor(array: NDArray[Any] | None, dtype: torch.dtype) -> Tensor | None:
    return None if array is None else torch.from_numpy(array).to(dtype)


def _one_or_many(points: Tensor) -> NDArray[Any]:
    """Points (1, m, ndim) as one set that every θ moves, (m, ndim)."""
    return as_array(points[0] if len(points) == 1 else points)


def as_array(values: Tensor) -> NDArray[Any]:
    """The numbers of a tensor, on the CPU."""
    array: NDArray[Any] = values.detach().cpu().numpy()
    return array


def n_threads() -> int:
    """Threads that torch allows, which is one inside a DataLoader worker, and numba too."""
    return min(torch.get_num_threads(), thread_count())
