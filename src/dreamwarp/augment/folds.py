"""Folds for judging strengths."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.training_pairs import MIN_PAIRS, TrainingPairs
from dreamwarp.core.draws import Stream, uniforms
from dreamwarp.model import WarpModel

# Smallest number of folds, for few and for many samples. With three folds each warped sample is
# compared with more held-out ones, and two thirds of many samples are enough to learn from.
N_FOLDS, N_FOLDS_OF_MANY, MANY = 5, 3, 300
# Approximate number of samples to hold out; further folds are not used.
N_HELD_OUT = 1000


def first_alike(images: NDArray[Any]) -> NDArray[np.int64]:
    """Index (n,) of the first sample that is identical to each."""
    rows = np.ascontiguousarray(images.reshape(len(images), -1))
    texts = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, firsts, places = np.unique(texts, return_index=True, return_inverse=True)
    return firsts[places]


def count_folds(n: int) -> int:
    """Number of folds for ``n`` samples."""
    return max(N_FOLDS if n < MANY else N_FOLDS_OF_MANY, math.ceil(n / N_HELD_OUT))


def make_folds(
    codes: NDArray[np.int64], alike: NDArray[np.int64], seed: int
) -> list[NDArray[np.bool_]]:
    """Stratified random folds, as masks (n,) of held-out samples; about ``N_HELD_OUT`` in total.

    Identical samples, those of equal ``alike`` (n,), are held out together: a copy among the
    training samples would be the nearest neighbour. No class is held out entirely, so a class that
    consists of copies of one sample is not held out at all.
    """
    n = len(codes)
    order = np.argsort(uniforms(seed, np.arange(n), 1, stream=Stream.ORDER)[:, 0], kind="stable")
    by_class = order[np.argsort(codes[order], kind="stable")]
    different = np.unique(np.stack([codes, alike]), axis=1)[0]
    alone = (np.bincount(different) == 1)[codes]
    n_folds = count_folds(n)
    # Counting continues over classes, so that small classes do not all start with the first fold.
    numbers = np.empty(n, np.int64)
    numbers[by_class] = np.arange(n) % n_folds
    numbers = numbers[alike]
    folds = [(numbers == number) & ~alone for number in range(n_folds)]
    n_used = math.ceil(N_HELD_OUT / (n / n_folds))
    return [fold for fold in folds[:n_used] if fold.any()]


class FittedFold(NamedTuple):
    """Held-out samples, and a model fitted without them."""

    held_out: NDArray[np.bool_]  # (n,)
    model: WarpModel


def fit_folds(
    pairs: TrainingPairs, images: NDArray[Any], codes: NDArray[np.int64], seed: int
) -> list[FittedFold]:
    """Folds whose other samples have two classes and enough pairs to fit a model to."""
    folds = []
    for held_out in make_folds(codes, first_alike(images), seed):
        others = pairs.among(~held_out)
        if len(others) >= MIN_PAIRS and len(np.unique(codes[~held_out])) > 1:
            folds.append(FittedFold(held_out, others.fit()))
    return folds


def choose_some(
    codes: NDArray[np.int64], kept: NDArray[np.bool_], n_most: int, seed: int
) -> NDArray[np.int64]:
    """Indices of the samples in the mask ``kept`` (n,), or of about ``n_most`` of them at random.

    Every class keeps the same fraction of its samples, rounded up.
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
