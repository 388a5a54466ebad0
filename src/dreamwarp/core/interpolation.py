"""Kernels of ``resample``: interpolation on a grid of pixels, and its derivatives.

They process ``LANES`` points at a time, as in ``core.lanes``. Step 1, once for all channels: find
the taps of each point, that is the offsets and weights of the surrounding pixels. Step 2, per
channel: load the pixel values and combine them axis by axis, last axis first. The number of axes,
the stencil and the dtypes are part of the argument types, so each combination in use is compiled
separately.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dreamwarp.core.compiled import inlined, kernel, part
from dreamwarp.core.lanes import LANES, read, write

# Rules for pixels beyond the border, in the order of ``resample.FILL_RULES``.
EDGE, CONSTANT, REFLECT, WRAP = range(4)
# Stencils: pixels used along an axis, relative to the one at or below the point.
NEAREST, LINEAR, CUBIC = (0,), (0, 1), (-1, 0, 1, 2)

# Points per task.
CHUNK = 4096
# Offset of a pixel outside the image. The sum over three axes fits into 32 bits, and stays negative
# if any axis is outside.
OUTSIDE = -(2**29)
MAX_PIXELS = 2**29
# Coordinates are clipped to ± this many pixels, so that pixel indices stay finite.
FAR = 2.0**30
# A point outside the unit domain by less than this counts as inside for the nearest pixel.
# Otherwise rounding would let in the fill value where a warp keeps the border fixed.
BORDER_SLACK = 1e-5


class TapLayout(NamedTuple):
    """First row of each quantity in the work array; a row has ``LANES`` entries."""

    weights: int  # per axis and tap
    slopes: int  # per axis and tap: d weight / d coordinate
    fractions: int  # per axis: the coordinate, later its distance from the pixel below
    pixels: int  # of the current axis: index of the pixel at or below the point
    levels: int  # see ``combine``
    size: int


@inlined
def level(k, stencil, shape):
    """First row of level k after that of level 0."""
    row = 0
    for each in range(k):
        row += (len(shape) + 1) * len(stencil) ** each
    return row


@inlined
def layout(stencil, shape):
    """The layout for a stencil and an image shape."""
    ndim, n_taps = len(shape), len(stencil)
    slopes = ndim * n_taps
    fractions = 2 * slopes
    pixels = fractions + ndim
    levels = pixels + 1
    end = levels + level(ndim + 1, stencil, shape)
    return TapLayout(0, slopes, fractions, pixels, levels, end)


# -- offsets and weights of the taps


@part
def read_positions(shape, positions, start, count, row, work):
    """Load coordinates from positions (m * ndim,); flat, so that they load as vectors."""
    ndim = len(shape)
    for i in range(count):
        for k in range(ndim):
            write(work, row + k, i, positions[np.uint64((start + i) * ndim + k)])


@part
def split(size, fraction, pixel, work):
    """Index of the pixel at or below each coordinate, and the distance from it."""
    number = work.dtype.type
    half, far = number(0.5), number(FAR)
    for i in range(LANES):
        x = max(-far, min(far, read(work, fraction, i) * size - half))  # NaN becomes far
        whole = np.floor(x)
        write(work, pixel, i, whole)
        write(work, fraction, i, x - whole)


@part
def find_nearest(size, coordinate, pixel, work):
    """Index of the pixel that contains each coordinate."""
    number = work.dtype.type
    zero, one, far, slack = number(0), number(1), number(FAR), number(BORDER_SLACK)
    for i in range(LANES):
        x = read(work, coordinate, i)
        whole = np.floor(max(-far, min(far, x * size)))
        whole = zero if -slack <= x and x < zero else whole
        whole = size - one if one <= x and x <= one + slack else whole
        write(work, pixel, i, whole)


@part
def weigh(stencil, fraction, row, work):
    """Weights of the taps of one axis: linear or Catmull-Rom."""
    number = work.dtype.type
    half, one, three_halves = number(0.5), number(1), number(1.5)
    for i in range(LANES):
        u = read(work, fraction, i)
        v = one - u
        if len(stencil) == 2:
            write(work, row, i, v)
            write(work, row + 1, i, u)
        else:
            write(work, row, i, -half * u * v * v)
            write(work, row + 1, i, v * (one + u * (one - three_halves * u)))
            write(work, row + 2, i, u * (one + v * (one - three_halves * v)))
            write(work, row + 3, i, -half * v * u * u)


@part
def weigh_slopes(stencil, size, fraction, row, work):
    """Derivatives of the weights with respect to the coordinate."""
    number = work.dtype.type
    half, two, nine_halves, five = number(0.5), number(2), number(4.5), number(5)
    for i in range(LANES):
        u = read(work, fraction, i)
        v = number(1) - u
        if len(stencil) == 2:
            write(work, row, i, -size)
            write(work, row + 1, i, size)
        else:
            write(work, row, i, -half * size * v * (v - two * u))
            write(work, row + 1, i, size * u * (nine_halves * u - five))
            write(work, row + 2, i, -size * v * (nine_halves * v - five))
            write(work, row + 3, i, half * size * u * (u - two * v))


@part
def place(size, stride, rule, shift, pixel, target, places, work):
    """Pixel offsets of one tap along one axis, with the rule for pixels outside the image."""
    number = work.dtype.type
    zero, one, shift = number(0), number(1), number(shift)
    last = size - one
    if rule == EDGE:
        for i in range(LANES):
            x = max(zero, min(last, read(work, pixel, i) + shift))
            write(places, target, i, np.int32(x) * stride)
    elif rule == CONSTANT:
        for i in range(LANES):
            x = read(work, pixel, i) + shift
            inside = max(zero, min(last, x))
            write(places, target, i, np.int32(inside) * stride if x == inside else OUTSIDE)
    else:
        # A reflected image has period 2 * size, a wrapped one size. When wrapping, the mirrored
        # index is never the smaller one.
        period = size + size if rule == REFLECT else size
        mirror = last + size
        for i in range(LANES):
            x = read(work, pixel, i) + shift
            x -= period * np.floor(x / period)
            x = max(zero, min(last, min(x, mirror - x)))
            write(places, target, i, np.int32(x) * stride)


@part
def find_taps(stencil, shape, sizes, rule, n_slopes, positions, start, count, places, work):
    """Offsets and weights of the taps of ``count`` points; slopes if ``n_slopes`` > 0."""
    rows, n_taps = layout(stencil, shape), len(stencil)
    read_positions(shape, positions, start, count, rows.fractions, work)
    stride = 1
    for k in range(len(shape) - 1, -1, -1):
        size, fraction, at = sizes[k], rows.fractions + k, k * n_taps
        if n_taps == 1:
            find_nearest(size, fraction, rows.pixels, work)
        else:
            split(size, fraction, rows.pixels, work)
            weigh(stencil, fraction, rows.weights + at, work)
        if n_slopes > 0:
            weigh_slopes(stencil, size, fraction, rows.slopes + at, work)
        for t in range(n_taps):
            place(size, stride, rule, stencil[t], rows.pixels, at + t, places, work)
        stride *= shape[k]


# -- values


@part
def gather(stencil, shape, line, rule, data, fill, places, target, work):
    """Load the taps along the last axis, for one choice of taps on the other axes."""
    ndim, n_taps = len(shape), len(stencil)
    for i in range(LANES):
        start = 0
        rest = line
        for k in range(ndim - 2, -1, -1):
            start += read(places, k * n_taps + rest % n_taps, i)
            rest //= n_taps
        for t in range(n_taps):
            at = start + read(places, (ndim - 1) * n_taps + t, i)
            if rule != CONSTANT or at >= 0:
                write(work, target + t, i, data[np.uint64(at)])
            else:
                write(work, target + t, i, fill)


@part
def add_taps(stencil, weights, source, target, is_slope, work):
    """Weighted sum of taps, computed from their differences to the middle one.

    Weights sum to 1, slopes to 0. So equal taps give exactly their value, or a slope of 0.
    """
    n_taps = len(stencil)
    center = (n_taps - 1) // 2
    for i in range(LANES):
        middle = read(work, source + center, i)
        total = work.dtype.type(0) if is_slope else middle
        for t in range(n_taps):
            if t != center:
                total += read(work, weights + t, i) * (read(work, source + t, i) - middle)
        write(work, target, i, total)


@part
def combine(stencil, shape, rule, n_slopes, data, fill, places, work):
    """Interpolate: the value, and its derivatives along the axes if ``n_slopes`` > 0.

    Level k holds the values at all taps of the first k axes, then as many derivatives along each
    axis after them. All pixels are loaded before any is used, which is faster.
    """
    rows, n_taps, ndim = layout(stencil, shape), len(stencil), len(shape)
    source = rows.levels + level(ndim, stencil, shape)
    for line in range(n_taps ** (ndim - 1)):
        gather(stencil, shape, line, rule, data, fill, places, source + line * n_taps, work)
    for k in range(ndim - 1, -1, -1):
        weights, slopes = rows.weights + k * n_taps, rows.slopes + k * n_taps
        source = rows.levels + level(k + 1, stencil, shape)
        target = rows.levels + level(k, stencil, shape)
        n = n_taps**k
        for line in range(n):
            taps, result = source + line * n_taps, target + line
            add_taps(stencil, weights, taps, result, False, work)
            for q in range(k, n_slopes):
                if q == k:
                    add_taps(stencil, slopes, taps, result + (q + 1) * n, True, work)
                else:
                    step = (q + 1) * n
                    add_taps(stencil, weights, taps + step * n_taps, result + step, False, work)


@part
def scatter(stencil, shape, cotangent, places, work, target):
    """Add cotangent times weight to the pixel of every tap, for a row of points."""
    ndim, n_taps = len(shape), len(stencil)
    weights = layout(stencil, shape).weights
    for i in range(len(cotangent)):
        for tap in range(n_taps**ndim):
            at, weight, rest = 0, cotangent[i], tap
            for k in range(ndim - 1, -1, -1):
                row = k * n_taps + rest % n_taps
                at += read(places, row, i)
                weight *= read(work, weights + row, i)
                rest //= n_taps
            if at >= 0:
                target[at] += weight


# -- kernels
#
# values     (n or 1, channels, pixels)
# positions  (n or 1, m * ndim)
# out        (n, channels, m) or longer; points are written from index ``start`` on
# sizes      (ndim,), the shape in the dtype of the computation
# fill       in that dtype; in ``pick``, in the dtype of the values
#
# A task is CHUNK points of a sample; in ``pull_values``, a channel of an image.


@inlined
def scratch(stencil, shape, sizes):
    """Arrays for offsets and work rows. Zeros, so that unused lanes hold valid numbers."""
    places = np.zeros(len(shape) * len(stencil) * LANES, np.int32)
    return places, np.zeros(layout(stencil, shape).size * LANES, sizes.dtype)


@inlined
def locate(task, shape, positions):
    """Sample, first point, end point and row of positions of a task."""
    m = positions.shape[1] // len(shape)
    n_chunks = (m + CHUNK - 1) // CHUNK
    s, chunk = task // n_chunks, task % n_chunks * CHUNK
    return s, chunk, min(chunk + CHUNK, m), positions[s % len(positions)]


@kernel
def pick(first, last, shape, sizes, rule, fill, values, positions, start, out):
    """Values of the nearest pixels."""
    stencil = NEAREST
    places, work = scratch(stencil, shape, sizes)
    for task in range(first, last):
        s, begin, stop, here = locate(task, shape, positions)
        for p in range(begin, stop, LANES):
            count = min(LANES, stop - p)
            find_taps(stencil, shape, sizes, rule, 0, here, p, count, places, work)
            for c in range(values.shape[1]):
                data, row = values[s % len(values), c], out[s, c]
                for i in range(count):
                    at = 0
                    for k in range(len(shape)):
                        at += read(places, k, i)
                    row[np.uint64(start + p + i)] = data[np.uint64(at)] if at >= 0 else fill


@kernel
def interpolate(
    first, last, stencil, shape, sizes, rule, fill, limits, values, positions, start, out
):
    """Interpolated values, clipped to [limits[0], limits[1]], plus limits[2]."""
    places, work = scratch(stencil, shape, sizes)
    result = layout(stencil, shape).levels
    low, high, shift = limits
    for task in range(first, last):
        s, begin, stop, here = locate(task, shape, positions)
        for p in range(begin, stop, LANES):
            count = min(LANES, stop - p)
            find_taps(stencil, shape, sizes, rule, 0, here, p, count, places, work)
            for c in range(values.shape[1]):
                data, row = values[s % len(values), c], out[s, c]
                combine(stencil, shape, rule, 0, data, fill, places, work)
                for i in range(count):
                    value = read(work, result, i)
                    value = low if value < low else value  # keeps NaN
                    value = high if value > high else value
                    row[np.uint64(start + p + i)] = value + shift


@kernel
def pull_positions(
    first, last, stencil, shape, sizes, rule, fill, values, positions, cotangent, by_positions
):
    """Add Σ over channels of cotangent times derivative to ``by_positions`` (n, m, ndim)."""
    ndim = len(shape)
    places, work = scratch(stencil, shape, sizes)
    result = layout(stencil, shape).levels
    for task in range(first, last):
        s, begin, stop, here = locate(task, shape, positions)
        for p in range(begin, stop, LANES):
            count = min(LANES, stop - p)
            find_taps(stencil, shape, sizes, rule, ndim, here, p, count, places, work)
            for c in range(values.shape[1]):
                data = values[s % len(values), c]
                combine(stencil, shape, rule, ndim, data, fill, places, work)
                for i in range(count):
                    for k in range(ndim):
                        slope = read(work, result + k + 1, i)
                        by_positions[s, p + i, k] += cotangent[s, c, p + i] * slope


@kernel
def pull_values(first, last, stencil, shape, sizes, rule, positions, cotangent, by_values):
    """Add cotangent times weight of every tap to ``by_values`` (n or 1, channels, pixels).

    One task handles one channel of an image, for all samples: no two threads write to it.
    """
    places, work = scratch(stencil, shape, sizes)
    n_images, n_channels = by_values.shape[:2]
    m = cotangent.shape[2]
    for task in range(first, last):
        image, c = task // n_channels, task % n_channels
        for s in range(image, len(cotangent), n_images):
            here = positions[s % len(positions)]
            for p in range(0, m, LANES):
                count = min(LANES, m - p)
                find_taps(stencil, shape, sizes, rule, 0, here, p, count, places, work)
                row = cotangent[s, c, p : p + count]
                scatter(stencil, shape, row, places, work, by_values[image, c])
