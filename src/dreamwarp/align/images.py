"""Images as alignment needs them: float32, with channels, reduced to the detail warps explain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.samples import add_channels, check_finite, check_layout
from dreamwarp.space import WarpSpace

Images = NDArray[np.float32]

# An image is flat if its values vary by less than this fraction of their magnitude.
FLAT = 1e-6
# Empirical Bayes aligns images reduced to this many pixels per cell and axis. Members of a class
# also differ in details that no warp of these cells explains, such as the thickness of strokes. At
# full resolution, warps that compress or stretch the image imitate such details; see
# ``experiments.resolution``. They imitate differences of brightness too; see ``equalize``.
PIXELS_PER_CELL = 4
# Brightness is equalized if that reduces the mean square difference of pairs by at least this
# fraction. The reduction is 10 % on Fashion-MNIST, and 0 to 1 % on MNIST.
LEAST_GAIN = 0.05
# Largest factor of an image: very dark ones are mostly noise.
LARGEST_FACTOR = 10.0
# Fewest pixels per axis of reduced images: with fewer, linear interpolation loses structure.
MIN_PIXELS = 12


def scale_images(
    space: WarpSpace, name: str, images: NDArray[Any], *others: NDArray[Any]
) -> Images:
    """Images as float32 (n, channels, *spatial); integers are scaled to [0, 1].

    Integers of more than 16 bits are divided by the largest value of these and ``others``.
    """
    check_layout(name, images.shape, space.ndim)
    with np.errstate(over="ignore"):  # checked below
        values = np.ascontiguousarray(images, dtype=np.float32)
    if not values.flags.writeable:
        values = values.copy()  # numba would compile other kernels for read-only arrays
    check_finite(name, values)
    if images.dtype.kind in "iu":
        if images.dtype.itemsize <= 2:
            largest = float(np.iinfo(images.dtype).max)
        else:
            every = (images, *others)
            largest = max(float(np.abs(a.astype(np.float64)).max(initial=0.0)) for a in every)
        values /= np.float32(largest or 1.0)
    return add_channels(values, space.ndim)


def is_flat(images: Images) -> NDArray[np.bool_]:
    """Which of the images (n, channels, *spatial) are constant."""
    axes = tuple(range(1, images.ndim))
    low, high = images.min(axis=axes), images.max(axis=axes)
    return high - low <= FLAT * np.maximum(np.abs(low), np.abs(high))


def simplify(
    space: WarpSpace,
    images: NDArray[Any],
    pixels_per_cell: int | None = PIXELS_PER_CELL,
    *,
    alike: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Equalize the brightness of images, and remove detail that warps of the cells can't explain.

    First, their brightness is equalized if that makes pairs ``alike`` (n_pairs, 2) of the same
    class more alike. Then they are smoothed and reduced to at most ``pixels_per_cell`` pixels per
    cell and axis, but to no fewer than ``MIN_PIXELS`` per axis. If ``pixels_per_cell`` is None,
    they are only converted. The result is float32, (n, channels, *spatial).
    """
    values = scale_images(space, "X", images)
    if pixels_per_cell is None:
        return values
    if alike is not None and len(alike):
        values = equalize(values, alike)
    shape = tuple(
        min(n, max(pixels_per_cell * k, MIN_PIXELS))
        for n, k in zip(values.shape[2:], space.cells, strict=True)
    )
    return values if shape == values.shape[2:] else reduce_images(values, shape)


def equalize(images: Images, alike: NDArray[np.int64]) -> Images:
    """Scale images to equal brightness if that makes the pairs ``alike`` (n_pairs, 2) more alike.

    The background of a channel is the median of its border values. With x the difference from the
    background, the brightness of an image is Σ x² / Σ |x|. For strokes of one value it does not
    depend on their thickness, unlike the mean.
    """
    background, flat = find_background(images), is_flat(images)
    if flat.all():
        return images
    brightness = np.array([_brightness(image - background) for image in images])
    usual = float(np.median(brightness[~flat]))
    factors = usual / np.maximum(brightness, usual / LARGEST_FACTOR)
    # A constant image may differ from the background by rounding, which must not be scaled up.
    factors = np.where(flat, 1.0, factors).astype(np.float32)
    before = _difference(images, alike, background, np.ones_like(factors))
    after = _difference(images, alike, background, factors)
    if not after <= (1.0 - LEAST_GAIN) * before:
        return images
    by_image = factors.reshape(-1, *[1] * (images.ndim - 1))
    return np.asarray(background + by_image * (images - background), dtype=np.float32)


def find_background(images: Images) -> Images:
    """Median of the border values of each channel, (channels, 1, ...)."""
    inside = np.zeros(images.shape[2:], bool)
    inside[tuple(slice(1, -1) for _ in inside.shape)] = True
    medians = np.median(images[:, :, ~inside], axis=(0, 2)).astype(np.float32)
    return medians.reshape(-1, *[1] * inside.ndim)


def _brightness(difference: Images) -> float:
    """Σ x² / Σ |x|; scaled, because squares of float32 may overflow."""
    largest = float(np.abs(difference).max())
    if largest == 0.0:
        return 0.0
    x = np.abs(difference / largest, dtype=np.float64)
    return largest * float(np.vdot(x, x) / x.sum())


def _difference(
    images: Images, alike: NDArray[np.int64], background: Images, factors: NDArray[np.float32]
) -> float:
    """Mean square difference of pairs, relative to the mean square of their images."""
    differences = squares = 0.0
    for m, n in alike:  # one pair at a time, to save memory
        one, other = (factors[k] * (images[k] - background).astype(np.float64) for k in (m, n))
        differences += float(np.sum((one - other) ** 2))
        squares += float(np.sum(one**2) + np.sum(other**2))
    return differences / max(squares, np.finfo(np.float64).tiny)


def reduce_images(images: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Images (n, channels, *spatial), smoothed and sampled at a coarser resolution."""
    out: NDArray[Any] = images
    for axis, size in enumerate(shape):
        weights = _reduction(images.shape[axis + 2], size)
        # einsum: the order of summation of a matrix product may depend on the number of images.
        out = np.moveaxis(
            np.einsum("...a,ba->...b", np.moveaxis(out, axis + 2, -1), weights), -1, axis + 2
        )
    return np.ascontiguousarray(out, dtype=np.float32)


def _reduction(size: int, coarse: int) -> NDArray[np.float32]:
    """Weights (coarse, size) of a Gaussian filter, standard deviation half a coarse pixel.

    Cut off at four standard deviations, so that a blank background stays exactly blank and is
    skipped in the search.
    """
    fine, centers = (np.arange(size) + 0.5) / size, (np.arange(coarse) + 0.5) / coarse
    distance = (centers[:, None] - fine) * coarse
    weights = np.where(np.abs(distance) < 2.0, np.exp(-0.5 * (distance / 0.5) ** 2), 0.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def shrink_images(images: NDArray[Any], ndim: int, longest: int) -> Images:
    """Average samples down to axes of at most ``longest`` pixels."""
    values = images.astype(np.float32)
    for axis in range(images.ndim - ndim, images.ndim):
        size = images.shape[axis]
        n_new = min(size, longest)
        starts = np.linspace(0, size, n_new, endpoint=False).astype(np.int64)
        lengths = np.diff(np.append(starts, size)).astype(np.float32)
        sums = np.add.reduceat(values, starts, axis=axis)
        shape = [1] * axis + [n_new] + [1] * (images.ndim - 1 - axis)
        values = np.divide(sums, lengths.reshape(shape), dtype=np.float32)
    return values
