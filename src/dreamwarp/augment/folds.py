"""Which samples are held out, and which of the others are warped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.draws import Stream, uniforms

# Folds at least. Three where there are many samples: each warped sample then meets more held-out
# ones, and samples are enough to learn from without a third of them.
N_FOLDS, N_FOLDS_OF_MANY, MANY = 5, 3, 300
# Samples to hold out in all, about: folds beyond that are not used.
N_HELD_OUT = 1000
# Longest axes to compare samples by, by their number: larger samples are averaged down to that.
LONGEST = {1: 1024, 2: 32, 3: 12}


def first_alike(images: NDArray[Any]) -> NDArray[np.int64]:
    """For each sample (n,), the first that is identical to it."""
    rows = np.ascontiguousarray(images.reshape(len(images), -1))
    texts = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, firsts, places = np.unique(texts, return_index=True, return_inverse=True)
    return firsts[places]


def count_folds(n: int) -> int:
    """Folds that ``n`` samples are divided into."""
    return max(N_FOLDS if n < MANY else N_FOLDS_OF_MANY, math.ceil(n / N_HELD_OUT))


def make_folds(
    codes: NDArray[np.int64], alike: NDArray[np.int64], seed: int
) -> list[NDArray[np.bool_]]:
    """Which samples are held out together, as masks (n,); about ``N_HELD_OUT`` in all.

    Every class is divided alike, at random. Samples that are ``alike`` (n,) are held out together:
    a copy left behind would be the nearest neighbour. The only sample of a class, or copies of one
    alone, are never held out.
    """
    n = len(codes)
    order = np.argsort(uniforms(seed, np.arange(n), 1, stream=Stream.ORDER)[:, 0], kind="stable")
    by_class = order[np.argsort(codes[order], kind="stable")]
    different = np.unique(np.stack([codes, alike]), axis=1)[0]
    alone = (np.bincount(different) == 1)[codes]
    n_folds = count_folds(n)
    # Counted on from class to class, so that small classes do not all begin with the first fold.
    numbers = np.empty(n, np.int64)
    numbers[by_class] = np.arange(n) % n_folds
    numbers = numbers[alike]
    folds = [(numbers == number) & ~alone for number in range(n_folds)]
    n_used = math.ceil(N_HELD_OUT / (n / n_folds))
    return [fold for fold in folds[:n_used] if fold.any()]


def choose_some(
    codes: NDArray[np.int64], kept: NDArray[np.bool_], n_most: int, seed: int
) -> NDArray[np.int64]:
    """Numbers of the samples that are kept (n,), or of about ``n_most`` of them at random.

    Every class keeps the same share of its samples, rounded up: none is lost.
    """
    numbers = np.flatnonzero(kept)
    if len(numbers) <= n_most:
        return numbers
    order = uniforms(seed, numbers, 2, stream=Stream.ORDER)[:, 1]
    members = (np.flatnonzero(codes[numbers] == code) for code in np.unique(codes[numbers]))
    some = [
        mine[np.argsort(order[mine], kind="stable")[: -(-n_most * len(mine) // len(numbers))]]
        for mine in members
    ]
    return np.sort(numbers[np.concatenate(some)])


def shrink_images(images: NDArray[Any], ndim: int) -> NDArray[np.float32]:
    """Samples with axes of at most ``LONGEST``, by means over neighbouring pixels."""
    values = images.astype(np.float32)
    for axis in range(images.ndim - ndim, images.ndim):
        size = images.shape[axis]
        n_new = min(size, LONGEST[ndim])
        starts = np.linspace(0, size, n_new, endpoint=False).astype(np.int64)
        lengths = np.diff(np.append(starts, size)).astype(np.float32)
        sums = np.add.reduceat(values, starts, axis=axis)
        shape = [1] * axis + [n_new] + [1] * (images.ndim - 1 - axis)
        values = np.divide(sums, lengths.reshape(shape), dtype=np.float32)
    return values


def standardize(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shift to mean 0 and scale to deviation 1: float32 distances lose digits to a large mean."""
    centered = images - images.mean(dtype=np.float64).astype(np.float32)
    return centered / np.float32(max(float(centered.std(dtype=np.float64)), 1e-30))
