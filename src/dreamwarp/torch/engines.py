"""Engines: kernels or tensor operations, as functions for autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dreamwarp.torch import compiled_engine as kernels
from dreamwarp.torch import tensor_interpolation as sampling
from dreamwarp.torch import tensors


class Engine(NamedTuple):
    """Functions of tensors on one device, and their derivatives. They know nothing of autograd.

    Attributes
    ----------
    flow : (space, theta, points, method, tolerance) -> moved
        T^θ at points, (n, d) and (n or 1, m, ndim) to (n, m, ndim).
    flow_vjp : (space, theta, points, moved, cotangent, method, tolerance) -> by_theta, by_points
        Gradient of Σ cotangent · moved by θ, (n, d), and by the start of every path, (n, m, ndim).
    resample : (values, positions, sampling) -> sampled
        Values (n or 1, channels, *spatial) at positions (n or 1, m, ndim): (n, channels, m).
    resample_vjp : (values, positions, cotangent, sampling, by_values, by_positions) -> gradients
        Of Σ cotangent · sampled, in the shapes of values and of positions; None if not wanted.
    """

    flow: Callable[..., Tensor]
    flow_vjp: Callable[..., tuple[Tensor, Tensor]]
    resample: Callable[..., Tensor]
    resample_vjp: Callable[..., tuple[Tensor | None, Tensor | None]]


KERNELS = Engine(kernels.flow, kernels.flow_vjp, kernels.resample, kernels.resample_vjp)
TENSORS = Engine(tensors.flow, tensors.flow_vjp, sampling.resample, sampling.resample_vjp)


def choose_engine(device: torch.device) -> Engine:
    """Kernels where they can read the memory, tensor operations elsewhere."""
    return KERNELS if device.type == "cpu" else TENSORS


class Once(torch.autograd.Function):
    """A derivative as a function, so that second derivatives raise an error.

    Autograd would otherwise take it for a constant, silently.
    """

    @staticmethod
    def forward(ctx: Any, derivative: Callable[..., Any], *inputs: Any) -> Any:
        """Gradients of some function, from tensors and whatever else they need."""
        return derivative(*inputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        """Refuse."""
        raise NotImplementedError(
            "a warp can be differentiated once, not twice. Detach its gradient, or take "
            "differences of gradients."
        )
