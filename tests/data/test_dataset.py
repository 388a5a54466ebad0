"""Data sets hold what they say, and the paper's split is fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dreamwarp.data import DataSet, Labeled
from dreamwarp.data.dataset import count_spatial_axes, guess_axes, join_labeled

X = np.zeros((6, 4, 5), np.uint8)
Y = np.array([2, 0, 2, 1, 0, 2])


def test_a_data_set_with_a_test_part() -> None:
    data = DataSet("digits", X, Y, Labeled(X[:2], Y[:2]))
    assert data.X is X and data.X_test.shape == (2, 4, 5)
    np.testing.assert_array_equal(data.y_test, Y[:2])
    np.testing.assert_array_equal(data.classes, [0, 1, 2])
    assert data.describe() == "digits: 6 + 2 test samples of 4 x 5 uint8, 3 classes"
    assert repr(data) == f"<DataSet {data.describe()}>"


def test_a_data_set_without_a_test_part_says_so() -> None:
    data = DataSet("digits", X, np.zeros(6, int))
    assert data.describe() == "digits: 6 samples of 4 x 5 uint8, 1 class"
    with pytest.raises(
        ValueError, match=r"`digits` has no test part\. Hold out some of its 6 samples"
    ):
        data.X_test  # noqa: B018
    with pytest.raises(ValueError, match="has no test part"):
        data.y_test  # noqa: B018


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (Y[:, None], Y),
        (Y.astype(float), Y),
        (Y > 0, (Y > 0).astype(int)),
        (np.array([b"a", b"dog", b"a", b"\xc3\xa9", b"a", b"b"]), ["a", "dog", "a", "é", "a", "b"]),
        (np.array(list("abcabc")), list("abcabc")),
        (Y.astype(np.uint8), Y),
    ],
)
def test_labels_come_in_one_form(labels: Any, expected: Any) -> None:
    data = DataSet("digits", X, labels)
    assert data.y.tolist() == list(expected)
    assert data.y.dtype.kind in "iuU"


@pytest.mark.parametrize(
    ("samples", "labels", "message"),
    [
        (X[:0], Y[:0], r"`digits` must hold at least one sample .* got uint8"),
        (Y, Y, r"must hold at least one sample .* got int64 of shape \(6,\)"),
        (X.astype(complex), Y, r"sample of real numbers, .* got complex128"),
        (X, Y[:5], r"`digits` must have shape \(6,\).* got \(5,\)"),
        (X, np.eye(6), r"shape \(6,\).* got \(6, 6\).* one-hot labels as"),
        (X, Y + 0.5, r"must hold classes: .* such as 2\.5"),
        (X, Y * np.nan, r"such as nan\. Leave out"),
        (X, Y.astype(complex), r"must hold classes: .* complex128"),
    ],
)
def test_what_is_no_data_set_is_refused(samples: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSet("digits", samples, labels)


def test_a_test_part_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"samples of one shape, got \(4, 5\) for training and"):
        DataSet("digits", X, Y, Labeled(X[:, :3], Y))
    with pytest.raises(ValueError, match=r"labels of `digits \(test\)` must have shape"):
        DataSet("digits", X, Y, Labeled(X, Y[:3]))


def test_parts_join() -> None:
    joined = join_labeled("shards", [Labeled(X, Y), Labeled(X[:1], Y[:1])])
    assert joined.X.shape == (7, 4, 5) and joined.y.tolist() == [*Y, 2]
    for other in (X[:, :2], X.astype(float)):
        with pytest.raises(ValueError, match=r"`shards` must have samples of one dtype and shape"):
            join_labeled("shards", [Labeled(X, Y), Labeled(other, Y)])


# -- spatial axes


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((150,), 1),
        ((1, 150), 1),
        ((6, 100), 1),
        ((8, 8), 2),
        ((28, 28), 2),
        ((1, 28, 28), 2),
        ((3, 64, 64), 2),
        ((28, 28, 28), 3),
        ((1, 28, 28, 28), 3),
    ],
)
def test_axes_are_guessed_by_shape(shape: tuple[int, ...], expected: int) -> None:
    assert guess_axes(shape) == expected


def test_what_the_source_says_counts() -> None:
    X = np.zeros((4, 12, 29))
    assert count_spatial_axes(DataSet("a", X, np.zeros(4, int))) == 2
    assert count_spatial_axes(DataSet("a", X, np.zeros(4, int), n_axes=1)) == 1
