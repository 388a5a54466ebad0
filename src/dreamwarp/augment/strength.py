"""How strong warps should be, and whether they help at all: judged by a nearest neighbour.

Training samples are divided into folds, identical ones together. Samples of a fold are held out:
neither they nor pairs with them go into the distributions. Three things are settled once, for all
folds, and so have seen them: the noise of alignments, the neighbours of each sample, and the
amounts of a model, such as its shrinkage. Each held-out sample is compared with the other samples
and with warped copies of them. With a the distance to the nearest of its own class, and b to the
nearest of another, its error is

    e = a²⁰ / (a²⁰ + b²⁰).

That is the error of the nearest neighbour, 0 or 1, but smooth where the two are about equally near,
within some 5 %. It says the same with fewer samples. Of more than some 4,000 samples as many are
drawn to be compared with and to be warped; the verdict then holds for a data set of that size.

All strengths are compared on the same warps but for the factor. If the strongest is the best,
stronger ones are tried.

How the strength is chosen, and the verdict made, is in ``dreamwarp.augment.verdict``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from dreamwarp.augment.class_distances import BLOCK, ClassDistances
from dreamwarp.augment.folds import (
    choose_some,
    first_alike,
    make_folds,
    shrink_images,
    standardize,
)
from dreamwarp.augment.learning import MIN_PAIRS, AlignedPairs, refit
from dreamwarp.augment.verdict import (
    UNJUDGED_STRENGTH,
    UNKNOWN,
    Errors,
    Judgement,
    Terms,
    check_strengths,
    conclude,
    is_last_best,
)
from dreamwarp.core.compiled import thread_count
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import apply_strength
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]

# What "auto" compares, and what it goes on with, one by one, while the strongest is the best.
STRENGTHS = (0.0, 0.5, 0.7, 1.0, 1.4)
STRONGER = (2.0, 2.8, 4.0)
# Warped samples per strength, over all folds: as many, and as many more per sample, at most so
# many. 1,000 images of 28 x 28 then take about 7 s of processor time, over all cores.
N_WARPED, N_WARPED_PER_SAMPLE, MOST_WARPED = 12_000, 12, 80_000
# Copies of a sample among them. Many samples are subsampled to have MIN_COPIES each.
MIN_COPIES, MAX_COPIES = 12, 200
# Shares of the copies after which errors are taken, to see how many are enough.
SHARES = (0.25, 0.5, 1.0)
# Half the exponent of e: it is that of squared distances.
SHARPNESS = 10.0
# Smallest squared distance per number that float32 can tell from none.
SMALLEST = 1e-6


def judge_strengths(
    model: WarpModel,
    pairs: AlignedPairs,
    images: NDArray[Any],
    codes: NDArray[np.int64],
    *,
    strengths: Sequence[float] | None = None,
    seed: int,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Judgement:
    """Compare strengths on held-out samples.

    Parameters
    ----------
    model : WarpModel
        Fitted to ``pairs``.
    images : (n, *spatial) or (n, channels, *spatial)
    codes : (n,)
        Class of each sample.
    strengths : sequence of float, optional
        What to compare with 0. Default: ``STRENGTHS``, and more of ``STRONGER`` while the
        strongest is the best.
    """
    tried = list(STRENGTHS if strengths is None else check_strengths(strengths))
    small = standardize(shrink_images(images, model.space.ndim))
    held_out = held_out_masks(pairs, small, codes, seed)
    if not held_out:
        return Judgement(UNJUDGED_STRENGTH, {}, UNKNOWN)
    n_warped = min(N_WARPED + N_WARPED_PER_SAMPLE * len(images), MOST_WARPED)
    data = _Data(small, codes, n_warped // len(held_out), seed, n_threads)
    # A function that follows the alignment is not told about this: it would see two countdowns.
    shown = False if callable(progress) else progress
    with threadpool_limits(thread_count(n_threads), user_api="blas"):
        folds = [_Fold.of(model, pairs, data, some) for some in held_out]
        terms = _make_terms(folds, data, images, model.space.ndim)
        errors = _judge(folds, data, tried, terms.copies, shown)
        for stronger in STRONGER if strengths is None else ():
            if not is_last_best(errors[-1]):
                break
            more = _judge(folds, data, [stronger], terms.copies, shown)
            errors = [a.stack(b) for a, b in zip(errors, more, strict=True)]
            tried.append(stronger)
    return conclude(errors, tried, terms)


def held_out_masks(
    pairs: AlignedPairs, images: NDArray[Any], codes: NDArray[np.int64], seed: int
) -> list[NDArray[np.bool_]]:
    """Folds (n,) without which there are enough pairs for a model, and classes to tell apart."""
    folds = make_folds(codes, first_alike(images), seed)
    return [
        fold
        for fold in folds
        if len(pairs.among(~fold)) >= MIN_PAIRS and len(np.unique(codes[~fold])) > 1
    ]


class _Data(NamedTuple):
    """Samples and what to do with them; ``n_warped`` per strength and fold."""

    images: NDArray[np.float32]
    codes: NDArray[np.int64]
    n_warped: int
    seed: int
    n_threads: int | None


class _Fold(NamedTuple):
    """Samples that are held out, and what they are compared with.

    Attributes
    ----------
    model : WarpModel
        Fitted without them.
    truth : (m,)
        Their classes.
    kept : (k,)
        Numbers of the samples that they are compared with and that are warped, by class.
    distances : ClassDistances
        To the samples that are kept.
    """

    model: WarpModel
    truth: NDArray[np.int64]
    kept: NDArray[np.int64]
    distances: ClassDistances

    @classmethod
    def of(
        cls, model: WarpModel, pairs: AlignedPairs, data: _Data, held_out: NDArray[np.bool_]
    ) -> _Fold:
        images, codes = data.images, data.codes
        kept = choose_some(codes, ~held_out, max(data.n_warped // MIN_COPIES, 1), data.seed)
        kept = kept[np.argsort(codes[kept], kind="stable")]
        distances = ClassDistances.among(
            images[held_out], images[kept], codes[kept], len(model.classes)
        )
        return cls(refit(model, pairs.among(~held_out)), codes[held_out], kept, distances)


def _make_terms(folds: Sequence[_Fold], data: _Data, images: NDArray[Any], ndim: int) -> Terms:
    n_others = max(len(fold.kept) for fold in folds)
    n_copies = min(MAX_COPIES, max(1, data.n_warped // n_others))
    copies = sorted({max(1, round(share * n_copies)) for share in SHARES})
    is_shrunk = data.images.shape != images.shape
    shape = data.images.shape[images.ndim - ndim :] if is_shrunk else None
    return Terms(tuple(copies), n_others, len(images), shape)


def _judge(
    folds: Sequence[_Fold],
    data: _Data,
    strengths: Sequence[float],
    copies: Sequence[int],
    progress: ProgressOption,
) -> list[Errors]:
    """Errors at all strengths, for each number of copies."""
    nearest = {strength: [fold.distances for fold in folds] for strength in strengths}
    found = []
    with track(len(folds) * len(nearest) * copies[-1], "judging strengths", progress) as advance:
        for done, wanted in pairwise((0, *copies)):
            for number, fold in enumerate(folds):
                _add_copies(fold, number, data, nearest, range(done, wanted))
                advance(len(nearest) * (wanted - done))
            errors = [_errors_of(folds, nearest[strength]) for strength in strengths]
            found.append(Errors(*map(np.stack, zip(*errors, strict=True))))
    return found


def _add_copies(
    fold: _Fold,
    number: int,
    data: _Data,
    nearest: dict[float, list[ClassDistances]],
    copies: range,
) -> None:
    """Compare the samples of a fold with more copies; strengths differ by the factor alone."""
    for templates, theta in _draw_warps(fold, data, copies):
        for strength, distances in nearest.items():
            if strength > 0.0:
                warped = Warp(fold.model.space, apply_strength(theta, strength)).image(
                    data.images[templates], n_threads=data.n_threads
                )
                distances[number] = distances[number].improve(warped, data.codes[templates])


def _draw_warps(
    fold: _Fold, data: _Data, copies: range
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Blocks of samples to warp, by class, and learned θ, for some copies of each sample."""
    n, labels = len(fold.kept), np.array(fold.model.classes)
    for first in range(copies.start * n, copies.stop * n, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, copies.stop * n))
        codes = data.codes[fold.kept[numbers % n]]
        numbers = numbers[np.argsort(codes, kind="stable")]
        templates = fold.kept[numbers % n]
        theta = fold.model.draw(
            labels[data.codes[templates]], numbers, seed=data.seed, templates=templates,
            n_threads=data.n_threads,
        )  # fmt: skip
        yield templates, theta


def _errors_of(folds: Sequence[_Fold], nearest: Sequence[ClassDistances]) -> Errors:
    """Errors (n_held_out,) of the samples of all folds, at one strength."""
    pairs = list(zip(nearest, folds, strict=True))
    smooth = np.concatenate([smooth_errors(distances, fold.truth) for distances, fold in pairs])
    wrong = np.concatenate([distances.errors(fold.truth) for distances, fold in pairs])
    return Errors(smooth, wrong.astype(np.float64))


def smooth_errors(distances: ClassDistances, truth: NDArray[np.int64]) -> Array:
    """e of every query (m,): from 0, its own class is much nearer, to 1, another is."""
    smallest = SMALLEST * distances.queries.shape[1]
    values = np.maximum(distances.values.astype(np.float64), smallest)
    rows = np.arange(len(values))
    own = values[rows, truth]
    values[rows, truth] = np.inf
    return expit(SHARPNESS * (np.log(own) - np.log(values.min(axis=1))))
