"""An InfiMNIST-style generator: unlimited images from few, by hand-designed deformations.

After Loosli, Canu and Bottou, "Training invariant support vector machines using selective
sampling" (2007). Image i is made of an original x and two of 1,522 smooth fields F:

    x' = x + s (F[k1] ∂x/∂row - F[k2] ∂x/∂column),    s = -1 if k1 + k2 is odd, else 1,

which is, to first order, x with its pixels moved by the fields. It is clipped to the range of
images, truncated to integers, and shifted by up to one pixel along each axis. Fields, sign and
shift follow from i by the published arithmetic, so any image can be computed directly. The
published fields are not available; smoothed Gaussian noise replaces them. Hence "InfiMNIST-style".

Fields are rounded to 1/256 pixel. This is invisible, and makes every operation on uint8 images
exact in float32, so that all machines give the same bytes.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.compiled import kernel, part, spread
from dreamwarp.core.draws import Seed, check_numbers, derive_seed, normals
from dreamwarp.data.dataset import check_part

# Width and amplitude of the fields in pixels. Chosen by the 1-NN error on the last 10,000
# training images of MNIST, with 500 images per class of the first 50,000 and 100,000 deformed ones.
# Widths of 3 to 8 and amplitudes of 0.5 to 1 hardly differ; amplitudes of 0, 1.5 and 2 are worse.
WIDTH, AMPLITUDE = 4.0, 0.75

# From the published generator: number of fields, and constants that map image numbers to fields.
N_FIELDS = 1522
SCATTER, LOW_32_BITS = 131071, 2**32 - 1
# Shift in rows and columns by k1 mod 9: up, down, left, right, up-left, up-right, down-left,
# down-right, none.
SHIFTS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0)])
# In place of an image number: do not deform.
UNCHANGED = -1

# Fields are integer multiples of 1 / GRAIN pixels.
GRAIN = 256
# Gaussians are cut off at this many widths, at 1/3000 of their height.
REACH = 4.0
# Random numbers in memory at a time.
NOISE_BLOCK = 2**22
# Images per block: a block takes well over 50 µs, the time to start a thread.
IMAGES_PER_BLOCK = 128
# float32 constants keep the arithmetic in float32.
HALF, BLACK, WHITE = np.float32(0.5), np.float32(0), np.float32(255)


class InfiMNIST:
    """An unlimited number of images and labels, by number.

    Numbered as in the published generator: first the test images, if given, then the images, both
    unchanged, and from ``first_generated`` on deformed images, which cycle through the images. For
    MNIST with its test images, that is 0 to 9,999, 10,000 to 69,999, and from 70,000 on. Without
    test images, image i comes from original i mod n.

    Parameters
    ----------
    images : (n, rows, columns) uint8
    labels : (n,)
    test : (images, labels), optional
        Never deformed.
    width : float
        Smoothness of the fields: standard deviation of the Gaussian, in pixels.
    amplitude : float
        Strength of the fields: root mean square, in pixels.
    seed : int, numpy.random.Generator or None
        Seed of the fields; nothing else is random.

    Notes
    -----
    With an even number of fields, k1 + k2 is always odd, so s is always -1, as in the published
    generator.

    Examples
    --------
    >>> data = dreamwarp.data.mnist()
    >>> generator = InfiMNIST(data.X, data.y, test=data.test)
    >>> generator.image(range(1_000_000, 1_000_008)).shape
    (8, 28, 28)
    """

    def __init__(
        self,
        images: ArrayLike,
        labels: ArrayLike,
        *,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        width: float = WIDTH,
        amplitude: float = AMPLITUDE,
        seed: Seed = 0,
    ) -> None:
        parts = [_check_images("images", images, labels)]
        if test is not None:
            parts.insert(0, _check_images("test", *test))
        if parts[0][0].shape[1:] != parts[-1][0].shape[1:]:
            raise ValueError(
                f"`test` must have images of the size of the others, {parts[-1][0].shape[1:]}, "
                f"got {parts[0][0].shape[1:]}."
            )
        self._originals, self._labels = map(np.concatenate, zip(*parts, strict=True))
        self.n_test = len(self._labels) - len(parts[-1][1])
        self.image_shape: tuple[int, int] = self._originals.shape[1:]
        self.fields = smooth_fields(self.image_shape, width=width, amplitude=amplitude, seed=seed)

    @property
    def first_generated(self) -> int:
        """Index of the first deformed image."""
        return len(self._originals)

    def image(self, indices: ArrayLike, *, n_threads: int | None = None) -> NDArray[np.uint8]:
        """Images by number, in any order: (n, rows, columns), or (rows, columns) for one number."""
        numbers = check_numbers(indices, "indices", or_one=True)
        flat = numbers.ravel()
        images = np.empty((len(flat), *self.image_shape), np.uint8)
        spread(
            _deform, len(flat), self._originals, self.source(flat),
            np.where(flat < self.first_generated, UNCHANGED, flat), self.fields, images,
            n_threads=n_threads, smallest_block=IMAGES_PER_BLOCK,
        )  # fmt: skip
        return images.reshape(*numbers.shape, *self.image_shape)

    def label(self, indices: ArrayLike) -> NDArray[Any]:
        """Labels by number: (n,), or one."""
        return self._labels[self.source(indices)]

    def source(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Numbers of the originals of images: (n,), or one."""
        numbers = check_numbers(indices, "indices", or_one=True)
        n = self.first_generated - self.n_test
        turned = self.n_test + (numbers - self.n_test) % n
        return np.where(numbers < self.first_generated, numbers, turned)


def _check_images(name: str, images: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Any]:
    values = np.asarray(images)
    if values.ndim != 3 or values.dtype != np.uint8:
        raise ValueError(
            f"`{name}` must be uint8 images of shape (n, rows, columns), got {values.dtype} of "
            f"shape {values.shape}. Scale values to integers from 0 to 255."
        )
    return values, check_part(name, values, labels)


# -- fields


def smooth_fields(
    shape: tuple[int, int], *, width: float = WIDTH, amplitude: float = AMPLITUDE, seed: Seed = 0
) -> NDArray[np.float32]:
    """White noise, smoothed by a Gaussian: (1522, rows, columns), integer multiples of 1/256.

    Options as for :class:`InfiMNIST`. Values of a field that are √2 widths apart have correlation
    e^(-1/2). Field k depends on the seed and k alone.
    """
    rows, columns = (operator.index(size) for size in shape)
    _check_strength(max(rows, columns), width, amplitude)
    key = derive_seed(seed, N_FIELDS)
    down, across = _smoother(rows, width), _smoother(columns, width)
    noise_shape = down.shape[1], across.shape[1]
    n_noise = noise_shape[0] * noise_shape[1]
    step = max(1, NOISE_BLOCK // n_noise)
    fields = np.empty((N_FIELDS, rows, columns), np.float32)
    for first in range(0, N_FIELDS, step):
        numbers = np.arange(first, min(first + step, N_FIELDS))
        noise = normals(key, numbers, n_noise).reshape(-1, *noise_shape)
        fields[numbers] = np.rint(GRAIN * amplitude * (down @ noise @ across.T)) / GRAIN
    return fields


def _smoother(size: int, width: float) -> NDArray[np.float64]:
    """Gaussian smoothing matrix (size, size + 2 margins) that keeps the variance of white noise."""
    margin = int(np.ceil(REACH * width))
    offset = np.arange(size + 2 * margin) - margin - np.arange(size)[:, None]
    weights = np.where(np.abs(offset) <= margin, np.exp(-0.5 * (offset / width) ** 2), 0.0)
    return weights / np.linalg.norm(weights, axis=1, keepdims=True)


def _check_strength(longest: int, width: float, amplitude: float) -> None:
    if not isinstance(width, Real) or not 0.0 < width <= longest:
        raise ValueError(
            f"`width` must be above 0 and at most {longest} pixels, the longer side of the images, "
            f"got {width!r}. Usual values are 2 to 8."
        )
    if not isinstance(amplitude, Real) or not 0.0 <= amplitude <= longest:
        raise ValueError(
            f"`amplitude` must be from 0 to {longest} pixels, the longer side of the images, got "
            f"{amplitude!r}. Usual values are about 1."
        )


# -- images


@kernel
def _deform(first, last, originals, sources, numbers, fields, out):
    """Deformation ``numbers[i]`` of image ``sources[i]`` into ``out[i]``; one task is an image.

    originals (m, rows, columns), sources (n,), numbers (n,): at least 0, or ``UNCHANGED``;
    fields (1522, rows, columns), out (n, rows, columns).
    """
    n_rows, n_columns = originals.shape[1:]
    padded = np.empty((n_rows + 2, n_columns + 2), fields.dtype)
    for i in range(first, last):
        image, target = originals[sources[i]], out[i]
        if numbers[i] == UNCHANGED:
            target[:] = image
            continue
        k1, k2 = choose_fields(numbers[i])
        # ±1/2: derivatives are differences over two pixels.
        half_sign = -HALF if (k1 + k2) % 2 == 1 else HALF
        rows, columns = SHIFTS[k1 % len(SHIFTS)]
        target[:] = 0
        pad_by_one(image, padded)
        push_pixels(padded, fields[k1], fields[k2], half_sign, rows, columns, target)


@part
def choose_fields(number):
    """k1 = (131071 i mod 2^32) mod 1521 and k2 = (k1 + 1 + 2 i) mod 1522.

    The product may overflow: its low bits stay right. 1521 + 2 i must not, so 2 i is reduced first:
    (2 i) mod 1522 = 2 (i mod 761).
    """
    k1 = (number * SCATTER & LOW_32_BITS) % (N_FIELDS - 1)
    k2 = (k1 + 1 + 2 * (number % (N_FIELDS // 2))) % N_FIELDS
    return k1, k2


@part
def pad_by_one(image, padded):
    """Pad an image by repeating its outermost pixels."""
    n_rows, n_columns = image.shape
    for row in range(n_rows + 2):
        source, target = image[min(max(row - 1, 0), n_rows - 1)], padded[row]
        for column in range(n_columns):
            target[column + 1] = source[column]
        target[0], target[n_columns + 1] = source[0], source[n_columns - 1]


@part
def push_pixels(padded, field_1, field_2, half_sign, rows, columns, out):
    """Add the fields times the derivatives; write the result shifted by ``rows``, ``columns``.

    Derivatives are central differences, x[row + 1] - x[row - 1] over 2.
    """
    n_rows, n_columns = out.shape
    start, stop = max(0, -columns), n_columns - max(0, columns)
    for row in range(max(0, -rows), n_rows - max(0, rows)):
        above, below = padded[row, start + 1 : stop + 1], padded[row + 2, start + 1 : stop + 1]
        left, right = padded[row + 1, start:stop], padded[row + 1, start + 2 : stop + 2]
        center = padded[row + 1, start + 1 : stop + 1]
        down, across = field_1[row, start:stop], field_2[row, start:stop]
        target = out[row + rows, start + columns : stop + columns]
        for k in range(stop - start):
            change = down[k] * (below[k] - above[k]) - across[k] * (right[k] - left[k])
            target[k] = min(max(center[k] + half_sign * change, BLACK), WHITE)
