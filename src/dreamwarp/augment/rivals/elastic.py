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
    seed: Seed = 0,
    first: int = 0,
) -> NDArray[Any]:
    """Images (n, rows, columns), each under its own random elastic deformation.

    Parameters
    ----------
    width : float
        Standard deviation of the Gaussian that smooths the displacements, in pixels.
    amplitude : float
        Root mean square displacement along each axis, in pixels.
    seed : int, numpy.random.Generator or None
    first : int
        Number of the first image: the deformation of image k depends on the seed and on
        ``first + k`` alone.
    """
    n, *shape = images.shape
    key, numbers = as_key(seed), np.arange(first, first + n)
    noise = normals(key, numbers, 2 * int(np.prod(shape)), stream=Stream.WARP)
    fields = noise.reshape(n, 2, *shape)
    smooth = ndimage.gaussian_filter(fields, width, axes=(2, 3), mode="wrap")
    spread = np.sqrt(np.mean(smooth**2, axis=(1, 2, 3), keepdims=True))
    moved = np.moveaxis(amplitude * smooth / spread, 1, -1) / np.array(shape)
    axes = [(np.arange(size) + 0.5) / size for size in shape]
    pixels = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    positions = (pixels + moved).reshape(n, -1, 2).astype(np.float32)
    return resample(images[:, None], positions, fill="edge").reshape(images.shape)
