"""Random elastic deformation, the usual hand-made augmentation: the same noise for every class.

Every pixel is moved by its own random displacement, and the displacements are smoothed (Simard,
Steinkraus and Platt 2003). Nothing keeps the result from folding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from dreamwarp.core.draws import Seed, Stream, as_key, normals
from dreamwarp.space.resample import resample


def deform_elastically(
    images: NDArray[Any],
    *,
    width: float,
    amplitude: float,
    n_axes: int = 2,
    seed: Seed = 0,
    first: int = 0,
) -> NDArray[Any]:
    """Samples (n, *spatial) or (n, channels, *spatial), each under its own random deformation.

    Parameters
    ----------
    width : float
        Standard deviation of the Gaussian that smooths the displacements, in pixels.
    amplitude : float
        Root mean square displacement along each axis, in pixels.
    n_axes : int
        Spatial axes: 1 for series, 2 for images, 3 for volumes. All channels move alike.
    seed : int, numpy.random.Generator or None
    first : int
        Number of the first sample: the deformation of sample k depends on the seed and on
        ``first + k`` alone.
    """
    if images.ndim not in (n_axes + 1, n_axes + 2):
        raise ValueError(
            f"`images` must have shape (n, *spatial) or (n, channels, *spatial) with {n_axes} "
            f"spatial axes, got {images.shape}. `n_axes` is 1 for series, 3 for volumes."
        )
    n, shape = len(images), images.shape[-n_axes:]
    key, numbers = as_key(seed), np.arange(first, first + n)
    noise = normals(key, numbers, n_axes * int(np.prod(shape)), stream=Stream.WARP)
    fields = noise.reshape(n, n_axes, *shape)
    axes = tuple(range(1, n_axes + 2))
    smooth = ndimage.gaussian_filter(fields, width, axes=axes[1:], mode="wrap")
    spread = np.sqrt(np.mean(smooth**2, axis=axes, keepdims=True))
    moved = np.moveaxis(amplitude * smooth / spread, 1, -1) / np.array(shape)
    centers = [(np.arange(size) + 0.5) / size for size in shape]
    pixels = np.stack(np.meshgrid(*centers, indexing="ij"), axis=-1)
    positions = (pixels + moved).reshape(n, -1, n_axes).astype(np.float32)
    channels = images.reshape(n, -1, *shape)
    return resample(channels, positions, fill="edge").reshape(images.shape)
