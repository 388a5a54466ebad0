"""Images pulled back by warps, for autograd."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from dreamwarp.core.validation import check_choice
from dreamwarp.space import WarpSpace
from dreamwarp.space.resample import (
    INTERPOLATIONS,
    Fill,
    Interpolation,
    _fill_number,
    check_spatial_shape,
)
from dreamwarp.space.warp import PIXEL_TOLERANCE, TOLERANCE
from dreamwarp.space.warpspace import Method
from dreamwarp.torch import engines
from dreamwarp.torch.compiled_engine import as_array
from dreamwarp.torch.engines import Once
from dreamwarp.torch.points import check_tensors, check_theta, flow, working_dtype
from dreamwarp.torch.tensor_interpolation import Sampling


def warp(
    space: WarpSpace,
    theta: Tensor,
    images: Tensor,
    *,
    interpolation: Interpolation = "linear",
    fill: Literal["edge", "constant", "reflect"] = "edge",
    fill_value: float = 0,
    method: Method | None = None,
    tolerance: float | None = None,
) -> Tensor:
    """Images pulled back by T^θ, x ∘ T^θ, differentiable by θ and by the images.

    :meth:`dreamwarp.Warp.image` for torch: on the CPU by the compiled kernels, on any other device
    in tensor operations with the same results. For its derivative see :func:`flow`.

    Parameters
    ----------
    space : WarpSpace
    theta : (n, d), (1, d) or (d,)
    images : (n, channels, *spatial) or (1, channels, *spatial)
        On the device of ``theta``; signals, images or volumes, as the space has 1, 2 or 3 axes. One
        θ warps every image, and one image is warped by every θ.
    interpolation : {"linear", "nearest", "cubic"}
        See :mod:`dreamwarp.space.resample`. ``"nearest"`` has a derivative by the images only.
    fill : {"edge", "constant", "reflect"}
        Pixels beyond the border: the nearest one, ``fill_value``, or mirrored in the border. In a
        periodic space the sample wraps round instead, whatever is said here.
    fill_value : number
        Must be a value that the dtype of ``images`` can hold.
    method : {"fast", "exact"}, optional
        Of the flow; see :func:`flow`. Default: ``"exact"`` if either tensor is float64.
    tolerance : float, optional
        Largest error of the fast flow in the unit domain. Default: 1e-4, and at most a twentieth of
        a pixel.

    Returns
    -------
    (n, channels, *spatial)
        In the dtype of ``images``, calculated in float64 if either tensor is float64, else in
        float32. Integers are rounded and clipped, and have no derivatives.
    """
    check_tensors(theta=theta, images=images)
    parameters = _check_batch(space, theta, images)
    sampling = _check_sampling(space, images, interpolation, fill, fill_value)
    spatial, dtype = images.shape[2:], working_dtype(theta, images)
    if tolerance is None:
        tolerance = min(TOLERANCE, PIXEL_TOLERANCE / max(spatial))
    is_smooth = images.is_floating_point() and interpolation != "nearest"
    with torch.set_grad_enabled(is_smooth and torch.is_grad_enabled()):
        grid = pixel_centers(spatial, dtype, images.device)
        moved = flow(space, parameters.to(dtype), grid, method=method, tolerance=tolerance)
    sampled: Tensor = _Resample.apply(_as_numbers(images), moved, sampling)
    return sampled.to(images.dtype).unflatten(2, spatial)


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
        return engines.choose_engine(values.device).resample(values, positions, sampling)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        by_values, by_positions, _ = ctx.needs_input_grad
        derivative = partial(
            engines.choose_engine(cotangent.device).resample_vjp,
            sampling=ctx.sampling, by_values=by_values, by_positions=by_positions,
        )  # fmt: skip
        return *Once.apply(derivative, *ctx.saved_tensors, cotangent), None


def _as_numbers(images: Tensor) -> Tensor:
    """Half precision as float32; whatever else as it is."""
    is_half = images.is_floating_point() and images.dtype.itemsize < 4
    return images.float() if is_half else images


def _check_sampling(
    space: WarpSpace, images: Tensor, interpolation: Interpolation, fill: Any, fill_value: float
) -> Sampling:
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    check_choice("fill", fill, ("edge", "constant", "reflect"))
    rule: Fill = "wrap" if space.boundary == "periodic" else fill
    dtype = as_array(_as_numbers(images[:0])).dtype
    return Sampling(interpolation, rule, _fill_number(fill, fill_value, dtype).item())


def _check_batch(space: WarpSpace, theta: Tensor, images: Tensor) -> Tensor:
    """θ as (n or 1, d), if the images go with them."""
    parameters = check_theta(space, theta)
    if images.ndim != space.ndim + 2:
        raise ValueError(
            f"`images` must have shape (n, channels, *spatial) with {space.ndim} spatial axes for "
            f"{space!r}, got {tuple(images.shape)}. Use `images[None]` for one image, "
            "`images[:, None]` for images without channels."
        )
    check_spatial_shape(tuple(images.shape[2:]))
    if 1 not in (len(parameters), len(images)) and len(parameters) != len(images):
        raise ValueError(
            f"`theta` and `images` must agree in their first axis, or one of them be 1, got "
            f"{len(parameters)} and {len(images)}."
        )
    return parameters
