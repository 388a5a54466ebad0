"""The paper's division of the training images, in ``experiments``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.split import paper_split


def labels_like_mnist() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 10, 60_000)


def test_the_split_is_the_papers() -> None:
    y = labels_like_mnist()
    split = paper_split(y)
    np.testing.assert_array_equal(split.train, np.arange(50_000))
    np.testing.assert_array_equal(split.validation, np.arange(50_000, 60_000))
    assert split.few.shape == (5_000,) and (np.diff(split.few) > 0).all()
    for label in range(10):
        members = split.few[y[split.few] == label]
        np.testing.assert_array_equal(members, np.flatnonzero(y == label)[:500])


def test_drawn_splits_are_fixed_by_the_seed_and_nested() -> None:
    y = labels_like_mnist()
    few = paper_split(y, seed=3).few
    np.testing.assert_array_equal(few, paper_split(y, seed=3).few)
    np.testing.assert_array_equal(few, paper_split(y, seed=np.random.default_rng(3)).few)
    assert not np.array_equal(few, paper_split(y, seed=4).few)
    assert set(paper_split(y, 100, seed=3).few) < set(few)
    assert few.max() < 50_000 and len(set(few)) == 5_000
    np.testing.assert_array_equal(np.bincount(y[few]), np.full(10, 500))


def test_drawn_indices_stay_what_they_are() -> None:
    y = np.arange(40) % 2
    # From NumPy's generators, whose streams are fixed: other indices would change what others draw.
    few = paper_split(y, 3, seed=0, n_validation=10).few
    assert few.tolist() == [0, 13, 15, 22, 23, 26]


def test_string_labels_are_split_too() -> None:
    split = paper_split(["b", "a", "b", "a"], 1, n_validation=1)
    assert split.few.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([[0, 1]], {}, r"`y` must be labels of shape \(n,\), got shape \(1, 2\)"),
        ([0, 1] * 10, {"n_per_class": 0}, r"`n_per_class` must be at least 1, got 0"),
        ([0, 1] * 10, {}, r"`n_validation` must be .* less than the number of labels, 20, got 100"),
        ([0, 1] * 10, {"n_validation": -1}, r"`n_validation` must be at least 0"),
        (
            [0, 1, 1, 1],
            {"n_per_class": 2, "n_validation": 1},
            r"`n_per_class` must be at most 1, .* class 0, got 2",
        ),
    ],
)
def test_impossible_splits_are_refused(labels: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paper_split(labels, **options)
