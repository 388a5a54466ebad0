"""The gate for labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dreamwarp as dw
from dreamwarp.core.labels import as_labels
from dreamwarp.model.labels import encode


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1.0, 2.0, 1.0], np.array([1, 2, 1])),
        ([[1], [2], [1]], np.array([1, 2, 1])),
        (np.array([b"a", b"\xc3\xa9", b"a"]), np.array(["a", "é", "a"])),
        (np.array(["a", "b", "a"], object), np.array(["a", "b", "a"])),
        ([True, False, True], np.array([True, False, True])),
        (np.array([3, 4, 3], np.uint8), np.array([3, 4, 3], np.uint8)),
    ],
)
def test_labels_become_whole_numbers_words_or_booleans(given: Any, expected: Any) -> None:
    found = as_labels(given, 3)
    assert found.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0.5, 1.0, 2.0], r"such as 0\.5\. Bin continuous values"),
        ([1.0, np.nan, 2.0], "Leave out samples without a label"),
        (np.array(["a", None, 1], object), "of one type.*none may be missing"),
        ([1j, 2j, 3j], "Complex"),
        ([1, 2], r"shape \(3,\).*inconsistent numbers of samples.*argmax"),
        (np.eye(3), "argmax"),
        (np.array(["2020", "2021", "2022"], "M8[Y]"), "Give every class a number or a name"),
    ],
)
def test_what_is_no_label_is_refused(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_labels(given, 3)


def test_every_entrance_reads_labels_alike() -> None:
    """Whole numbers in floating point, bytes and a column are labels wherever labels go in."""
    X = np.random.default_rng(0).random((12, 8, 8))
    plain = np.repeat([0, 1], 6)
    expected = dw.neighbor_pairs(X, plain)
    for y in (plain.astype(float), plain[:, None], np.where(plain, b"one", b"none")):
        np.testing.assert_array_equal(dw.neighbor_pairs(X, y), expected)
        assert len(dw.data.DataSet("some", X, y).classes) == 2


@pytest.mark.parametrize("classes", [(False, True), (0, 1)])
@pytest.mark.parametrize("labels", [[True, False], [1, 0], np.array([1, 0], np.uint8)])
def test_true_is_one(classes: tuple[Any, ...], labels: Any) -> None:
    assert encode(labels, classes).tolist() == [1, 0]
    assert encode([2], classes).tolist() == [-1]
    assert encode(["1"], classes).tolist() == [-1]
