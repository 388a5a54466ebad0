"""Differentiable ``flow`` and ``warp`` for tensors.

Two engines compute them: ``compiled_engine``, the numba kernels, on the CPU, and ``tensor_engine``,
in tensor operations, on other devices. Each is a module with four functions that know nothing of
autograd:

flow(options, theta, points) -> moved
    T^θ at points: θ (n, d) and points (n or 1, m, ndim) to (n, m, ndim).
flow_vjp(options, theta, points, moved, cotangent) -> by_theta, by_points
    Gradients of Σ cotangent · moved: (n, d) and (n, m, ndim).
resample(values, positions, sampling) -> sampled
    Values (n or 1, channels, *spatial) at positions (n or 1, m, ndim): (n, channels, m).
resample_vjp(values, positions, cotangent, sampling, by_values, by_positions) -> gradients
    Of Σ cotangent · sampled, in the shapes of values and positions; None where not wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dreamwarp.core.validation import check_choice
from dreamwarp.space import Warp, WarpSpace
from dreamwarp.space.resample import (
    INTERPOLATIONS,
    Fill,
    Interpolation,
    check_spatial_shape,
    fill_number,
    fill_rule,
)
from dreamwarp.space.warp import clip_to_samples, default_tolerance
from dreamwarp.space.warpspace import Method, check_tolerance
from dreamwarp.torch import compiled_engine, tensor_engine
from dreamwarp.torch.compiled_engine import FlowOptions, n_threads, to_numpy
from dreamwarp.torch.tensor_interpolation import Sampling


def choose_engine(device: torch.device) -> Any:
    """The module that computes on a device."""
    return compiled_engine if device.type == "cpu" else tensor_engine


class _Once(torch.autograd.Function):
    """A derivative as a function, so that second derivatives raise an error.

    Autograd would otherwise silently treat it as a constant.
    """

    @staticmethod
    def forward(ctx: Any, derivative: Callable[..., Any], *inputs: Any) -> Any:
        return derivative(*inputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise NotImplementedError(
            "a warp can be differentiated once, not twice. Detach its gradient, or use finite "
            "differences of gradients."
        )


# -- points


def flow(
    space: WarpSpace,
    theta: Tensor,
    points: Tensor,
    *,
    method: Method | None = None,
    tolerance: float = 1e-4,
) -> Tensor:
    """T^θ at points, differentiable with respect to θ and the points.

    On the CPU, compiled kernels do the work, on as many threads as torch may use. On other devices
    tensor operations follow the same paths, with the same results; only data of θ, never points,
    is then copied to the CPU. The derivative is analytic, one pass back along the paths, and its
    memory does not grow with the number of cells crossed. There are no second derivatives.
    ``torch.func`` and ``torch.compile`` can't trace the call: exclude it with
    ``torch.compiler.disable``.

    Parameters
    ----------
    space : WarpSpace
    theta : (n, d) or (d,)
    points : (m, ndim) or (n, m, ndim)
        On the device of ``theta``. A single set of points is moved by every θ; a single θ moves
        every set.
    method : {"fast", "exact"}, optional
        As for :meth:`WarpSpace.flow`: float32 within ``tolerance``, or float64 to rounding.
        Default: ``"exact"`` if either tensor is float64, else ``"fast"``.
    tolerance : float
        Largest error of ``"fast"``, as a distance in the unit domain.

    Returns
    -------
    (n, m, ndim), or (m, ndim) for a single θ
        float64 if either tensor is float64, else float32; integers and half precision are promoted.
    """
    check_tensors(theta=theta, points=points)
    dtype = working_dtype(theta, points)
    if method is None:
        method = "exact" if dtype == torch.float64 else "fast"
    options = FlowOptions(space, method, check_tolerance(method, tolerance))
    parameters = check_theta(space, theta.to(dtype))
    if points.ndim not in (2, 3) or points.shape[-1] != space.ndim:
        raise ValueError(
            f"`points` must have shape (m, {space.ndim}) or (n, m, {space.ndim}) for {space!r}, "
            f"got {tuple(points.shape)}."
        )
    positions = points.to(dtype) if points.ndim == 3 else points.to(dtype)[None]
    _check_lengths(parameters, points=positions)
    moved: Tensor = _Flow.apply(parameters, positions, options)
    return moved[0] if theta.ndim == 1 and points.ndim == 2 else moved


class _Flow(torch.autograd.Function):
    """Map θ (n or 1, d) and points (n or 1, m, ndim) to moved points (n, m, ndim)."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, points: Tensor, options: FlowOptions) -> Tensor:
        n = len(points) if len(theta) == 1 else len(theta)
        engine = choose_engine(points.device)
        moved: Tensor = engine.flow(options, theta.expand(n, -1), points)
        ctx.save_for_backward(theta, points, moved)
        ctx.options = options
        return moved

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        by_theta, by_points = _Once.apply(_flow_vjp, *ctx.saved_tensors, cotangent, ctx.options)
        return by_theta, by_points, None


def _flow_vjp(
    theta: Tensor, points: Tensor, moved: Tensor, cotangent: Tensor, options: FlowOptions
) -> tuple[Tensor, Tensor]:
    """Gradients of Σ cotangent · moved, in the shapes of ``theta`` and ``points``."""
    by_theta, by_points = choose_engine(points.device).flow_vjp(
        options, theta.expand(len(moved), -1), points, moved, cotangent.nan_to_num(0.0, 0.0, 0.0)
    )
    if not cotangent.isfinite().all():
        # Propagate NaN rather than fail: loss scaling for mixed precision looks for it in the
        # gradients.
        lost = ~cotangent.isfinite().all(dim=-1)
        by_theta[lost.any(dim=1)] = torch.nan
        by_points[lost] = torch.nan
    return by_theta.sum_to_size(theta.shape), by_points.sum_to_size(points.shape)


# -- images


def warp(
    space: WarpSpace,
    theta: Tensor,
    images: Tensor,
    *,
    interpolation: Interpolation = "linear",
    fill: Fill = "edge",
    fill_value: float = 0,
    keep_range: bool = False,
    method: Method | None = None,
    tolerance: float | None = None,
) -> Tensor:
    """Images pulled back by T^θ, x ∘ T^θ, differentiable with respect to θ and the images.

    :meth:`dreamwarp.Warp.image` for torch, with the same results on every device. For devices and
    derivatives see :func:`flow`.

    Parameters
    ----------
    space : WarpSpace
    theta : (n, d), (1, d) or (d,)
    images : (n, channels, *spatial) or (1, channels, *spatial)
        Signals, images or volumes, on the device of ``theta``. A single θ warps every image; a
        single image is warped by every θ.
    interpolation, fill, fill_value, keep_range, tolerance
        As for :meth:`dreamwarp.Warp.image`. Interpolation ``"nearest"`` has no derivative with
        respect to θ.
    method : {"fast", "exact"}, optional
        Method of the flow; see :func:`flow`. Default: ``"exact"`` if either tensor is float64.

    Returns
    -------
    (n, channels, *spatial)
        In the dtype of ``images``, computed in float64 if either tensor is float64, else in
        float32. Integers are rounded and clipped, and have no derivatives.
    """
    check_tensors(theta=theta, images=images)
    parameters = check_theta(space, theta)
    if images.ndim != space.ndim + 2:
        raise ValueError(
            f"`images` must have shape (n, channels, *spatial) with {space.ndim} spatial axes for "
            f"{space!r}, got {tuple(images.shape)}. Use `images[None]` for one image, "
            "`images[:, None]` for images without channels."
        )
    check_spatial_shape(tuple(images.shape[2:]))
    _check_lengths(parameters, images=images)
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    is_half = images.is_floating_point() and images.dtype.itemsize < 4
    values = images.float() if is_half else images
    number = fill_number(fill, fill_value, to_numpy(values[:0]).dtype).item()
    sampling = Sampling(interpolation, fill_rule(space, fill), number)
    spatial, dtype = images.shape[2:], working_dtype(theta, images)
    if tolerance is None:
        tolerance = default_tolerance(spatial)
    is_smooth = images.is_floating_point() and interpolation != "nearest"
    with torch.set_grad_enabled(is_smooth and torch.is_grad_enabled()):
        grid = pixel_centers(spatial, dtype, images.device)
        moved = flow(space, parameters.to(dtype), grid, method=method, tolerance=tolerance)
    sampled: Tensor = _Resample.apply(values, moved, sampling)
    warped = sampled.to(images.dtype).unflatten(2, spatial)
    if keep_range and interpolation == "cubic":
        others = (fill_value,) if sampling.fill == "constant" else ()
        warped = _clip_to_samples(warped, images, others)
    return warped


def _clip_to_samples(warped: Tensor, images: Tensor, others: tuple[float, ...]) -> Tensor:
    """Clip each warped image to the range of its image and of ``others``; maybe in place."""
    if images.dtype == torch.bool or images.numel() == 0:
        return warped
    if images.device.type == "cpu" and not warped.requires_grad and images.dtype != torch.bfloat16:
        clip_to_samples(warped.numpy(), to_numpy(images), others)
        return warped
    low, high = images.flatten(1).aminmax(dim=1)
    if images.is_floating_point():  # a NaN in an image does not spread over all of it
        low = low.masked_fill(low.isnan(), -torch.inf)
        high = high.masked_fill(high.isnan(), torch.inf)
    for value in others:
        low, high = low.clamp(max=value), high.clamp(min=value)
    shape = (-1, *[1] * (images.ndim - 1))
    return warped.clamp(low.reshape(shape), high.reshape(shape))


def warp_item(
    space: WarpSpace,
    theta: NDArray[np.float64],
    values: Tensor,
    *,
    interpolation: Interpolation = "linear",
    fill: Fill = "edge",
) -> Tensor:
    """Pull back one sample (channels, *spatial) by T^θ, for adapters of other packages.

    On the CPU it works in blocks: a volume of any size needs little more memory than twice its own.
    """
    if values.device.type == "cpu" and not values.requires_grad and values.dtype != torch.bfloat16:
        moved = Warp(space, theta).image(
            values.numpy()[None], interpolation=interpolation, fill=fill, keep_range=True,
            n_threads=n_threads(),
        )  # fmt: skip
        return torch.from_numpy(moved[0])
    parameters = torch.as_tensor(theta, dtype=torch.float32, device=values.device)
    return warp(
        space, parameters[None], values[None], interpolation=interpolation, fill=fill,
        keep_range=True,
    )[0]  # fmt: skip


def pixel_centers(spatial: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Centres of all pixels in the unit domain, row-major: (m, ndim)."""
    axes = [(torch.arange(n, dtype=dtype, device=device) + 0.5) / n for n in spatial]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(end_dim=-2)


class _Resample(torch.autograd.Function):
    """Values (n or 1, channels, *spatial) at positions (n or 1, m, ndim): (n, channels, m)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, positions: Tensor, sampling: Sampling) -> Tensor:
        ctx.save_for_backward(values, positions)
        ctx.sampling = sampling
        sampled: Tensor = choose_engine(values.device).resample(values, positions, sampling)
        return sampled

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        by_values, by_positions, _ = ctx.needs_input_grad
        derivative = partial(
            choose_engine(cotangent.device).resample_vjp,
            sampling=ctx.sampling, by_values=by_values, by_positions=by_positions,
        )  # fmt: skip
        return *_Once.apply(derivative, *ctx.saved_tensors, cotangent), None


# -- checks


def check_tensors(**named: Tensor) -> None:
    """Raise unless all are real tensors on one device."""
    first = next(iter(named))
    for name, values in named.items():
        if not isinstance(values, Tensor):
            raise TypeError(
                f"`{name}` must be a torch.Tensor, got {type(values).__name__}. "
                "Use torch.as_tensor, or WarpSpace and Warp for arrays."
            )
        if values.is_complex():
            raise TypeError(f"`{name}` must be real, got dtype {values.dtype}.")
        if values.device != named[first].device:
            raise ValueError(
                f"`{first}` and `{name}` must be on one device, got {named[first].device} and "
                f"{values.device}. Move one with .to(device)."
            )


def working_dtype(*values: Tensor) -> torch.dtype:
    """float64 if any tensor is, else float32."""
    return torch.float64 if any(v.dtype == torch.float64 for v in values) else torch.float32


def check_theta(space: WarpSpace, theta: Tensor) -> Tensor:
    """Return θ as (n, d)."""
    if theta.ndim not in (1, 2) or theta.shape[-1] != space.dim:
        raise ValueError(
            f"`theta` must have shape (n, {space.dim}) for {space!r}, got {tuple(theta.shape)}. "
            "Use the space the parameters were made for."
        )
    return theta if theta.ndim == 2 else theta[None]


def _check_lengths(theta: Tensor, **named: Tensor) -> None:
    """Raise unless θ and the named tensor have the same length, or one has length 1."""
    ((name, values),) = named.items()
    if 1 not in (len(theta), len(values)) and len(theta) != len(values):
        raise ValueError(
            f"`theta` and `{name}` must have the same length along their first axis, or one of "
            f"them length 1, got {len(theta)} and {len(values)}."
        )
