"""Choose a strength, and give a verdict in words, from errors on held-out samples.

The error of the best of several strengths is biased downward. The verdict therefore cross-fits:
held-out samples are divided into two groups, and each is judged at the strength above 0 that the
other group chooses. The result is averaged over several divisions.

If the improvement does not exceed one standard error, the strength is 0: no augmentation.
Otherwise, candidates are the strengths above 0 whose mean error is within ``CLOSE`` standard errors
of the lowest, by paired differences. The candidate nearest to the expected strength is chosen. In
simulations with the best strength at 0.7, 1 or 1.4, and 1 expected, this makes the excess error a
fifth smaller than choosing the lowest error does. If candidates were those within a whole standard
error, the excess error would be larger for few held-out samples.

The expected strength is 1, the learned scale, except for a nearest neighbour. There it falls with
the number n of samples per class: warps fill the gaps between samples, like the kernels of a
density estimate, whose best width is proportional to n^(-1 / (d + 4)) in d dimensions.

A network's error depends on its training too, so the strength of lowest error varies more between
seeds than standard errors over samples suggest. For networks, the strength of lowest error, located
by a parabola, is therefore shrunk toward the default for networks. Candidates are the strengths
within ``NETWORK_CLOSE`` standard errors of the best; the one nearest to the shrunk strength is
chosen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dreamwarp.augment.race import TIE, Array, Errors, Race, are_as_good

# Strength if nothing can be held out.
UNJUDGED_STRENGTH = 1.0
# Groups for cross-fitting. The false positive rate in simulations is 4 % with 2, and 6 to 7 % with
# 5 or 10, whose choices are correlated.
N_GROUPS = 2
# Number of divisions into groups. With only one, the verdict depends on the division and intervals
# are wider; with 20, the false positive rate falls from 4 % to 3 %.
N_DIVISIONS = 20
# Standard errors within which a strength counts as good as the best.
CLOSE, NETWORK_CLOSE = 0.5, 2.0
# Samples per class at which strength 1 is expected to be the best for a nearest neighbour, and
# d + 4. From validation samples of MNIST: 1.4 is best with 10 samples per class, 1 to 1.4 with 100,
# and 0.7 with 5,000.
N_EXPECTED, EXPECTED_POWER = 500, 12
# With NETWORK_SAMPLES samples per class, networks do best at about NETWORK_FACTOR times the
# strength at which a nearest neighbour has its lowest smoothed error, and at more with fewer
# samples; see :func:`network_strength`. For MNIST and Fashion-MNIST with 100 samples per class, and
# letters with 10, an MLP did best at about 1.3, 0.8 and 3, and the lowest errors were at about 0.9,
# 0.6 and 1.1, in draws apart from those of the study; see docs/experiments.md. The factor also
# compensates for how a nearest neighbour is judged: with few copies and, by default, with warps of
# templates.
NETWORK_FACTOR, NETWORK_SAMPLES, NETWORK_POWER = 1.4, 100, 10
# A nearest neighbour has its lowest smoothed error at about this fraction of the expected strength.
LOWEST_FRACTION = 0.72
# Standard deviations of logarithms of strengths: of the best for networks between data sets, and of
# the one with the lowest error between draws of samples, beyond the standard error of one draw.
NETWORK_SPREAD, LOWEST_SPREAD = 0.35, 0.2
# Likewise of the strength of lowest error of networks, between seeds of their training, for one
# held-out sample. It falls with the square root of their number: three seeds of the 8 x 8 digits
# gave 0.43 with 100 held-out samples.
TRAINING_SPREAD = 4.3
# Smaller differences of errors are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Verdict:
    """Whether augmentation helps, by held-out training samples.

    Attributes
    ----------
    helps : bool
        Whether the interval is above 0, unless ``is_errorless``.
    probably : bool
        Whether the improvement exceeds one standard error; if so, warps are used.
    improvement : float
        Reduction of the mean error by warped samples. For networks and the nearest-neighbour
        classifier these are smoothed errors, like ``Judgement.errors``, which differ from
        ``error_without`` and ``error_with``.
    interval : (low, high)
        95 % confidence interval of the improvement, by Student's t for paired differences.
    error_without, error_with : float
        Fractions of held-out samples that are misclassified without and with warped samples, the
        latter at cross-fitted strengths; NaN if nothing could be held out.
    n_held_out : int
        Number of held-out samples.
    n_copies : int
        Warped copies per training sample; 0 for networks, which see a new warp every time.
    n_enough : int or None
        Smallest number of copies that does as well as ``n_copies``, within one standard error, at
        the chosen strength; None if errors were still falling, nothing helps, or only one number
        was tried.
    message : str
        The verdict in words.
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

    @property
    def is_errorless(self) -> bool:
        """Whether ``error_without`` is 0.

        Then there is nothing to gain, though warps are used if they reduce the smoothed error.
        """
        return self.error_without == 0.0


def no_verdict(message: str) -> Verdict:
    """The verdict if nothing was held out."""
    nothing = (math.nan, math.nan)
    return Verdict(False, False, math.nan, nothing, math.nan, math.nan, 0, 0, None, message)


NOTHING_HELD_OUT = no_verdict(
    "not judged: there are too few samples or classes to hold some out. Strength 1 is used. Test "
    "it before you rely on it."
)


@dataclass(frozen=True, eq=False)
class Judgement:
    """Errors by strength on held-out training samples, and the verdict.

    Attributes
    ----------
    strength : float
        The best strength; 0 if warps do not help, 1 if nothing could be held out.
    errors : dict of float to float
        Mean error at each strength; smoothed for the nearest-neighbour classifier and for networks.
        Empty if nothing could be held out. For a strength that was dropped early: the best error
        plus the difference at that time.
    verdict : Verdict
    spreads : dict of float to float
        Standard errors of these means. The verdict uses paired differences, whose standard errors
        are smaller.
    is_smooth : bool
        Whether errors are smoothed.
    lowest : (strength, standard error of its logarithm)
        Nearest-neighbour classifier only: strength of the lowest error, interpolated between those
        compared.
    """

    strength: float
    errors: dict[float, float]
    verdict: Verdict
    spreads: dict[float, float] = field(default_factory=dict)
    is_smooth: bool = True
    lowest: tuple[float, float] = (1.0, math.inf)

    def __str__(self) -> str:
        if not self.errors:
            return str(self.verdict)
        name = "Smoothed errors" if self.is_smooth else "Errors"
        return f"{self.verdict} {name} by strength: {self.list_errors()}."

    def list_errors(self) -> str:
        """Strengths and their errors in percent, as words."""
        pairs = sorted(self.errors.items())
        return ", ".join(f"{strength:g}: {in_percent(error)}" for strength, error in pairs)

    def to_text(self) -> str:
        """The judgement as JSON, for a model file."""
        tables = {"errors": [*self.errors.items()], "spreads": [*self.spreads.items()]}
        return json.dumps(asdict(self) | tables)

    @classmethod
    def from_text(cls, text: Any) -> Judgement | None:
        """The judgement that :meth:`to_text` wrote; None for anything else."""
        try:
            record = json.loads(text)
            verdict = record.pop("verdict")
            low, high = map(float, verdict.pop("interval"))
            lowest, error = map(float, record.get("lowest", (1.0, math.inf)))
            return cls(
                float(record["strength"]), _read_table(record["errors"]),
                Verdict(interval=(low, high), **verdict), _read_table(record["spreads"]),
                bool(record["is_smooth"]), (lowest, error),
            )  # fmt: skip
        except (TypeError, ValueError, LookupError, AttributeError):
            return None


def in_percent(error: float) -> str:
    """An error in percent, to one decimal."""
    return f"{100.0 * error:.1f} %"


def in_points(difference: float) -> str:
    """A difference of errors in percentage points, to one decimal; not -0.0."""
    return f"{round(100.0 * difference, 1) + 0.0:.1f}"


def _read_table(rows: Any) -> dict[float, float]:
    return {float(strength): float(value) for strength, value in rows}


def not_judged(strength: float) -> Judgement:
    """The judgement if the strength was given."""
    message = (
        f"not judged: strength {strength:g} was given. To learn whether warps help, use "
        'strength="auto".'
    )
    return Judgement(strength, {}, no_verdict(message))


class Setup(NamedTuple):
    """How errors were measured, and which strength is expected to be the best.

    ``copies`` are the numbers of warped copies per sample at which errors were recorded, ascending;
    empty for networks.
    """

    copies: tuple[int, ...]
    n_others: int  # training samples per fold
    n_samples: int  # all samples
    shape: tuple[int, ...] | None = None  # pixels that samples were averaged down to, if they were
    judge: str = "a nearest-neighbour classifier"  # name of the classifier
    is_smooth: bool = True  # whether errors are smoothed
    expected: float = 1.0  # the strength to prefer among those that are as good as the best

    @property
    def is_of_network(self) -> bool:
        """Whether errors are those of networks, which are not judged by copies."""
        return not self.copies


def expected_strength(n_samples: int, n_classes: int) -> float:
    """Strength expected to be best for a nearest-neighbour classifier."""
    return float((N_EXPECTED * n_classes / n_samples) ** (1.0 / EXPECTED_POWER))


def locate_lowest(rows: Mapping[float, Array]) -> tuple[float, float]:
    """Strength above 0 of the lowest mean error, and the standard error of its logarithm.

    The lowest point of the parabola, in log strength, through the best strength and its neighbours;
    the best one itself if it is the smallest or largest. ``rows`` are errors (n_held_out,) by
    strength, of the same samples.
    """
    strengths = sorted(strength for strength in rows if strength > 0.0)
    x, errors = np.log(strengths), np.stack([rows[strength] for strength in strengths])
    best = int(errors.mean(axis=1).argmin())
    if len(strengths) == 1:
        return strengths[0], math.inf
    if best in (0, len(strengths) - 1):
        neighbor = 1 if best == 0 else best - 1
        more = errors[neighbor] - errors[best]
        # Half the distance to the neighbour, or more if the neighbour may be as good.
        doubt = max(1.0, max(standard_error(more), TIE) / max(float(more.mean()), ROUNDING))
        return strengths[best], 0.5 * doubt * abs(float(x[neighbor] - x[best]))
    below, above = errors[best - 1] - errors[best], errors[best + 1] - errors[best]
    h, k = x[best] - x[best - 1], x[best + 1] - x[best]
    a, b = float(below.mean()), float(above.mean())
    top, bottom = a * k**2 - b * h**2, 2.0 * (a * k + b * h)
    if bottom < ROUNDING:
        return strengths[best], math.inf
    # The derivatives of top / bottom by a and b propagate the errors of these means.
    by_a, by_b = k * (k * bottom - 2.0 * top), -h * (h * bottom + 2.0 * top)
    error = standard_error(by_a * below + by_b * above) / bottom**2
    return float(np.exp(x[best] + top / bottom)), error


def network_strength(lowest: tuple[float, float], n_samples: int, n_classes: int) -> float:
    """Default strength for networks, from ``Judgement.lowest``.

    Its logarithm is the precision-weighted mean of two estimates: one from the strength of lowest
    held-out error, one expected for the number of samples per class.
    """
    per_class = n_samples / n_classes
    factor = NETWORK_FACTOR * (NETWORK_SAMPLES / per_class) ** (1.0 / NETWORK_POWER)
    usual = LOWEST_FRACTION * expected_strength(n_samples, n_classes)
    return factor * shrink(lowest, usual, LOWEST_SPREAD)


def shrink(lowest: tuple[float, float], expected: float, spread: float) -> float:
    """Precision-weighted mean, in logarithms, of the expected strength and that of lowest error.

    ``lowest`` is from :func:`locate_lowest`, and ``spread`` adds to its error.
    """
    strength, error = lowest
    share = 1.0 / (1.0 + (error**2 + spread**2) / NETWORK_SPREAD**2)
    return float(expected * (strength / expected) ** share)


def conclude(race: Race, setup: Setup) -> Judgement:
    """Choose the strength and give the verdict."""
    errors, strengths, rows = race.errors, race.finished, race.rows
    means = {strength: float(row.mean()) for strength, row in rows.items()}
    spreads = {strength: standard_error(row) for strength, row in rows.items()}
    none = np.zeros((1, errors.smooth.shape[1]), np.int64)
    places = cross_choose(errors.smooth, strengths, setup.expected)
    verdict = compare(errors.at(none), errors.at(places), setup, len(strengths) - 1)
    chosen = _choose_strength(race, setup) if verdict.probably else 0.0
    words = [verdict.message, _explain_strength(chosen, verdict, means[0.0], setup)]
    n_enough = None
    if verdict.probably and not verdict.is_errorless:
        if len(setup.copies) > 1:
            # Without errors, a smoothed error that still falls gives no reason for more copies.
            kind = "smooth" if verdict.error_with else "wrong"
            found = [getattr(some, kind) for some in race.found[chosen]]
            n_enough = count_enough(found, setup.copies)
        words += _advise(race, setup, n_enough, verdict.error_with)
    verdict = replace(verdict, n_enough=n_enough, message=" ".join(words))
    return Judgement(chosen, means, verdict, spreads, setup.is_smooth)


def _choose_strength(race: Race, setup: Setup) -> float:
    """The strength above 0 to use."""
    if not setup.is_of_network:
        strengths = race.finished[1:]
        return strengths[choose_place(race.errors.smooth[1:], strengths, setup.expected)]
    warped = {strength: row for strength, row in race.rows.items() if strength > 0.0}
    found = np.stack(list(warped.values()))
    spread = TRAINING_SPREAD / math.sqrt(found.shape[1])
    target = shrink(locate_lowest(race.rows), setup.expected, spread)
    return list(warped)[choose_place(found, list(warped), target, NETWORK_CLOSE)]


def _explain_strength(chosen: float, verdict: Verdict, before: float, setup: Setup) -> str:
    """Say which strength is chosen, and why if the conclusion does not tell.

    ``before`` is the mean error without warps, smoothed if errors are.
    """
    error = "smoothed error" if setup.is_smooth else "error"
    if not chosen:
        return (
            f"Strength 0, no warps, is chosen: warps do not reduce the {error} by more than one "
            "standard error."
        )
    if not verdict.is_errorless:
        return f"Strength {chosen:g} is chosen."
    change = f"{in_percent(before)} to {in_percent(before - verdict.improvement)}"
    return f"Strength {chosen:g} is chosen, since warps reduce the {error}, from {change}."


def _advise(race: Race, setup: Setup, n_enough: int | None, error: float) -> Iterator[str]:
    """Yield how many copies to make, and whether stronger warps may be better.

    ``error`` is the fraction that is misclassified with warps.
    """
    if len(setup.copies) > 1:
        most = setup.copies[-1]
        yield (
            f"Errors were still falling at {most} copies per sample: make as many as you can."
            if n_enough is None
            else f"About {n_enough} copies per sample, {n_enough * setup.n_samples:,} in all, do "
            f"as well as {most}."
        )
    if len(race.found) > 2 and race.is_largest_best and error:
        yield (
            f"Strength {race.finished[-1]:g}, the largest compared, was the best: larger ones may "
            "be better still."
        )


def choose_place(
    errors: Array, strengths: Sequence[float], expected: float = 1.0, close: float = CLOSE
) -> int:
    """Index of the strength to use, from errors (n_strengths, n_held_out) at strengths above 0.

    Among strengths within ``close`` standard errors of the best, the one nearest to ``expected``;
    if two are equally near, the better.
    """
    means = errors.mean(axis=1)
    good = np.flatnonzero(are_as_good(errors, int(means.argmin()), close))
    distances = np.abs(np.log(np.asarray(strengths, np.float64)[good] / expected))
    return int(good[np.lexsort((means[good], distances.round(9)))[0]])


def count_enough(errors: Sequence[Array], copies: Sequence[int]) -> int | None:
    """The smallest number of copies that does as well as the largest; None if only that does."""
    good = are_as_good(np.stack(errors), len(errors) - 1)
    # The start of the last run of good numbers: a smaller one may be good by chance.
    first = len(good) - int(np.argmin(good[::-1])) if not good.all() else 0
    return copies[first] if first < len(copies) - 1 else None


def cross_choose(errors: Array, strengths: Sequence[float], expected: float) -> NDArray[np.int64]:
    """Index of the strength above 0 that the other group chooses: (N_DIVISIONS, n_held_out).

    ``errors`` is (n_strengths, n_held_out). A single held-out sample gets the first one above 0.
    """
    n = errors.shape[1]
    places = np.ones((N_DIVISIONS, n), np.int64)
    random = np.random.default_rng(0)
    for row in places if n > 1 else ():
        # At random: samples may be ordered by class.
        groups = random.permutation(n) % N_GROUPS
        for group in range(N_GROUPS):
            chosen = choose_place(errors[1:, groups != group], strengths[1:], expected)
            row[groups == group] = 1 + chosen
    return places


def compare(without: Errors, with_warps: Errors, setup: Setup, n_strengths: int = 1) -> Verdict:
    """The verdict, from errors (k, n_held_out) without and with warped samples.

    Rows are averaged: they are divisions of the same samples, which choose from ``n_strengths``.
    """
    smooth = [float(errors.smooth.mean()) for errors in (without, with_warps)]
    wrong = [float(errors.wrong.mean()) for errors in (without, with_warps)]
    differences = without.smooth.mean(axis=0) - with_warps.smooth.mean(axis=0)
    differences[np.abs(differences) < ROUNDING] = 0.0  # rounding of means over rows
    low, high = mean_interval(differences)
    improvement, n = float(differences.mean()), len(differences)
    probably = improvement > standard_error(differences)
    is_errorless = wrong[0] == 0.0
    on = f"on {n:,} held-out training samples"
    if is_errorless:
        message = f"nothing to gain: {setup.judge} makes no error {on} without warped samples."
    else:
        before, after = map(in_percent, wrong)
        interval = f"(95 % interval of the reduction: {in_points(low)} to {in_points(high)} points)"
        message = (
            f"{_draw_conclusion(low, high, probably)}: error of {setup.judge} {on} is {before} "
            f"without warped samples, {after} with {_describe_warped(setup, n_strengths)}"
        )
        if setup.is_smooth:
            before, after = map(in_percent, smooth)
            message += f". The smoothed error, which decides, goes from {before} to {after}"
        message += f" {interval}."
    if setup.shape is not None:
        size = " x ".join(map(str, setup.shape))
        message += f" Samples were averaged down to {size} for this."
    return Verdict(
        low > 0.0 and not is_errorless, probably, improvement, (low, high), wrong[0], wrong[1], n,
        max(setup.copies, default=0), None, message,
    )  # fmt: skip


def _draw_conclusion(low: float, high: float, probably: bool) -> str:
    """What follows from the interval of the improvement."""
    if low > 0.0:
        return "augmentation helps"
    if probably:
        return "augmentation probably helps"
    if high <= 0.0:
        return "do not augment"
    return "no clear difference: do not augment unless you can test it"


def _describe_warped(setup: Setup, n_strengths: int) -> str:
    """The warped samples that a classifier gets, and how their strength is chosen."""
    others = f"each of {setup.n_others:,} others"
    if setup.is_of_network:
        warped = f"a new warp of {others} every time"
    else:
        n = setup.copies[-1]
        warped = f"{n} warped {'copies' if n > 1 else 'copy'} of {others}"
    more = ", at strengths chosen on other held-out samples" if n_strengths > 1 else ""
    return warped + more


def mean_interval(differences: Array) -> tuple[float, float]:
    """95 % confidence interval of the mean of values (n,), by Student's t."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return -math.inf, math.inf
    reach = float(stdtrit(n - 1, 0.975)) * standard_error(differences)
    return mean - reach, mean + reach


def standard_error(values: Array) -> float:
    """Standard error of the mean of values (n,); infinite for one value."""
    n = len(values)
    return float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
