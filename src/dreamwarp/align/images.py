"""Images as alignment needs them: float32, with channels, reduced to the detail warps explain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.samples import add_channels, check_finite, check_layout
from dreamwarp.space import WarpSpace

Images = NDArray[np.float32]

# An image is flat if its values vary by less than this share of their size.
FLAT = 1e-6
# Empirical Bayes aligns images of equal brightness, reduced to this many pixels per cell and axis.
# Members of a class also differ in ways that no warp explains, such as brightness and the thickness
# of strokes. Otherwise, warps that compress or stretch the image stand in for these; see
# ``experiments.resolution``.
PIXELS_PER_CELL = 4
# Number of values, of all images, whose median is the background.
N_BACKGROUND = 1_000_000
# Images below this share of the mean brightness are not scaled up to it: they are mostly noise.
LEAST_BRIGHTNESS = 0.1
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
    space: WarpSpace, images: NDArray[Any], pixels_per_cell: int | None = PIXELS_PER_CELL
) -> NDArray[np.float32]:
    """Images (n, channels, *spatial) without some of what no warp of the cells explains.

    They get equal brightness, and are smoothed and reduced to ``pixels_per_cell`` pixels per cell
    and axis if they have more.

    Parameters
    ----------
    images : (n, *spatial) or (n, channels, *spatial)
    pixels_per_cell : int or None
        None: images are only converted to float32 with channels.
    """
    values = scale_images(space, "X", images)
    if pixels_per_cell is None:
        return values
    shape = tuple(
        min(n, max(pixels_per_cell * k, MIN_PIXELS))
        for n, k in zip(values.shape[2:], space.cells, strict=True)
    )
    background = float(np.median(values[:: 1 + values.size // N_BACKGROUND]))
    factors = equalizing_factors(values, background)
    out = reduce_images(values, shape) if shape != values.shape[2:] else values.copy()
    out -= background
    out *= factors.reshape(-1, *[1] * (out.ndim - 1))
    return out


def equalizing_factors(images: Images, background: float) -> NDArray[np.float32]:
    """Factors (n,) that give images (n, channels, *spatial) the same brightness; 0 if constant.

    With x the difference from the background, the brightness of an image is Σ x² / Σ |x|. For
    strokes of one value it does not depend on their thickness, unlike the mean.
    """
    brightness = np.zeros(len(images))
    for k, image in enumerate(images):  # one at a time, to save memory
        x = np.abs(image - background)
        brightness[k] = np.vdot(x, x) / max(x.sum(), np.finfo(np.float32).tiny)
    flat = is_flat(images)
    usual = brightness[~flat].mean() if not flat.all() else 1.0
    factors = usual / np.maximum(brightness, LEAST_BRIGHTNESS * usual)
    # A constant image may differ from the background by rounding, which must not be scaled up.
    return np.where(flat, 0.0, factors).astype(np.float32)


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
    """Weights (coarse, size) of a Gaussian filter, standard deviation half a coarse pixel."""
    fine, centers = (np.arange(size) + 0.5) / size, (np.arange(coarse) + 0.5) / coarse
    distance = (centers[:, None] - fine) * coarse
    weights = np.exp(-0.5 * (distance / 0.5) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)
