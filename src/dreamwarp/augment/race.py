"""Compare strengths in rounds, and drop those that can't win.

Every round adds warped copies, folds or training steps. Errors on held-out samples are recorded
after each round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.progress import ProgressOption, track, without_callback
from dreamwarp.core.validation import check_factor

Array = NDArray[np.float64]

# Strengths that "auto" compares, and those it adds, one by one, while the largest is the best.
STRENGTHS = (0.0, 0.5, 0.7, 1.0, 1.4)
STRONGER = (2.0, 2.8, 4.0)
# Smaller differences of mean errors are ties: one sample in ten thousand.
TIE = 1e-4


class Errors(NamedTuple):
    """Errors on held-out samples, (n_held_out,), or (n_strengths, n_held_out)."""

    smooth: Array  # from 0 to 1
    wrong: Array  # 0 or 1

    @classmethod
    def concatenate(cls, parts: Sequence[Errors]) -> Errors:
        """The errors of all folds at one strength."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def at(self, places: NDArray[np.int64]) -> Errors:
        """Errors of each sample at k strengths, given by row indices (k, n_held_out)."""
        return Errors(*(np.take_along_axis(values, places, axis=0) for values in self))


RoundFn = Callable[[int, list[float]], Iterable[tuple[float, Errors]]]
FilterFn = Callable[[dict[float, Errors]], list[float]]


class Race:
    """Errors on held-out samples by strength and round."""

    def __init__(self, found: dict[float, list[Errors]] | None = None) -> None:
        self.found = dict(found or {})  # after each round that the strength took part in
        self.stopped: dict[float, Array] = {}  # (n,), smoothed errors; see ``stop``

    def stop(self, strength: float, best: float) -> None:
        """Drop a strength; estimate its final error as the best one plus their last difference."""
        mine, final = self.found[strength], self.found[best][-1].smooth
        difference = mine[-1].smooth - self.found[best][len(mine) - 1].smooth
        # If later rounds hold out more samples, only the mean of the final errors applies.
        is_same_set = len(final) == len(difference)
        self.stopped[strength] = (final if is_same_set else final.mean()) + difference

    @property
    def finished(self) -> list[float]:
        """Strengths that were not dropped, ascending."""
        return sorted(set(self.found) - set(self.stopped))

    @property
    def errors(self) -> Errors:
        """Last errors of the finished strengths: (n_strengths, n_held_out)."""
        rows = [self.found[strength][-1] for strength in self.finished]
        return Errors(*map(np.stack, zip(*rows, strict=True)))

    @property
    def rows(self) -> dict[float, Array]:
        """Smoothed errors of all strengths, ascending."""
        rows = dict(zip(self.finished, self.errors.smooth, strict=True)) | self.stopped
        return dict(sorted(rows.items()))

    @property
    def is_largest_best(self) -> bool:
        """Whether the largest strength has the lowest mean error."""
        means = self.errors.smooth.mean(axis=1)
        is_left = self.finished[-1] == max(self.found)
        return is_left and bool(means[-1] < means[:-1].min() - TIE)


def run_race(
    take_round: RoundFn,
    may_win: FilterFn,
    n_rounds: int,
    strengths: Sequence[float] | None,
    progress: ProgressOption,
) -> Race:
    """Compare strengths; by default ``STRENGTHS``, then ``STRONGER`` while the largest is the best.

    ``take_round`` maps the number of a round and the strengths that take part to their errors after
    it. ``may_win`` maps errors so far, by strength, to the strengths that continue.
    """
    race, shown = Race(), without_callback(progress)

    def run(some: Sequence[float]) -> None:
        left = list(some)
        with track(n_rounds * len(some), "judging strengths", shown) as advance:
            for number in range(n_rounds):
                if number > 0:
                    left = may_win({strength: race.found[strength][-1] for strength in left})
                for strength, errors in take_round(number, left):
                    race.found.setdefault(strength, []).append(errors)
                    advance(1)
                advance(len(some) - len(left))
        best = min(left, key=lambda strength: race.found[strength][-1].smooth.mean())
        for strength in set(some) - set(left):
            race.stop(strength, best)

    run(STRENGTHS if strengths is None else strengths)
    for stronger in STRONGER if strengths is None else ():
        if not race.is_largest_best:
            break
        run([stronger])
    return race


def check_strengths(strengths: Any) -> list[float]:
    """Return the strengths to compare, ascending, starting with 0; raise if none is above 0."""
    if isinstance(strengths, str) or np.ndim(strengths) != 1:
        raise ValueError(f"`strengths` must be a sequence of numbers, got {strengths!r}.")
    given = {check_factor("strengths", strength) for strength in strengths}
    if not given - {0.0}:
        raise ValueError(f"`strengths` must have one above 0 to compare with 0, got {strengths!r}.")
    return sorted(given | {0.0})


def are_as_good(errors: Array, place: int, n_errors: float = 1.0) -> NDArray[np.bool_]:
    """Which rows (k, n) have a mean within ``n_errors`` standard errors of the row ``place``."""
    n = errors.shape[1]
    if n < 2:
        return np.asarray(errors[:, 0] <= errors[place, 0] + TIE)
    differences = errors - errors[place]
    spread = n_errors * differences.std(axis=1, ddof=1) / math.sqrt(n)
    return np.asarray(differences.mean(axis=1) <= np.maximum(spread, TIE))
