"""Random elastic and affine deformation, the usual augmentation; the same for all classes.

Every pixel is moved by its own random displacement, and the displacements are smoothed (Simard,
Steinkraus and Platt 2003). A random affine map can be added. Nothing keeps the result from folding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.draws import Seed, Stream, as_key, derive_seed, normals
from dreamwarp.core.samples import pixel_centers
from dreamwarp.space.resample import Interpolation, resample

# Standard deviations of a random affine map of strength 1: of every entry of its matrix, which
# makes scaling and shear; of the skew part on top, in radians, which makes rotation; and of the
# shift, as a fraction of the domain.
STRETCH, ROTATION, SHIFT = 0.1, 0.15, 0.04


def deform_elastically(
    images: NDArray[Any],
    *,
    width: float,
    amplitude: float,
    affine: float = 0.0,
    n_axes: int = 2,
    interpolation: Interpolation = "linear",
    seed: Seed = 0,
    first: int = 0,
) -> NDArray[Any]:
    """Samples (n, *spatial) or (n, channels, *spatial), each under its own random deformation.

    Parameters
    ----------
    width : float
        Standard deviation of the Gaussian that smooths the displacements, in pixels.
    amplitude : float
        Root mean square displacement along each axis, in pixels; 0 for none.
    affine : float
        Strength of a random affine map: 1 stretches and shears by about a tenth, rotates by about
        10 degrees and shifts by about 4 % of the domain. Default: none.
    n_axes : int
        Spatial axes: 1 for series, 2 for images, 3 for volumes. All channels get the same
        deformation.
    interpolation : {"linear", "nearest", "cubic"}
        How values between pixels are computed.
    seed : int, numpy.random.Generator or None
    first : int
        Index of the first sample: the deformation of sample k depends on the seed and on
        ``first + k`` alone.
    """
    if images.ndim not in (n_axes + 1, n_axes + 2):
        raise ValueError(
            f"`images` must have shape (n, *spatial) or (n, channels, *spatial) with {n_axes} "
            f"spatial axes, got {images.shape}. `n_axes` is 1 for series, 3 for volumes."
        )
    n, shape = len(images), images.shape[-n_axes:]
    key, numbers = as_key(seed), np.arange(first, first + n)
    positions = pixel_centers(shape)
    moved = np.zeros((n, *positions.shape))
    if amplitude > 0.0:
        moved += amplitude * smooth_noise(key, numbers, shape, width) / np.array(shape)
    if affine > 0.0:
        matrices, shifts = affine * draw_matrices(key, numbers, n_axes), affine * SHIFT
        moved += np.einsum("nij,mj->nmi", matrices, positions - 0.5)
        shift_key = derive_seed(key, 2)
        moved += shifts * normals(shift_key, numbers, n_axes, stream=Stream.WARP)[:, None]
    channels = images.reshape(n, -1, *shape)
    positions = (positions + moved).astype(np.float32)
    made = resample(channels, positions, interpolation=interpolation, fill="edge")
    return made.reshape(images.shape)


def smooth_noise(
    key: int, numbers: NDArray[np.int64], shape: tuple[int, ...], width: float
) -> NDArray[np.float64]:
    """Smooth random displacements (n, m, n_axes) of root mean square 1, periodic in the domain."""
    n, n_axes = len(numbers), len(shape)
    noise = normals(key, numbers, n_axes * int(np.prod(shape)), stream=Stream.WARP)
    fields = noise.reshape(n, n_axes, *shape)
    for axis, size in enumerate(shape, start=2):
        offsets = np.arange(size)[:, None] - np.arange(size)
        apart = np.minimum(offsets % size, -offsets % size)
        smoother = np.exp(-0.5 * (apart / width) ** 2)
        fields = np.moveaxis(np.moveaxis(fields, axis, -1) @ smoother, -1, axis)
    fields = np.moveaxis(fields.reshape(n, n_axes, -1), 1, -1)
    return fields / np.sqrt(np.mean(fields**2, axis=(1, 2), keepdims=True))


def draw_matrices(key: int, numbers: NDArray[np.int64], n_axes: int) -> NDArray[np.float64]:
    """Random matrices (n, n_axes, n_axes) to add to the identity."""
    noise = normals(derive_seed(key, 1), numbers, 2 * n_axes**2, stream=Stream.WARP)
    noise = noise.reshape(len(numbers), 2, n_axes, n_axes)
    upper = np.triu(noise[:, 1], 1)
    return STRETCH * noise[:, 0] + ROTATION * (upper - np.swapaxes(upper, 1, 2))
