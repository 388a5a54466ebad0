"""How many new samples each class gets: imbalanced-learn's ``sampling_strategy``.

The rules are those of its over-samplers, and hold whether or not it is installed. Samples are never
removed. One form is new: "10x", ten times as many of every class. It is a string because a number
is the ratio of two classes in imbalanced-learn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.draws import MAX_SAMPLE_NUMBER

SamplingStrategy: TypeAlias = (
    "str | float | Mapping[Any, int] | Callable[[NDArray[Any]], Mapping[Any, int]]"
)

TIMES = re.compile(r"(\d+(?:\.\d+)?)x")
WORDS = ("auto", "not majority", "minority", "not minority", "all")


def number_new(n_new: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sample numbers of ``n_new`` (n_classes,) new samples per class, class by class.

    With k classes taking turns, sample j of class c has the number c + j k: see
    ``SampleSource.choose``.
    """
    return np.concatenate([c + len(n_new) * np.arange(n) for c, n in enumerate(n_new)])


def count_new(strategy: SamplingStrategy, y: NDArray[Any]) -> NDArray[np.int64]:
    """Number of new samples for each class of ``y`` (n,), in the order of ``np.unique``.

    ``"minority"``, ``"not minority"``, ``"not majority"`` (also ``"auto"``) or ``"all"``: these
    classes grow to the size of the largest. If several classes are smallest or largest, the first
    one counts. ``"10x"``: every class becomes ten times as large. A float, for two classes: the
    ratio of the smaller to the larger class, at most 1. A mapping of label to final size, or a
    function of ``y`` that returns one.
    """
    classes, counts = np.unique(y, return_counts=True)
    if isinstance(strategy, str):
        return _count_by_word(strategy, counts)
    if isinstance(strategy, Mapping):
        return _count_by_sizes(strategy, classes, counts)
    if isinstance(strategy, Real) and not isinstance(strategy, bool):
        return _count_by_ratio(float(strategy), counts)
    if callable(strategy):
        sizes = strategy(y)
        if isinstance(sizes, Mapping):
            return _count_by_sizes(sizes, classes, counts)
        raise TypeError(
            "`sampling_strategy` as a function of `y` must return a dict of label: number of "
            f"samples, got {sizes!r}."
        )
    raise TypeError(
        "`sampling_strategy` must be a word, a float, a dict of label: number of samples, or a "
        f"function of `y` that returns such a dict, got {strategy!r}."
    )


def _count_by_word(word: str, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    if times := TIMES.fullmatch(word):
        return _count_by_factor(float(times[1]), counts)
    if word not in WORDS:
        listed = ", ".join(repr(known) for known in WORDS)
        raise ValueError(
            f"`sampling_strategy` must be one of {listed}, or a factor such as '10x' for ten times "
            f"as many, got {word!r}."
        )
    is_smallest = np.arange(len(counts)) == counts.argmin()
    chosen = {"minority": is_smallest, "not minority": ~is_smallest}.get(word, True)
    return np.where(chosen, counts.max() - counts, 0)


def _count_by_factor(factor: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes = np.floor(factor * counts)
    if factor < 1.0 or sizes.max() > MAX_SAMPLE_NUMBER:
        raise ValueError(
            f"`sampling_strategy` must ask for at least as many samples as there are, '1x', and "
            f"fewer than 2^62, got '{factor:g}x' and {counts.max()} samples."
        )
    return np.maximum(sizes.astype(np.int64) - counts, 0)


def _count_by_ratio(ratio: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(counts) != 2:
        raise ValueError(
            f"`sampling_strategy` may be a float for two classes only, got {ratio:g} and "
            f"{len(counts)}. Use a dict of label: number of samples, or a factor such as '10x' "
            "for ten times as many."
        )
    if not 0.0 < ratio <= 1.0:
        raise ValueError(
            f"`sampling_strategy` as a number is the ratio of two classes, above 0 and at most 1, "
            f"got {ratio:g}. Use a word such as '10x' for ten times as many."
        )
    larger = int(counts.argmax())
    n_new = int(ratio * counts[larger] - counts[1 - larger])
    if n_new < 1:
        raise ValueError(
            "`sampling_strategy` must add at least one sample: it must exceed "
            f"{counts.min() / counts.max():g}, the current ratio of the classes, got {ratio:g}."
        )
    return np.where(np.arange(2) == larger, 0, n_new)


def _count_by_sizes(
    sizes: Mapping[Any, int], classes: NDArray[Any], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    new, known = np.zeros(len(counts), np.int64), classes.tolist()
    for label, size in sizes.items():
        if label not in known:
            raise ValueError(f"`sampling_strategy` must have labels of `y` as keys, got {label!r}.")
        place = known.index(label)
        if not isinstance(size, Integral) or size < counts[place]:
            raise ValueError(
                "`sampling_strategy` must ask for integer numbers of samples, at least the "
                f"{counts[place]} that class {label!r} has, got {size!r}. Samples are "
                "never removed."
            )
        new[place] = int(size) - counts[place]
    return new
