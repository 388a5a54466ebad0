"""How strong warps should be, and whether they help at all: judged by held-out training samples.

Training samples are divided into folds, identical ones together. Those of a fold are held out:
neither they nor pairs with them go into the distributions. What is settled once, for all folds, has
seen them: the noise of alignments, who is whose neighbour, and the amounts of a model, such as its
shrinkage. Each is compared with the other samples and with warped copies of them, and the distance
a to the nearest of its own class, and b to the nearest of another, say how far it is mistaken:

    e = a²⁰ / (a²⁰ + b²⁰).

That is the error of the nearest neighbour, 0 or 1, but smooth where the two are about equally near,
within some 5 %. It says the same with fewer samples. Of more than some 4,000 samples as many are
drawn to be compared with and to be warped; what is said then holds for a data set of that size.

What wins by chance looks better than it is. So the verdict is on the rule that chooses: held-out
samples are divided into two groups, and each is judged with the strength above 0 that the other
chose. This is done for several divisions, and the mean is taken.

The strength is 0, no augmentation, unless the verdict says that warps help or probably help: that
the improvement is more than one standard error. The one exception is data of which nothing can be
held out, which get strength 1 and a verdict that says so. Above 0, strengths are as good as the
best if their mean of e is within one standard error of its, that of paired differences; of these
the middle one wins. The weakest would be the usual choice, but where strengths differ little, it is
too weak: in simulations by 6 to 16 % on average, and it loses about three times as much as the
middle one, which also loses less than the best. If the best is the strongest, stronger ones are
tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, stdtrit
from threadpoolctl import threadpool_limits

from dreamwarp.augment.class_distances import BLOCK, ClassDistances
from dreamwarp.augment.learning import MIN_PAIRS, AlignedPairs, refit
from dreamwarp.core.compiled import thread_count
from dreamwarp.core.draws import Stream, uniforms
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.core.validation import check_factor
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import apply_strength
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]

# What "auto" compares, and what it goes on with, one by one, while the strongest is the best.
STRENGTHS = (0.0, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6)
STRONGER = (2.0, 2.5, 3.2, 4.0)
# For data of which nothing can be held out.
UNJUDGED_STRENGTH = 1.0
# Parts that samples are divided into at least, and samples that are held out in turn, about.
N_FOLDS, N_HELD_OUT = 5, 1000
# Warped samples per strength, over all folds, and copies of a sample among them: about a minute of
# two cores for images of 28 x 28. With few copies, warps look best that are weaker than those that
# are best with many: of 1,000 digits, 0.6 with 10 copies each, 0.8 to 1 with 100. So only some are
# taken of many samples.
N_WARPED, MIN_COPIES, MAX_COPIES = 140_000, 35, 200
# Shares of the copies after which errors are taken, to see how many are enough.
SHARES = (0.125, 0.25, 0.5, 1.0)
# Parts of the held-out samples that are judged by what the others chose. Where nothing helps, it is
# said to in 4 % of simulated cases with 2, and in 6 or 7 % with 5 or 10, whose choices are alike.
N_GROUPS = 2
# Divisions into such parts. With one, the verdict depends on it, and intervals are wider; with 20,
# the 4 % are 3 %.
N_DIVISIONS = 20
# Longest axes that are compared, by their number: larger samples are averaged down to that.
LONGEST = {1: 1024, 2: 32, 3: 12}
# Half the exponent of e: it is that of squared distances.
SHARPNESS = 10.0
# Smallest squared distance per number that float32 can tell from none.
SMALLEST = 1e-6
# Errors that differ by less are the same, but for rounding.
ROUNDING = 1e-12
# Mean errors that differ by less are equal: one sample in ten thousand.
TIE = 1e-4


@dataclass(frozen=True)
class Verdict:
    """Whether augmentation helps, as far as held-out training samples can tell.

    Attributes
    ----------
    helps : bool
        Whether the whole interval is above 0.
    probably : bool
        Whether the improvement is more than one standard error: then warps are used.
    improvement : float
        By how much the mean of e is smaller with warped samples: smoothed as above, so that it is
        about, and not exactly, ``error_without - error_with``.
    interval : (low, high)
        95 % confidence interval of the improvement, by Student's distribution of the mean of paired
        differences.
    error_without, error_with : float
        Share of held-out samples that a nearest neighbour mistakes, without warped samples and
        with, at strengths above 0 that other held-out samples chose; NaN where nothing could be
        held out.
    n_held_out : int
        Samples that were held out.
    n_copies : int
        Warped copies of each other sample that they were compared with.
    n_enough : int or None
        Copies of each sample, of those tried, that do as well as ``n_copies`` at the strength
        chosen, within one standard error; None if errors were still falling, or nothing helps.
    message : str
        The same in words.
    """

    helps: bool
    probably: bool
    improvement: float
    interval: tuple[float, float]
    error_without: float
    error_with: float
    n_held_out: int
    n_copies: int
    n_enough: int | None
    message: str

    def __str__(self) -> str:
        return self.message


def no_verdict(message: str) -> Verdict:
    """The verdict where nothing was held out."""
    nothing = (math.nan, math.nan)
    return Verdict(False, False, math.nan, nothing, math.nan, math.nan, 0, 0, None, message)


UNKNOWN = no_verdict(
    "leave it, or judge for yourself: there are too few samples or classes to hold some out."
)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What held-out training samples say of strengths.

    Attributes
    ----------
    strength : float
        The one to take: above 0 if warps help.
    errors : dict of float to float
        Mean of e at each strength; empty where nothing could be held out.
    verdict : Verdict
    """

    strength: float
    errors: dict[float, float]
    verdict: Verdict

    def __str__(self) -> str:
        listed = ", ".join(f"{strength:g}: {error:.1%}" for strength, error in self.errors.items())
        return f"{self.verdict} Errors by strength, near misses counted in part: {listed or 'none'}"


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
    held_out = make_folds(codes, first_alike(small), seed)
    held_out = [some for some in held_out if _can_judge(pairs, codes, ~some)]
    if not held_out:
        return Judgement(UNJUDGED_STRENGTH, {}, UNKNOWN)
    data = _Data(small, codes, N_WARPED // len(held_out), seed, n_threads)
    # A function that follows the alignment is not told about this: it would see two countdowns.
    shown = False if callable(progress) else progress
    with threadpool_limits(thread_count(n_threads), user_api="blas"):
        folds = [_Fold.of(model, pairs, data, some) for some in held_out]
        terms = _make_terms(folds, data, images, model.space.ndim)
        errors = _measure(folds, data, tried, terms.copies, shown)
        for stronger in STRONGER if strengths is None else ():
            if not _is_last_best(errors[-1]):
                break
            more = _measure(folds, data, [stronger], terms.copies, shown)
            errors = [a.stack(b) for a, b in zip(errors, more, strict=True)]
            tried.append(stronger)
    return conclude(errors, tried, terms)


def not_judged(strength: float) -> Judgement:
    """What takes the place of a judgement where the strength was given."""
    message = (
        f"not judged: strength {strength:g} was given. To learn whether warps help, call "
        '`judge()`, or fit with strength "auto".'
    )
    return Judgement(strength, {}, no_verdict(message))


def check_strengths(strengths: Any) -> list[float]:
    """Strengths to compare, in ascending order, 0 the first."""
    if isinstance(strengths, str) or np.ndim(strengths) != 1:
        raise ValueError(f"`strengths` must be a sequence of numbers, got {strengths!r}.")
    given = {check_factor("strengths", strength) for strength in strengths}
    if not given - {0.0}:
        raise ValueError(f"`strengths` must have one above 0 to compare with 0, got {strengths!r}.")
    return sorted(given | {0.0})


def _can_judge(pairs: AlignedPairs, codes: NDArray[np.int64], kept: NDArray[np.bool_]) -> bool:
    """Whether what is kept has enough pairs for a model, and labels to tell apart."""
    return len(pairs.among(kept)) >= MIN_PAIRS and len(np.unique(codes[kept])) > 1


# -- held-out samples


def first_alike(images: NDArray[np.float32]) -> NDArray[np.int64]:
    """For each sample (n,), the first that is identical to it."""
    rows = np.ascontiguousarray(images.reshape(len(images), -1))
    texts = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, firsts, places = np.unique(texts, return_index=True, return_inverse=True)
    return firsts[places]


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
    n_folds = max(N_FOLDS, math.ceil(n / N_HELD_OUT))
    # Counted on from class to class, so that small classes do not all begin with the first fold.
    numbers = np.empty(n, np.int64)
    numbers[by_class] = np.arange(n) % n_folds
    numbers = numbers[alike]
    folds = [(numbers == number) & ~alone for number in range(n_folds)]
    n_used = math.ceil(N_HELD_OUT / (n / n_folds))
    return [fold for fold in folds[:n_used] if fold.any()]


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
    """About zero, and of size one: float32 distances lose digits to a large mean."""
    centered = images - images.mean(dtype=np.float64).astype(np.float32)
    return centered / np.float32(max(float(centered.std(dtype=np.float64)), 1e-30))


class Errors(NamedTuple):
    """How held-out samples were mistaken at each strength.

    Attributes
    ----------
    smooth : (n_strengths, n_held_out)
        e, from 0 to 1.
    wrong : (n_strengths, n_held_out)
        Whether the nearest neighbour was of another class: 0 or 1.
    """

    smooth: Array
    wrong: Array

    def stack(self, other: Errors) -> Errors:
        """Those at more strengths, of the same samples."""
        return Errors(*(np.concatenate(arrays) for arrays in zip(self, other, strict=True)))

    def at(self, places: NDArray[np.int64]) -> Errors:
        """Errors at the strengths with these places (k, n_held_out), one row for each."""
        return Errors(*(np.take_along_axis(values, places, axis=0) for values in self))


class _Data(NamedTuple):
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
        Numbers of the samples that they are compared with and that are warped.
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
        images, codes, kept = data.images, data.codes, _some_of(data, ~held_out)
        distances = ClassDistances.among(
            images[held_out], images[kept], codes[kept], len(model.classes)
        )
        return cls(refit(model, pairs.among(~held_out)), codes[held_out], kept, distances)


class Terms(NamedTuple):
    """What samples were compared by; the verdict says it.

    Attributes
    ----------
    copies : tuple of int
        Warped copies of each sample after which errors were taken, ascending; the last is all.
    n_others : int
        Samples that held-out ones were compared with, and that were warped.
    n_samples : int
        Samples in all.
    shape : tuple of int or None
        Pixels that samples were averaged down to; None if they were not.
    """

    copies: tuple[int, ...]
    n_others: int
    n_samples: int
    shape: tuple[int, ...] | None = None


def _make_terms(folds: Sequence[_Fold], data: _Data, images: NDArray[Any], ndim: int) -> Terms:
    n_others = max(len(fold.kept) for fold in folds)
    n_copies = min(MAX_COPIES, max(1, data.n_warped // n_others))
    copies = sorted({max(1, round(share * n_copies)) for share in SHARES})
    is_shrunk = data.images.shape != images.shape
    shape = data.images.shape[images.ndim - ndim :] if is_shrunk else None
    return Terms(tuple(copies), n_others, len(images), shape)


def _measure(
    folds: Sequence[_Fold],
    data: _Data,
    strengths: Sequence[float],
    copies: Sequence[int],
    progress: ProgressOption,
) -> list[Errors]:
    """How held-out samples are mistaken at each strength, for each number of copies."""
    with track(len(folds) * len(strengths), "judging strengths", progress) as advance:
        found = []
        for strength in strengths:
            parts = []
            for fold in folds:
                parts.append(_fold_errors(fold, data, strength, copies))
                advance(1)
            found.append(np.concatenate(parts, axis=2))
    return [Errors(*values) for values in np.stack(found, axis=2)]


def _fold_errors(fold: _Fold, data: _Data, strength: float, copies: Sequence[int]) -> Array:
    """Both errors of a fold's samples, for each number of copies: (n_numbers, 2, m)."""
    distances, out = fold.distances, []
    for done, wanted in pairwise((0, *copies)):
        for templates, theta in _draw_warps(fold, data, done, wanted) if strength > 0.0 else ():
            warped = Warp(fold.model.space, apply_strength(theta, strength)).image(
                data.images[templates], n_threads=data.n_threads
            )
            distances = distances.improve(warped, data.codes[templates])
        out.append((smooth_errors(distances, fold.truth), distances.errors(fold.truth)))
    return np.array(out, np.float64)


def _some_of(data: _Data, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Numbers of the samples (n,) that are kept: of so many only that enough copies are made.

    Every class keeps the same share of its samples, rounded up: none is lost.
    """
    numbers = np.flatnonzero(kept)
    n_most = max(data.n_warped // MIN_COPIES, 1)
    if len(numbers) <= n_most:
        return numbers
    order = uniforms(data.seed, numbers, 2, stream=Stream.ORDER)[:, 1]
    members = (
        np.flatnonzero(data.codes[numbers] == code) for code in np.unique(data.codes[numbers])
    )
    some = [
        mine[np.argsort(order[mine], kind="stable")[: -(-n_most * len(mine) // len(numbers))]]
        for mine in members
    ]
    return np.sort(numbers[np.concatenate(some)])


def smooth_errors(distances: ClassDistances, truth: NDArray[np.int64]) -> Array:
    """e of every query (m,): from 0, its own class is much nearer, to 1, another is."""
    smallest = SMALLEST * distances.queries.shape[1]
    values = np.maximum(distances.values.astype(np.float64), smallest)
    rows = np.arange(len(values))
    own = values[rows, truth]
    values[rows, truth] = np.inf
    return expit(SHARPNESS * (np.log(own) - np.log(values.min(axis=1))))


def _draw_warps(
    fold: _Fold, data: _Data, done: int, wanted: int
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Blocks of samples to warp and learned θ, the same for every strength.

    For copies number ``done`` to ``wanted - 1`` of each sample.
    """
    n = len(fold.kept)
    for first in range(done * n, wanted * n, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, wanted * n))
        templates = fold.kept[numbers % n]
        theta = fold.model.draw(
            np.array(fold.model.classes)[data.codes[templates]], numbers, seed=data.seed,
            templates=templates, n_threads=data.n_threads,
        )  # fmt: skip
        yield templates, theta


# -- conclusions


def conclude(errors: Sequence[Errors], strengths: Sequence[float], terms: Terms) -> Judgement:
    """The strength to take, and the verdict, from the errors for each number of copies."""
    smooth = errors[-1].smooth
    means = dict(zip(map(float, strengths), smooth.mean(axis=1).tolist(), strict=True))
    none = np.zeros((1, smooth.shape[1]), np.int64)
    verdict = compare(errors[-1].at(none), errors[-1].at(cross_choose(smooth)), terms)
    if not verdict.probably:
        return Judgement(0.0, means, verdict)
    place = 1 + choose_place(smooth[1:])
    n_enough = _count_enough([some.smooth[place] for some in errors], terms.copies)
    advice = _advise(n_enough, terms)
    if len(strengths) > 2 and _is_last_best(errors[-1]):
        advice += (
            f" Strength {strengths[-1]:g}, the strongest that was compared, was the best: stronger "
            "ones may be better still."
        )
    verdict = replace(verdict, n_enough=n_enough, message=verdict.message + advice)
    return Judgement(float(strengths[place]), means, verdict)


def choose_place(errors: Array) -> int:
    """Place of the strength to take, by errors (n_strengths, n_held_out).

    The middle one of those as good as the best; where two are in the middle, the better one.
    """
    means = errors.mean(axis=1)
    good = np.flatnonzero(_are_as_good(errors, int(means.argmin())))
    middle = good[(len(good) - 1) // 2 : len(good) // 2 + 1]
    return int(middle[means[middle].argmin()])


def _are_as_good(errors: Array, place: int) -> NDArray[np.bool_]:
    """Which rows (k, n) have a mean within one standard error of that of the row ``place``."""
    n = errors.shape[1]
    if n < 2:
        return np.asarray(errors[:, 0] <= errors[place, 0] + TIE)
    differences = errors - errors[place]
    spread = differences.std(axis=1, ddof=1) / math.sqrt(n)
    return np.asarray(differences.mean(axis=1) <= np.maximum(spread, TIE))


def _is_last_best(errors: Errors) -> bool:
    means = errors.smooth.mean(axis=1)
    return bool(means[-1] < means[:-1].min() - TIE)


def _count_enough(errors: Sequence[Array], copies: Sequence[int]) -> int | None:
    """The fewest copies that do as well as all; None if all do better than half of them."""
    good = _are_as_good(np.stack(errors), len(errors) - 1)
    # Fewer may do as well by chance where more do not.
    first = len(good) - int(np.argmin(good[::-1])) if not good.all() else 0
    return copies[first] if first < len(copies) - 1 else None


def _advise(n_enough: int | None, terms: Terms) -> str:
    n_copies = terms.copies[-1]
    if len(terms.copies) < 2:
        return ""
    if n_enough is None:
        return (
            f" Errors were still falling at {n_copies} copies per sample: make as many as you can."
        )
    return (
        f" About {n_enough} copies per sample, {n_enough * terms.n_samples:,} in all, do as well "
        f"as {n_copies}."
    )


def cross_choose(errors: Array) -> NDArray[np.int64]:
    """Place, for each division and sample, of the strength above 0 that the others choose.

    From errors (n_strengths, n_held_out) to (N_DIVISIONS, n_held_out). The first above 0 where a
    single sample was held out.
    """
    n = errors.shape[1]
    places = np.ones((N_DIVISIONS, n), np.int64)
    random = np.random.default_rng(0)
    for row in places if n > 1 else ():
        # At random: samples may come with their classes in turn.
        groups = random.permutation(n) % N_GROUPS
        for group in range(N_GROUPS):
            row[groups == group] = 1 + choose_place(errors[1:, groups != group])
    return places


def compare(without: Errors, with_warps: Errors, terms: Terms) -> Verdict:
    """The verdict, from errors (k, n_held_out) without warped samples and with.

    Their rows are different ways to judge the same samples, of which the mean is taken.
    """
    differences = without.smooth.mean(axis=0) - with_warps.smooth.mean(axis=0)
    differences[np.abs(differences) < ROUNDING] = 0.0  # of equal errors, but of unequally many
    low, high = mean_interval(differences)
    improvement, n = float(differences.mean()), len(differences)
    probably = improvement > standard_error(differences)
    before, after = float(without.wrong.mean()), float(with_warps.wrong.mean())
    if low > 0.0:
        conclusion = "augmentation helps"
    elif probably:
        conclusion = "augmentation probably helps"
    elif high <= 0.0:
        conclusion = "leave it"
    else:
        conclusion = "no clear difference, leave it unless you can test it"
    message = (
        f"{conclusion}: of {n} held-out training samples, a nearest neighbour mistakes "
        f"{before:.1%} without warped samples and {after:.1%} with {terms.copies[-1]} warped "
        f"copies of each of {terms.n_others:,} others. Near misses counted in part, it is better "
        f"by {100 * improvement:.1f} points (95 % interval: {100 * low:.1f} to {100 * high:.1f})."
    )
    if terms.shape is not None:
        size = " x ".join(map(str, terms.shape))
        message += f" Samples were averaged down to {size} for this."
    return Verdict(
        low > 0.0, probably, improvement, (low, high), before, after, n, terms.copies[-1], None,
        message,
    )  # fmt: skip


def mean_interval(differences: Array) -> tuple[float, float]:
    """95 % confidence interval of the mean of values (n,), by Student's distribution."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return -math.inf, math.inf
    reach = float(stdtrit(n - 1, 0.975)) * standard_error(differences)
    return mean - reach, mean + reach


def standard_error(values: Array) -> float:
    """Of the mean of values (n,); infinite for a single one."""
    n = len(values)
    return float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf


def check_strength(strength: Any) -> float | None:
    """The strength, or None for "auto"."""
    if isinstance(strength, str) and strength == "auto":
        return None
    return check_factor("strength", strength, or_else=', or "auto"')
