"""From errors on held-out samples to a strength and a verdict in words.

The winner of a comparison looks better than it is. So the verdict is on the rule that chooses:
held-out samples are divided into two groups, and each is judged at the strength above 0 that the
other chose. The mean over several such divisions is taken.

The strength is 0, no augmentation, unless the improvement is more than one standard error. Above 0,
strengths count as good if their mean error is within half a standard error of the lowest, by paired
differences; the one nearest to 1, the scale of the warps as learned, wins. In simulations with the
best strength at 0.7, 1 or 1.4 this loses a fifth less than taking the lowest error; with a whole
standard error it would lose more than that where few samples are held out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dreamwarp.core.validation import check_factor

Array = NDArray[np.float64]

# For data of which nothing can be held out.
UNJUDGED_STRENGTH = 1.0
# Groups of held-out samples that are judged by what the others chose. Where nothing helps, it is
# said to in 4 % of simulated cases with 2, and in 6 or 7 % with 5 or 10, whose choices are alike.
N_GROUPS = 2
# Divisions into such groups. With one, the verdict depends on it, and intervals are wider; with 20,
# the 4 % are 3 %.
N_DIVISIONS = 20
# Standard errors within which a strength counts as good as the best.
CLOSE = 0.5
# Errors that differ by less are equal up to rounding.
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
        By how much the mean error is smaller with warped samples. Smoothed for the nearest
        neighbour and for networks, so that it is about ``error_without - error_with``.
    interval : (low, high)
        95 % confidence interval of the improvement, by Student's distribution of the mean of paired
        differences.
    error_without, error_with : float
        Share of held-out samples that are mistaken, without warped samples and with, at strengths
        above 0 that other held-out samples chose; NaN where nothing could be held out.
    n_held_out : int
        Samples that were held out.
    n_copies : int
        Warped copies of each other sample to learn from; 0 for networks, which see a new one each
        time.
    n_enough : int or None
        Copies of each sample, of those tried, that do as well as ``n_copies`` at the strength
        chosen, within one standard error; None if errors were still falling, nothing helps, or one
        number of copies was tried.
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
        Mean error at each strength; smoothed for the nearest neighbour. Empty where nothing could
        be held out. For a strength that stopped early: the error of the best of the others, plus
        the difference between the two when it stopped.
    verdict : Verdict
    spreads : dict of float to float
        Standard errors of these means. Those of differences between strengths are smaller, since
        all are judged by the same samples; the verdict goes by these.
    is_smooth : bool
        Whether near misses count in part.
    """

    strength: float
    errors: dict[float, float]
    verdict: Verdict
    spreads: dict[float, float] = field(default_factory=dict)
    is_smooth: bool = True

    def __str__(self) -> str:
        listed = ", ".join(f"{strength:g}: {error:.1%}" for strength, error in self.errors.items())
        how = ", near misses counted in part" if self.is_smooth else ""
        return f"{self.verdict} Errors by strength{how}: {listed or 'none'}"


def not_judged(strength: float) -> Judgement:
    """What takes the place of a judgement where the strength was given."""
    message = (
        f"not judged: strength {strength:g} was given. To learn whether warps help, call "
        '`judge()`, or fit with strength "auto".'
    )
    return Judgement(strength, {}, no_verdict(message))


def check_strength(strength: Any) -> float | None:
    """The strength, or None for "auto"."""
    if isinstance(strength, str) and strength == "auto":
        return None
    return check_factor("strength", strength, or_else=', or "auto"')


def check_strengths(strengths: Any) -> list[float]:
    """Strengths to compare, in ascending order, 0 the first."""
    if isinstance(strengths, str) or np.ndim(strengths) != 1:
        raise ValueError(f"`strengths` must be a sequence of numbers, got {strengths!r}.")
    given = {check_factor("strengths", strength) for strength in strengths}
    if not given - {0.0}:
        raise ValueError(f"`strengths` must have one above 0 to compare with 0, got {strengths!r}.")
    return sorted(given | {0.0})


class Errors(NamedTuple):
    """Errors on held-out samples at each strength.

    Attributes
    ----------
    smooth : (n_strengths, n_held_out)
        From 0 to 1, near misses counted in part.
    wrong : (n_strengths, n_held_out)
        0 or 1.
    """

    smooth: Array
    wrong: Array

    def stack(self, other: Errors) -> Errors:
        """Those at more strengths, of the same samples."""
        return Errors(*(np.concatenate(arrays) for arrays in zip(self, other, strict=True)))

    def at(self, places: NDArray[np.int64]) -> Errors:
        """Errors at the strengths with these places (k, n_held_out), one row for each."""
        return Errors(*(np.take_along_axis(values, places, axis=0) for values in self))


class Terms(NamedTuple):
    """How samples were judged; the verdict says it.

    Attributes
    ----------
    copies : tuple of int
        Warped copies of each sample after which errors were taken, ascending; the last is all.
        Empty for networks.
    n_others : int
        Samples to learn from, and to warp, while some are held out.
    n_samples : int
        Samples in all.
    shape : tuple of int or None
        Pixels that samples were averaged down to; None if they were not.
    judge : str
        Who predicted the held-out samples.
    is_smooth : bool
        Whether near misses count in part.
    """

    copies: tuple[int, ...]
    n_others: int
    n_samples: int
    shape: tuple[int, ...] | None = None
    judge: str = "a nearest neighbour"
    is_smooth: bool = True


def conclude(
    errors: Sequence[Errors],
    strengths: Sequence[float],
    terms: Terms,
    *,
    stopped: Mapping[float, Array] | None = None,
) -> Judgement:
    """The strength to take, and the verdict, from the errors for each number of copies.

    Parameters
    ----------
    strengths : ascending, 0 the first
        Those with errors to the last.
    stopped : dict of float to (n_held_out,), optional
        Errors of strengths that stopped early, as in ``Judgement.errors``.
    """
    smooth = errors[-1].smooth
    rows = dict(zip(map(float, strengths), smooth, strict=True)) | dict(stopped or {})
    rows = dict(sorted(rows.items()))
    means = {strength: float(row.mean()) for strength, row in rows.items()}
    spreads = {strength: standard_error(row) for strength, row in rows.items()}
    none = np.zeros((1, smooth.shape[1]), np.int64)
    verdict = compare(errors[-1].at(none), errors[-1].at(cross_choose(smooth, strengths)), terms)
    if not verdict.probably:
        return Judgement(0.0, means, verdict, spreads, terms.is_smooth)
    place = 1 + choose_place(smooth[1:], strengths[1:])
    n_enough = count_enough([some.smooth[place] for some in errors], terms.copies)
    advice = _advise(n_enough, terms)
    if len(rows) > 2 and strengths[-1] == max(rows) and is_last_best(errors[-1]):
        advice += (
            f" Strength {strengths[-1]:g}, the strongest that was compared, was the best: stronger "
            "ones may be better still."
        )
    verdict = replace(verdict, n_enough=n_enough, message=verdict.message + advice)
    return Judgement(float(strengths[place]), means, verdict, spreads, terms.is_smooth)


def choose_place(errors: Array, strengths: Sequence[float]) -> int:
    """Place of the strength to take, by errors (n_strengths, n_held_out): all are above 0.

    Of those as good as the best, the one nearest to 1; where two are as near, the better one.
    """
    means = errors.mean(axis=1)
    good = np.flatnonzero(are_as_good(errors, int(means.argmin()), CLOSE))
    distances = np.abs(np.log(np.asarray(strengths, np.float64)[good]))
    return int(good[np.lexsort((means[good], distances.round(9)))[0]])


def are_as_good(errors: Array, place: int, n_errors: float = 1.0) -> NDArray[np.bool_]:
    """Which rows (k, n) have a mean within ``n_errors`` standard errors of the row ``place``."""
    n = errors.shape[1]
    if n < 2:
        return np.asarray(errors[:, 0] <= errors[place, 0] + TIE)
    differences = errors - errors[place]
    spread = n_errors * differences.std(axis=1, ddof=1) / math.sqrt(n)
    return np.asarray(differences.mean(axis=1) <= np.maximum(spread, TIE))


def is_last_best(errors: Errors) -> bool:
    """Whether the last strength has the lowest mean error."""
    means = errors.smooth.mean(axis=1)
    return bool(means[-1] < means[:-1].min() - TIE)


def count_enough(errors: Sequence[Array], copies: Sequence[int]) -> int | None:
    """The fewest copies that do as well as all; None if all do better than half of them."""
    good = are_as_good(np.stack(errors), len(errors) - 1)
    # Fewer may do as well by chance where more do not.
    first = len(good) - int(np.argmin(good[::-1])) if not good.all() else 0
    return copies[first] if first < len(copies) - 1 else None


def _advise(n_enough: int | None, terms: Terms) -> str:
    if len(terms.copies) < 2:
        return ""
    n_copies = terms.copies[-1]
    if n_enough is None:
        return (
            f" Errors were still falling at {n_copies} copies per sample: make as many as you can."
        )
    return (
        f" About {n_enough} copies per sample, {n_enough * terms.n_samples:,} in all, do as well "
        f"as {n_copies}."
    )


def cross_choose(errors: Array, strengths: Sequence[float]) -> NDArray[np.int64]:
    """Place, for each division and sample, of the strength above 0 that the other group chooses.

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
            row[groups == group] = 1 + choose_place(errors[1:, groups != group], strengths[1:])
    return places


def compare(without: Errors, with_warps: Errors, terms: Terms) -> Verdict:
    """The verdict, from errors (k, n_held_out) without warped samples and with.

    Their rows are different ways to judge the same samples, of which the mean is taken.
    """
    differences = without.smooth.mean(axis=0) - with_warps.smooth.mean(axis=0)
    differences[np.abs(differences) < ROUNDING] = 0.0  # means of equal errors, but of other rows
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
    n_copies = terms.copies[-1] if terms.copies else 0
    message = (
        f"{conclusion}: of {n} held-out training samples, {terms.judge} mistakes {before:.1%} "
        f"without warped samples and {after:.1%} with {_describe_warped(terms, n_copies)}. "
        f"{'Near misses counted in part, it' if terms.is_smooth else 'It'} is better by "
        f"{100 * improvement:.1f} points (95 % interval: {100 * low:.1f} to {100 * high:.1f})."
    )
    if terms.shape is not None:
        size = " x ".join(map(str, terms.shape))
        message += f" Samples were averaged down to {size} for this."
    return Verdict(
        low > 0.0, probably, improvement, (low, high), before, after, n, n_copies, None, message
    )


def _describe_warped(terms: Terms, n_copies: int) -> str:
    if n_copies == 0:
        return f"a new warp of each of {terms.n_others:,} others every time"
    copies = "copies" if n_copies > 1 else "copy"
    return f"{n_copies} warped {copies} of each of {terms.n_others:,} others"


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
