"""Choose the strength of warps, and test whether they help, with a nearest-neighbour classifier.

Training samples are divided into folds. For each fold, the distributions are fitted without its
samples and their pairs. All folds share the noise of alignments, the neighbours of each sample, the
hyper-parameters and, for ``method="eb"``, the posteriors of the remaining pairs, which were
computed under covariances learned from all samples. Each held-out sample is compared with the other
samples and with warped copies of them. Let a be the distance to the nearest sample of its own
class, and b to the nearest sample of any other class. The error of the held-out sample is

    e = a²⁰ / (a²⁰ + b²⁰).

This is the 0-1 error of the nearest neighbour, smoothed where a and b differ by less than about
5 %, so that fewer samples suffice. With more than about 1,000 samples, held-out samples are
compared with a subset of at most about 1,700 others; the verdict then holds for sets of that size.

All strengths use the same draws, scaled. Strengths that can't win stop early. If the largest
strength is the best, larger ones are tried. ``dreamwarp.augment.verdict`` turns errors into a
strength and a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dreamwarp.augment.class_distances import BLOCK, ClassDistances
from dreamwarp.augment.folds import (
    choose_some,
    first_alike,
    make_folds,
    shrink_images,
    standardize,
)
from dreamwarp.augment.training_pairs import MIN_PAIRS, TrainingPairs
from dreamwarp.augment.verdict import (
    UNJUDGED_STRENGTH,
    UNKNOWN,
    Errors,
    Judgement,
    Setup,
    are_as_good,
    check_strengths,
    conclude,
    expected_strength,
    is_last_best,
    locate_lowest,
)
from dreamwarp.core.compiled import limit_algebra, thread_count
from dreamwarp.core.progress import ProgressOption, track, without_callback
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import apply_strength
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Strengths that "auto" compares, and those it adds, one by one, while the largest is the best.
STRENGTHS = (0.0, 0.5, 0.7, 1.0, 1.4)
STRONGER = (2.0, 2.8, 4.0)
# Warped samples per strength over all folds: a constant plus some per sample, within limits. Below
# 1,000 samples it is the lower limit: strong warps of few samples need many copies.
# 1,000 images of 28 x 28 then take about 5 s of processor time.
N_WARPED, N_WARPED_PER_SAMPLE, LEAST_WARPED, MOST_WARPED = 12_000, 12, 24_000, 60_000
# Copies per sample. Samples are subsampled so that each has at least MIN_COPIES.
MIN_COPIES, MAX_COPIES = 12, 200
# Shares of the copies at which errors are recorded, to see how many are enough.
SHARES = (0.25, 0.5, 1.0)
# A strength can't win if its error exceeds the lowest by CLEAR standard errors of the difference.
CLEAR = 3.0
# Half the exponent of e, since distances are squared.
SHARPNESS = 10.0
# Smallest squared distance per pixel that float32 distinguishes from 0.
SMALLEST = 1e-6


def judge_strengths(
    pairs: TrainingPairs,
    images: NDArray[Any],
    codes: Integers,
    *,
    strengths: Sequence[float] | None = None,
    seed: int,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Judgement:
    """Compare strengths on held-out samples.

    Parameters
    ----------
    images : (n, *spatial) or (n, channels, *spatial)
    codes : (n,)
        Class of each sample.
    strengths : sequence of float, optional
        Strengths to compare with 0. Default: ``STRENGTHS``, then ``STRONGER`` while the largest is
        the best.
    """
    tried = list(STRENGTHS if strengths is None else check_strengths(strengths))
    ndim = pairs.space.ndim
    small = standardize(shrink_images(images, ndim))
    held_out = held_out_masks(pairs, small, codes, seed)
    if not held_out:
        return Judgement(UNJUDGED_STRENGTH, {}, UNKNOWN)
    n_wanted = N_WARPED + N_WARPED_PER_SAMPLE * len(images)
    n_warped = min(max(n_wanted, LEAST_WARPED), MOST_WARPED)
    data = _Data(small, codes, n_warped // len(held_out), seed, n_threads)
    shown = without_callback(progress)
    with limit_algebra(thread_count(n_threads)):
        folds = [_Fold.of(pairs, data, some) for some in held_out]
        setup = _make_setup(folds, data, images, ndim)
        race = _judge(folds, data, tried, setup.copies, shown)
        for stronger in STRONGER if strengths is None else ():
            if race.left[-1] != tried[-1] or not is_last_best(race.errors[-1]):
                break
            race = race.join(_judge(folds, data, [stronger], setup.copies, shown))
            tried.append(stronger)
    judgement = conclude(race.errors, race.left, setup, stopped=race.stopped)
    rows = race.stopped | dict(zip(race.left, race.errors[-1].smooth, strict=True))
    return replace(judgement, lowest=locate_lowest(rows))


def held_out_masks(
    pairs: TrainingPairs, images: NDArray[Any], codes: Integers, seed: int
) -> list[NDArray[np.bool_]]:
    """Folds (n,) that leave enough pairs to fit a model to, and at least two classes."""
    folds = make_folds(codes, first_alike(images), seed)
    return [
        fold
        for fold in folds
        if len(pairs.among(~fold)) >= MIN_PAIRS and len(np.unique(codes[~fold])) > 1
    ]


class _Data(NamedTuple):
    """Samples and options; ``n_warped`` is per strength and fold."""

    images: NDArray[np.float32]
    codes: Integers
    n_warped: int
    seed: int
    n_threads: int | None


class _Fold(NamedTuple):
    """Held-out samples and the samples they are compared with.

    Attributes
    ----------
    model : WarpModel
        Fitted without the held-out samples.
    truth : (m,)
        Classes of the held-out samples.
    kept : (k,)
        Indices of the samples to compare with and to warp, sorted by class.
    distances : ClassDistances
        To the samples ``kept``.
    """

    model: WarpModel
    truth: Integers
    kept: Integers
    distances: ClassDistances

    @classmethod
    def of(cls, pairs: TrainingPairs, data: _Data, held_out: NDArray[np.bool_]) -> _Fold:
        images, codes = data.images, data.codes
        kept = choose_some(codes, ~held_out, max(data.n_warped // MIN_COPIES, 1), data.seed)
        kept = kept[np.argsort(codes[kept], kind="stable")]
        distances = ClassDistances.among(
            images[held_out], images[kept], codes[kept], len(pairs.pairs_by_class)
        )
        return cls(pairs.among(~held_out).fit(), codes[held_out], kept, distances)


class _Race(NamedTuple):
    """Errors of strengths on all folds.

    Attributes
    ----------
    left : list of float
        Strengths that got all copies.
    errors : list of Errors
        Of these, by number of copies.
    stopped : dict of float to (n_held_out,)
        Smoothed errors of the others; see ``Judgement.errors``.
    """

    left: list[float]
    errors: list[Errors]
    stopped: dict[float, Array]

    def join(self, other: _Race) -> _Race:
        """With the strengths of another race, which are larger."""
        errors = [a.stack(b) for a, b in zip(self.errors, other.errors, strict=True)]
        return _Race(self.left + other.left, errors, self.stopped | other.stopped)


def _make_setup(folds: Sequence[_Fold], data: _Data, images: NDArray[Any], ndim: int) -> Setup:
    n_others = max(len(fold.kept) for fold in folds)
    n_copies = min(MAX_COPIES, max(1, data.n_warped // n_others))
    copies = sorted({max(1, round(share * n_copies)) for share in SHARES})
    is_shrunk = data.images.shape != images.shape
    shape = data.images.shape[images.ndim - ndim :] if is_shrunk else None
    expected = expected_strength(len(images), len(np.unique(data.codes)))
    return Setup(tuple(copies), n_others, len(images), shape, expected=expected)


def _judge(
    folds: Sequence[_Fold],
    data: _Data,
    strengths: Sequence[float],
    copies: Sequence[int],
    progress: ProgressOption,
) -> _Race:
    """Errors by number of copies; strengths that can't win get no more copies."""
    nearest = {strength: [fold.distances for fold in folds] for strength in strengths}
    found: list[dict[float, Errors]] = []
    left = list(strengths)
    with track(len(folds) * copies[-1], "judging strengths", progress) as advance:
        for done, wanted in pairwise((0, *copies)):
            if found:
                left = _may_win(found[-1])
            for number, fold in enumerate(folds):
                copied = {strength: nearest[strength][number] for strength in left}
                for strength, near in _add_copies(fold, data, copied, range(done, wanted)).items():
                    nearest[strength][number] = near
                advance(wanted - done)
            found.append({strength: _errors_of(folds, nearest[strength]) for strength in left})
    errors = [
        Errors(*map(np.stack, zip(*(some[strength] for strength in left), strict=True)))
        for some in found
    ]
    best = left[int(errors[-1].smooth.mean(axis=1).argmin())]
    stopped = {}
    for strength in strengths:
        if strength not in left:
            last = [some for some in found if strength in some][-1]
            loss = last[strength].smooth - last[best].smooth
            stopped[strength] = found[-1][best].smooth + loss
    return _Race(left, errors, stopped)


def _may_win(errors: dict[float, Errors]) -> list[float]:
    """Strengths to go on with: 0, those that may win, and the neighbours of the best above 0."""
    strengths = list(errors)
    smooth = np.stack([found.smooth for found in errors.values()])
    means, above = smooth.mean(axis=1), np.array(strengths) > 0.0
    best = int(np.where(above, means, np.inf).argmin())
    goes_on = are_as_good(smooth, int(means.argmin()), CLEAR) | ~above
    goes_on[max(best - 1, 0) : best + 2] = True
    return [strength for strength, goes in zip(strengths, goes_on, strict=True) if goes]


def _add_copies(
    fold: _Fold, data: _Data, nearest: dict[float, ClassDistances], copies: range
) -> dict[float, ClassDistances]:
    """Distances of a fold's samples, by strength, with more copies."""
    for templates, theta in _draw_warps(fold, data, copies):
        for strength in filter(None, nearest):
            warped = Warp(fold.model.space, apply_strength(theta, strength)).image(
                data.images[templates], n_threads=data.n_threads
            )
            nearest[strength] = nearest[strength].improve(warped, data.codes[templates])
    return nearest


def _draw_warps(fold: _Fold, data: _Data, copies: range) -> Iterator[tuple[Integers, Array]]:
    """Blocks of samples to warp, sorted by class, and their θ."""
    n, classes = len(fold.kept), np.array(fold.model.classes)
    for first in range(copies.start * n, copies.stop * n, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, copies.stop * n))
        codes = data.codes[fold.kept[numbers % n]]
        numbers = numbers[np.argsort(codes, kind="stable")]
        templates = fold.kept[numbers % n]
        theta = fold.model.draw(
            classes[data.codes[templates]], numbers, seed=data.seed, templates=templates,
            n_threads=data.n_threads,
        )  # fmt: skip
        yield templates, theta


def _errors_of(folds: Sequence[_Fold], nearest: Sequence[ClassDistances]) -> Errors:
    """Errors (n_held_out,) over all folds, at one strength."""
    pairs = list(zip(nearest, folds, strict=True))
    smooth = np.concatenate([smooth_errors(distances, fold.truth) for distances, fold in pairs])
    wrong = np.concatenate([distances.errors(fold.truth) for distances, fold in pairs])
    return Errors(smooth, wrong.astype(np.float64))


def smooth_errors(distances: ClassDistances, truth: Integers) -> Array:
    """e of every query (m,), in [0, 1]."""
    smallest = SMALLEST * distances.queries.shape[1]
    values = np.maximum(distances.values.astype(np.float64), smallest)
    rows = np.arange(len(values))
    own = values[rows, truth]
    values[rows, truth] = np.inf
    return expit(SHARPNESS * (np.log(own) - np.log(values.min(axis=1))))
