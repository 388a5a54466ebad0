"""Interpolation in tensor operations; the same results as ``dreamwarp.core.interpolation``."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dreamwarp.core.interpolation import BORDER_SLACK, CUBIC, FAR, LINEAR, NEAREST, OUTSIDE
from dreamwarp.space.resample import FillRule, Interpolation

STENCILS = {"nearest": NEAREST, "linear": LINEAR, "cubic": CUBIC}


class Sampling(NamedTuple):
    """How values are sampled; as in :func:`dreamwarp.space.resample.resample`."""

    interpolation: Interpolation
    fill: FillRule
    fill_value: float


class Taps(NamedTuple):
    """Offsets and weights (n or 1, 1, m) of the pixels used along one axis."""

    places: list[Tensor]
    weights: list[Tensor]


def resample(values: Tensor, positions: Tensor, sampling: Sampling) -> Tensor:
    """See ``functional``."""
    is_nearest = sampling.interpolation == "nearest"
    dtype = positions.dtype
    if values.dtype in (torch.int32, torch.int64) and not is_nearest:
        dtype = torch.float64  # float32 can't represent all values
    elif not is_nearest:
        dtype = torch.promote_types(values.dtype, dtype)
    shape, axes = values.shape[2:], []
    for k, size in enumerate(shape):
        coordinates = positions[:, None, :, k].to(dtype)
        axes.append(find_taps(coordinates, size, math.prod(shape[k + 1 :]), sampling))
    pixels = values.flatten(2) if is_nearest else values.flatten(2).to(dtype)
    origin = torch.zeros((), dtype=torch.long, device=values.device)
    return as_dtype(combine(pixels, axes, sampling.fill_value, origin), values.dtype)


def resample_vjp(
    values: Tensor,
    positions: Tensor,
    cotangent: Tensor,
    sampling: Sampling,
    by_values: bool,
    by_positions: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """See ``functional``. Samples again, so that the forward pass need not keep anything."""
    values = values.detach().requires_grad_(by_values)
    positions = positions.detach().requires_grad_(by_positions)
    with torch.enable_grad():
        sampled = resample(values, positions, sampling)
    wanted = [tensor for tensor in (values, positions) if tensor.requires_grad]
    gradients = iter(torch.autograd.grad(sampled, wanted, cotangent))
    return next(gradients) if by_values else None, next(gradients) if by_positions else None


def find_taps(coordinates: Tensor, size: int, stride: int, sampling: Sampling) -> Taps:
    """Offsets and weights of the pixels around coordinates, along an axis of ``size`` pixels."""
    if sampling.interpolation == "nearest":
        number, weights = nearest_pixel(coordinates, size), []
    else:
        scaled = (coordinates * size - 0.5).clamp(-FAR, FAR)
        number = scaled.floor()
        weights = tap_weights(scaled - number, sampling.interpolation)
    pixels = [number.long() + shift for shift in STENCILS[sampling.interpolation]]
    return Taps([place(pixel, size, stride, sampling.fill) for pixel in pixels], weights)


def nearest_pixel(coordinates: Tensor, size: int) -> Tensor:
    """Index of the pixel that contains each coordinate; see ``interpolation.BORDER_SLACK``."""
    number = (coordinates * size).clamp(-FAR, FAR).floor()
    at_start = (coordinates >= -BORDER_SLACK) & (coordinates < 0)
    at_end = (coordinates >= 1) & (coordinates <= 1 + BORDER_SLACK)
    return number.masked_fill(at_start, 0).masked_fill(at_end, size - 1)


def tap_weights(u: Tensor, interpolation: Interpolation) -> list[Tensor]:
    """Weights of the taps, linear or Catmull-Rom, at a fraction u past the lower pixel."""
    v = 1.0 - u
    if interpolation == "linear":
        return [v, u]
    return [
        -0.5 * u * v * v,
        v * (1.0 + u * (1.0 - 1.5 * u)),
        u * (1.0 + v * (1.0 - 1.5 * v)),
        -0.5 * v * u * u,
    ]


def place(pixel: Tensor, size: int, stride: int, fill: FillRule) -> Tensor:
    """Offsets of pixels along one axis, with ``fill`` applied to those outside."""
    if fill == "edge":
        return pixel.clamp(0, size - 1) * stride
    if fill == "constant":
        return torch.where((pixel >= 0) & (pixel < size), pixel * stride, OUTSIDE)
    if fill == "wrap":
        return pixel % size * stride
    pixel = pixel % (2 * size)
    return torch.minimum(pixel, 2 * size - 1 - pixel) * stride


def combine(values: Tensor, axes: list[Taps], fill_value: float, offset: Tensor) -> Tensor:
    """Interpolate values (n or 1, channels, pixels) along all axes, recursively.

    Sums differences, as ``interpolation.add_taps`` does: equal taps give exactly their value.
    """
    if not axes:
        return gather(values, offset, fill_value)
    taps = [combine(values, axes[1:], fill_value, place + offset) for place in axes[0].places]
    center = (len(taps) - 1) // 2
    total = taps[center]
    for t, tap in enumerate(taps):
        if t != center:
            total = total + axes[0].weights[t] * (tap - taps[center])
    return total


def gather(values: Tensor, offset: Tensor, fill_value: float) -> Tensor:
    """Pixels at offsets (n or 1, 1, m); negative offsets are outside."""
    n = len(values) if len(offset) == 1 else len(offset)
    index = offset.clamp(min=0).expand(n, values.shape[1], -1)
    return values.expand(n, -1, -1).gather(2, index).masked_fill(offset < 0, fill_value)


def as_dtype(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to a dtype; for integers, round half up and clip to the range."""
    if numbers.dtype == dtype or dtype.is_floating_point:
        return numbers.to(dtype)
    if dtype == torch.bool:
        return numbers >= 0.5
    low, high = float(torch.iinfo(dtype).min), float(torch.iinfo(dtype).max)
    if int(high) > torch.iinfo(dtype).max:  # float64 can't represent the largest 64-bit integer
        high = math.nextafter(high, 0.0)
    return (numbers + 0.5).floor().clamp(low, high).to(dtype)
