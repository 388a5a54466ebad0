"""How strong warps should be, and whether they help at all: judged by held-out training samples.

Training samples are divided into folds, identical ones together. Those of a fold are held out:
neither they nor pairs with them go into the distributions. What is settled once, for all folds, has
seen them: the noise of alignments, who is whose neighbour, and the amounts of a model, such as its
shrinkage. Each is compared with the other samples and with warped copies of them, and the distance
a to the nearest of its own class, and b to the nearest of another, say how far it is mistaken:

    e = a²⁰ / (a²⁰ + b²⁰).

That is the error of the nearest neighbour, 0 or 1, but smooth where the two are about equally near,
within some 5 %. It says the same with fewer samples. Of more than some 4,000 samples as many are
drawn to be compared with and to be warped; what is said then holds for a data set of that size. The
strength with the least mean of e wins, among equals the smallest; 0, which stands for no
augmentation, is one of them.

What wins by chance looks better than it is. So the verdict takes another way: held-out samples are
divided into two groups, and each is judged with the strength above 0 that the other chose. This is
done for several divisions, and the mean is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, stdtrit
from threadpoolctl import threadpool_limits

from dreamwarp.augment.learning import MIN_PAIRS, AlignedPairs, refit
from dreamwarp.data.class_distances import BLOCK, ClassDistances
from dreamwarp.draws import Stream, uniforms
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import apply_strength
from dreamwarp.progress import ProgressOption, track
from dreamwarp.space.compiled import thread_count
from dreamwarp.validation import check_factor
from dreamwarp.warp import Warp

Array = NDArray[np.float64]

# What "auto" compares.
STRENGTHS = (0.0, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6)
# Parts that samples are divided into at least, and samples that are held out in turn, about.
N_FOLDS, N_HELD_OUT = 5, 1000
# Warped samples per strength, over all folds, and copies of a sample among them: about a minute of
# two cores for images of 28 x 28. With few copies, warps look best that are weaker than those that
# are best with many: of 1,000 digits, 0.6 with 10 copies each, 0.8 to 1 with 100. So only some are
# taken of many samples.
N_WARPED, MIN_COPIES, MAX_COPIES = 140_000, 35, 200
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
    message : str
        The same in words.
    """

    helps: bool
    improvement: float
    interval: tuple[float, float]
    error_without: float
    error_with: float
    n_held_out: int
    message: str

    def __str__(self) -> str:
        return self.message


UNKNOWN = Verdict(
    False, math.nan, (math.nan, math.nan), math.nan, math.nan, 0,
    "leave it, or judge for yourself: there are too few samples or classes to hold some out.",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Judgement:
    """What ``judge_strengths`` found.

    Attributes
    ----------
    strength : float
        The best.
    errors : dict of float to float
        Mean of e at each strength; empty where nothing could be held out.
    verdict : Verdict
    """

    strength: float
    errors: dict[float, float]
    verdict: Verdict


def judge_strengths(
    model: WarpModel,
    pairs: AlignedPairs,
    images: NDArray[Any],
    codes: NDArray[np.int64],
    *,
    strengths: Sequence[float] = STRENGTHS,
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
    strengths : sequence of float
        In ascending order, 0 the first. Where it is one more, that one is judged and not chosen.
    """
    small = standardize(shrink_images(images, model.space.ndim))
    folds = make_folds(codes, first_alike(small), seed)
    folds = [fold for fold in folds if _can_judge(pairs, codes, ~fold)]
    if not folds:
        return Judgement(float(strengths[1]) if len(strengths) == 2 else 1.0, {}, UNKNOWN)
    data = _Data(small, codes, N_WARPED // len(folds), seed, n_threads)
    # A function that follows the alignment is not told about this: it would see two countdowns.
    shown = False if callable(progress) else progress
    with (
        track(len(folds) * len(strengths), "judging strengths", shown) as advance,
        threadpool_limits(thread_count(n_threads), user_api="blas"),
    ):
        errors = [
            _fold_errors(refit(model, pairs.among(~fold)), data, fold, strengths, advance)
            for fold in folds
        ]
    return conclude(Errors.concatenate(errors), strengths)


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

    @classmethod
    def concatenate(cls, parts: Sequence[Errors]) -> Errors:
        """Those of all folds."""
        return cls(*(np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)))

    def at(self, places: NDArray[np.int64]) -> Errors:
        """Errors at the strengths with these places (k, n_held_out), one row for each."""
        return Errors(*(np.take_along_axis(values, places, axis=0) for values in self))


class _Data(NamedTuple):
    images: NDArray[np.float32]
    codes: NDArray[np.int64]
    n_warped: int
    seed: int
    n_threads: int | None


def _fold_errors(
    model: WarpModel,
    data: _Data,
    fold: NDArray[np.bool_],
    strengths: Sequence[float],
    advance: Callable[[int], None],
) -> Errors:
    """How samples of a fold are mistaken at each strength."""
    images, codes, kept = data.images, data.codes, _some_of(data, ~fold)
    start = ClassDistances.among(images[fold], images[kept], codes[kept], len(model.classes))
    warps = list(_draw_warps(model, data, kept))
    smooth, wrong = [], []
    for strength in strengths:
        distances = start
        for templates, theta in warps if strength > 0.0 else ():
            warped = Warp(model.space, apply_strength(theta, strength)).image(
                images[templates], n_threads=data.n_threads
            )
            distances = distances.improve(warped, codes[templates])
        smooth.append(smooth_errors(distances, codes[fold]))
        wrong.append(distances.errors(codes[fold]).astype(np.float64))
        advance(1)
    return Errors(np.stack(smooth), np.stack(wrong))


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
    model: WarpModel, data: _Data, kept: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Blocks of samples to warp and θ at strength 1: the same draws for every strength."""
    n_copies = min(MAX_COPIES, max(1, data.n_warped // len(kept)))
    templates = np.tile(kept, n_copies)
    for first in range(0, len(templates), BLOCK):
        some = templates[first : first + BLOCK]
        theta = model.draw(
            np.array(model.classes)[data.codes[some]], first + np.arange(len(some)),
            seed=data.seed, templates=some, n_threads=data.n_threads,
        )  # fmt: skip
        yield some, theta


# -- conclusions


def conclude(errors: Errors, strengths: Sequence[float]) -> Judgement:
    """The strength to take, and the verdict, from the errors at each strength."""
    fixed = len(strengths) == 2
    place = 1 if fixed else _best(errors.smooth)
    means = dict(zip(map(float, strengths), errors.smooth.mean(axis=1).tolist(), strict=True))
    none = np.zeros((1, errors.smooth.shape[1]), np.int64)
    verdict = compare(errors.at(none), errors.at(cross_choose(errors.smooth)))
    return Judgement(float(strengths[place]), means, verdict)


def _best(errors: Array) -> int:
    """Place of the smallest strength that is as good as the best."""
    means = errors.mean(axis=1)
    return int(np.argmax(means <= means.min() + TIE))


def cross_choose(errors: Array) -> NDArray[np.int64]:
    """Place, for each division and sample, of the strength above 0 that is best for the others.

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
            row[groups == group] = 1 + _best(errors[1:, groups != group])
    return places


def compare(without: Errors, with_warps: Errors) -> Verdict:
    """The verdict, from errors (k, n_held_out) without warped samples and with.

    Their rows are different ways to judge the same samples, of which the mean is taken.
    """
    differences = without.smooth.mean(axis=0) - with_warps.smooth.mean(axis=0)
    differences[np.abs(differences) < ROUNDING] = 0.0  # of equal errors, but of unequally many
    low, high = mean_interval(differences)
    improvement, n = float(differences.mean()), len(differences)
    before, after = float(without.wrong.mean()), float(with_warps.wrong.mean())
    if low > 0.0:
        conclusion = "augmentation helps"
    elif high <= 0.0:
        conclusion = "leave it"
    else:
        conclusion = "no clear difference, leave it unless you can test it"
    message = (
        f"{conclusion}: of {n} held-out training samples, a nearest neighbour mistakes "
        f"{before:.1%} without warped samples and {after:.1%} with them. Near misses counted in "
        f"part, it is better by {100 * improvement:.1f} points (95 % interval: {100 * low:.1f} to "
        f"{100 * high:.1f})."
    )
    return Verdict(low > 0.0, improvement, (low, high), before, after, n, message)


def mean_interval(differences: Array) -> tuple[float, float]:
    """95 % confidence interval of the mean of values (n,), by Student's distribution."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return -math.inf, math.inf
    reach = float(stdtrit(n - 1, 0.975) * differences.std(ddof=1) / math.sqrt(n))
    return mean - reach, mean + reach


def check_strength(strength: Any) -> float | None:
    """The strength, or None for "auto"."""
    if isinstance(strength, str) and strength == "auto":
        return None
    return check_factor("strength", strength, or_else=', or "auto"')
