"""Timing that is fair on a noisy machine.

All contestants are timed in turn, again and again, in an order that rotates, so that whatever else
the machine does hits all of them alike. A ratio is formed within each round, never from figures of
different rounds.
"""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Thread pools of other libraries spin for some milliseconds after their work is done; without a
# pause they would take a core from whoever is timed next.
SETTLE_SECONDS = 0.02


@dataclass(frozen=True)
class Contestant:
    """Something to time: one ``call`` does ``n_items`` of whatever is counted."""

    name: str
    call: Callable[[], object]
    n_items: int = 1


@dataclass(frozen=True)
class Timing:
    """Seconds per item of one contestant, one figure per round."""

    name: str
    n_items: int
    n_calls: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def fastest(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Distance between the quartiles, as a fraction of the median."""
        low, high = np.quantile(self.seconds, (0.25, 0.75))
        return float((high - low) / self.median)


def measure(
    contestants: Sequence[Contestant],
    *,
    n_rounds: int,
    shortest: float = 0.05,
    timer: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time contestants against each other.

    Parameters
    ----------
    contestants : sequence of Contestant
    n_rounds : int
    shortest : float
        Seconds a measurement should last at least; shorter calls are repeated within it.
    timer : callable
        The clock. ``time.process_time`` counts processor time of all threads, which does not
        depend on what else the machine does.

    Returns
    -------
    list of Timing, in the order of the contestants.
    """
    n_calls = [_calls_to_fill(contestant.call, shortest) for contestant in contestants]
    seconds: list[list[float]] = [[] for _ in contestants]
    for first in range(n_rounds):
        for k in range(len(contestants)):
            i = (first + k) % len(contestants)
            time.sleep(SETTLE_SECONDS)
            total = timeit.timeit(contestants[i].call, timer=timer, number=n_calls[i])
            seconds[i].append(total / n_calls[i] / contestants[i].n_items)
    return [
        Timing(contestant.name, contestant.n_items, calls, tuple(values))
        for contestant, calls, values in zip(contestants, n_calls, seconds, strict=True)
    ]


def _calls_to_fill(call: Callable[[], object], shortest: float) -> int:
    call()  # compiles, allocates, warms caches
    return max(1, math.ceil(shortest / max(timeit.timeit(call, number=1), 1e-9)))


def ratios(over: Timing, under: Timing) -> tuple[float, ...]:
    """Seconds of ``over`` divided by those of ``under``, round by round."""
    return tuple(a / b for a, b in zip(over.seconds, under.seconds, strict=True))
