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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dreamwarp.align.images import shrink_images
from dreamwarp.augment.class_distances import BLOCK, ClassDistances, standardize
from dreamwarp.augment.folds import FittedFold, choose_some, fit_folds
from dreamwarp.augment.race import Array, Errors, are_as_good, run_race
from dreamwarp.augment.source import SampleSource
from dreamwarp.augment.training_pairs import TrainingPairs
from dreamwarp.augment.verdict import (
    NOTHING_HELD_OUT,
    UNJUDGED_STRENGTH,
    Judgement,
    Setup,
    conclude,
    expected_strength,
    locate_lowest,
)
from dreamwarp.core.compiled import limit_algebra, thread_count
from dreamwarp.core.progress import ProgressOption
from dreamwarp.model import WarpModel
from dreamwarp.space.warp import Warp

Integers = NDArray[np.int64]

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
# Longest axis of samples, by number of axes: larger ones are averaged down.
LONGEST = {1: 1024, 2: 32, 3: 12}
# Half the exponent of e, since distances are squared.
SHARPNESS = 10.0
# Smallest squared distance per pixel that float32 distinguishes from 0.
SMALLEST = 1e-6


def judge_nearest(
    pairs: TrainingPairs,
    source: SampleSource,
    *,
    strengths: Sequence[float] | None = None,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Judgement:
    """Compare strengths by the errors of a nearest neighbour on held-out samples.

    ``source`` has the training samples. Options as for :meth:`dreamwarp.Augmenter.judge`.
    """
    images, codes, ndim = source.data.X, source.codes, pairs.space.ndim
    small = standardize(shrink_images(images, ndim, LONGEST[ndim]))
    fitted = fit_folds(pairs, small, codes, source.key)
    if not fitted:
        return Judgement(UNJUDGED_STRENGTH, {}, NOTHING_HELD_OUT)
    n_wanted = N_WARPED + N_WARPED_PER_SAMPLE * len(images)
    n_warped = min(max(n_wanted, LEAST_WARPED), MOST_WARPED)
    data = _Data(small, codes, n_warped // len(fitted), source.key, n_threads)
    with limit_algebra(thread_count(n_threads)):
        folds = [_Comparison.of(fold, data) for fold in fitted]
        setup = _make_setup(folds, data, images, ndim)
        judge = _NearestJudge(folds, data, setup.copies, {})
        n_rounds = len(setup.copies)
        race = run_race(judge.take_round, judge.may_win, n_rounds, strengths, progress)
    return replace(conclude(race, setup), lowest=locate_lowest(race.rows))


class _Data(NamedTuple):
    """Samples and options; ``n_warped`` is per strength and fold."""

    images: NDArray[np.float32]
    codes: Integers
    n_warped: int
    seed: int
    n_threads: int | None


class _Comparison(NamedTuple):
    """The held-out samples of a fold, and the samples they are compared with."""

    model: WarpModel  # fitted without the held-out samples
    truth: Integers  # (m,), classes of the held-out samples
    kept: Integers  # (k,), indices of the samples to compare with and to warp, sorted by class
    distances: ClassDistances  # to the samples ``kept``

    @classmethod
    def of(cls, fold: FittedFold, data: _Data) -> _Comparison:
        images, codes, held_out = data.images, data.codes, fold.held_out
        kept = choose_some(codes, ~held_out, max(data.n_warped // MIN_COPIES, 1), data.seed)
        kept = kept[np.argsort(codes[kept], kind="stable")]
        distances = ClassDistances.among(
            images[held_out], images[kept], codes[kept], len(fold.model.classes)
        )
        return cls(fold.model, codes[held_out], kept, distances)


def _make_setup(
    folds: Sequence[_Comparison], data: _Data, images: NDArray[Any], ndim: int
) -> Setup:
    n_others = max(len(fold.kept) for fold in folds)
    n_copies = min(MAX_COPIES, max(1, data.n_warped // n_others))
    copies = sorted({max(1, round(share * n_copies)) for share in SHARES})
    is_shrunk = data.images.shape != images.shape
    shape = data.images.shape[images.ndim - ndim :] if is_shrunk else None
    expected = expected_strength(len(images), len(np.unique(data.codes)))
    return Setup(tuple(copies), n_others, len(images), shape, expected=expected)


@dataclass(frozen=True, eq=False)
class _NearestJudge:
    """Rounds add copies; ``nearest`` holds the distances of each fold by strength."""

    folds: Sequence[_Comparison]
    data: _Data
    copies: Sequence[int]
    nearest: dict[float, list[ClassDistances]]

    def take_round(self, number: int, strengths: Sequence[float]) -> Iterator[tuple[float, Errors]]:
        added = range((0, *self.copies)[number], self.copies[number])
        for strength in strengths:
            self.nearest.setdefault(strength, [fold.distances for fold in self.folds])
        for place, fold in enumerate(self.folds):
            before = {strength: self.nearest[strength][place] for strength in strengths}
            for strength, near in _add_copies(fold, self.data, before, added).items():
                self.nearest[strength][place] = near
        return ((some, _errors_of(self.folds, self.nearest[some])) for some in strengths)

    def may_win(self, errors: dict[float, Errors]) -> list[float]:
        """Strength 0, strengths near the lowest error, the best above 0 and its neighbours."""
        strengths = list(errors)
        smooth = np.stack([found.smooth for found in errors.values()])
        means, above = smooth.mean(axis=1), np.array(strengths) > 0.0
        best = int(np.where(above, means, np.inf).argmin())
        goes_on = are_as_good(smooth, int(means.argmin()), CLEAR) | ~above
        goes_on[max(best - 1, 0) : best + 2] = True
        return [strength for strength, goes in zip(strengths, goes_on, strict=True) if goes]


def _add_copies(
    fold: _Comparison, data: _Data, nearest: dict[float, ClassDistances], copies: range
) -> dict[float, ClassDistances]:
    """Distances of a fold's samples, by strength, with more copies."""
    n, classes = len(fold.kept), np.array(fold.model.classes)
    for first in range(copies.start * n, copies.stop * n, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, copies.stop * n))
        by_class = np.argsort(data.codes[fold.kept[numbers % n]], kind="stable")
        numbers = numbers[by_class]
        templates = fold.kept[numbers % n]
        codes = data.codes[templates]
        theta = fold.model.draw(
            classes[codes], numbers, seed=data.seed, templates=templates, n_threads=data.n_threads
        )
        for strength in filter(None, nearest):
            warped = Warp(fold.model.space, strength * theta).image(
                data.images[templates], n_threads=data.n_threads
            )
            nearest[strength] = nearest[strength].improve(warped, codes)
    return nearest


def _errors_of(folds: Sequence[_Comparison], nearest: Sequence[ClassDistances]) -> Errors:
    """Errors (n_held_out,) over all folds, at one strength."""
    return Errors.concatenate(
        [
            Errors(smooth_errors(near, fold.truth), near.errors(fold.truth).astype(np.float64))
            for near, fold in zip(nearest, folds, strict=True)
        ]
    )


def smooth_errors(distances: ClassDistances, truth: Integers) -> Array:
    """e of every query (m,), in [0, 1]."""
    smallest = SMALLEST * distances.queries.shape[1]
    values = np.maximum(distances.values.astype(np.float64), smallest)
    rows = np.arange(len(values))
    own = values[rows, truth]
    values[rows, truth] = np.inf
    return expit(SHARPNESS * (np.log(own) - np.log(values.min(axis=1))))
