"""How many new samples each class gets, held against imbalanced-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dreamwarp.augment.sampling_strategy import WORDS, count_new, number_new

SETS = {
    "several": np.repeat(["a", "b", "c", "d"], [3, 7, 2, 7]),
    "equal": np.repeat([0, 1, 2], 4),
    "two": np.repeat([True, False], [9, 4]),
    "two smallest": np.repeat([5, 1, 9], [2, 2, 6]),
}


def double(y: Any) -> dict[Any, int]:
    labels, counts = np.unique(y, return_counts=True)
    return dict(zip(labels.tolist(), (2 * counts).tolist(), strict=True))


def theirs(strategy: Any, y: Any) -> list[int]:
    validation = pytest.importorskip("imblearn.utils")
    new = validation.check_sampling_strategy(strategy, y, "over-sampling")
    return [int(new.get(label, 0)) for label in np.unique(y)]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("strategy", [*WORDS, double])
def test_counts_are_those_of_imbalanced_learn(name: str, strategy: Any) -> None:
    assert count_new(strategy, SETS[name]).tolist() == theirs(strategy, SETS[name])


@pytest.mark.parametrize("ratio", [1, 1.0, 0.6, 0.78, 5 / 9])
def test_ratios_are_those_of_imbalanced_learn(ratio: float) -> None:
    assert count_new(ratio, SETS["two"]).tolist() == theirs(ratio, SETS["two"])


@pytest.mark.parametrize("sizes", [{"a": 5}, {"b": 7, "c": 30}, {}])
def test_sizes_are_those_of_imbalanced_learn(sizes: Any) -> None:
    assert count_new(sizes, SETS["several"]).tolist() == theirs(sizes, SETS["several"])


def test_times_as_many_of_every_class() -> None:
    y = SETS["several"]
    sizes = np.unique(y, return_counts=True)[1]
    for factor in (1, 2, 10):
        assert (count_new(f"{factor}x", y) == (factor - 1) * sizes).all()
    assert count_new("1.5x", y).tolist() == [1, 3, 1, 3]
    # A number is what it is to imbalanced-learn.
    assert count_new(1, SETS["two"]).tolist() == [5, 0]


@pytest.mark.parametrize(
    ("strategy", "name", "message"),
    [
        ("0.5x", "several", r"at least as many samples as there are, '1x'.* got '0\.5x'"),
        (f"{10**300}x", "several", r"fewer than 2\^62"),
        ("x", "several", r"must be one of .*such as '10x' for ten times as many, got 'x'"),
        ("-2x", "several", r"must be one of .*'10x'"),
        (10, "several", r"for two classes only, got 10 and 4\. .*such as '10x' for ten times as"),
        (10, "two", r"ratio of two classes.* got 10\. Use a word such as '10x'"),
        ("majority", "several", r"must be one of 'auto', 'not majority', .* got 'majority'"),
        ({"e": 9}, "several", r"must have labels of `y` as keys, got 'e'"),
        ({"b": 6}, "several", r"at least the 7 that class 'b' has, got 6\. Samples are never"),
        ({"b": 8.5}, "several", r"must ask for integer numbers of samples.*got 8\.5"),
        (0.5, "several", r"may be a float for two classes only, got 0\.5 and 4\. Use a dict"),
        (1.5, "two", r"above 0 and at most 1, got 1\.5"),
        (0.5, "two", r"at least one sample.* 0\.444444, .*ratio .* got 0\.5"),
    ],
)
def test_bad_strategies_are_refused(strategy: Any, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        count_new(strategy, SETS[name])


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (["a"], r"must be a word, a float, a dict .* got \['a'\]"),
        (True, r"must be a word, a float, a dict .* got True"),
        (lambda y: 3, r"as a function of `y` must return a dict of label: number .* got 3"),
    ],
)
def test_what_is_no_strategy_is_refused(strategy: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        count_new(strategy, SETS["several"])


def test_new_samples_have_numbers_of_their_class() -> None:
    numbers = number_new(np.array([2, 0, 3]))
    assert numbers.tolist() == [0, 3, 2, 5, 8]
    assert (numbers % 3).tolist() == [0, 0, 2, 2, 2]
