"""The neighbour graph: exact, deterministic, within classes. Random pairs: distinct, even."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from hypothesis.extra import numpy as arrays

from dreamwarp.align import neighbor_pairs
from dreamwarp.align.nearest import BLOCK, find_nearest
from dreamwarp.align.pairs import random_pairs
from tests import oracle


def as_list(edges):
    return [tuple(edge) for edge in edges.tolist()]


def nearest_of_all(samples, n_neighbors):
    """The same by sorting all distances, which numpy does stably."""
    distances = np.array([((samples - sample) ** 2).sum(axis=1) for sample in samples])
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]


# -- what is found


@pytest.mark.parametrize("n_neighbors", [1, 3, 5])
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 6), (2, 3, 4)])
def test_edges_are_those_of_the_reference(shape, n_neighbors):
    samples = np.random.default_rng(0).normal(size=(40, *shape))
    expected = oracle.neighbor_edges(samples.reshape(40, -1), n_neighbors)
    assert as_list(neighbor_pairs(samples, n_neighbors=n_neighbors)) == expected


@hypothesis.given(
    arrays.arrays(np.uint8, (12, 3), elements=strategies.integers(0, 3)),
    strategies.integers(1, 11),
)
def test_ties_go_to_the_lower_index(samples, n_neighbors):
    expected = oracle.neighbor_edges(samples.astype(float), n_neighbors)
    assert as_list(neighbor_pairs(samples, n_neighbors=n_neighbors)) == expected


def test_edges_are_sorted_undirected_and_distinct():
    samples = np.random.default_rng(1).normal(size=(100, 4))
    edges = neighbor_pairs(samples, n_neighbors=6)
    assert edges.dtype == np.int64
    assert (edges[:, 0] < edges[:, 1]).all()
    assert as_list(edges) == sorted(set(as_list(edges)))
    assert (np.bincount(edges.ravel(), minlength=100) >= 6).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_search_is_exact_across_blocks(dtype):
    samples = np.random.default_rng(2).normal(size=(BLOCK + 200, 9)).astype(dtype)
    expected = nearest_of_all(samples.astype(np.float64), 4)
    np.testing.assert_array_equal(find_nearest(samples, 4), expected)


def test_ties_are_exact_across_blocks():
    samples = np.random.default_rng(3).integers(0, 3, size=(2 * BLOCK + 100, 6)).astype(np.float32)
    expected = nearest_of_all(samples.astype(np.float64), 5)
    np.testing.assert_array_equal(find_nearest(samples, 5), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x + 1e8,  # float32 could not tell these apart
        lambda x: np.vstack([x, [[1e30] * 5]]),  # next to the last, all others are as good as zero
        lambda x: x * 1e-60,
        lambda x: x * 1e60,
    ],
    ids=["far from zero", "an outlier", "tiny", "huge"],
)
def test_search_is_exact_where_single_precision_is_not(change):
    samples = change(np.random.default_rng(4).normal(size=(300, 5)))
    np.testing.assert_array_equal(find_nearest(samples, 3), nearest_of_all(samples, 3))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint16", "int64", "float16"])
def test_any_dtype_goes_in(dtype):
    samples = np.random.default_rng(5).integers(0, 2, size=(30, 12)).astype(dtype)
    expected = oracle.neighbor_edges(samples.astype(np.float64), 2)
    assert as_list(neighbor_pairs(samples, n_neighbors=2)) == expected


def test_small_integers_do_not_wrap():
    # As unsigned differences, 250 to 0 would be the nearest.
    assert as_list(neighbor_pairs(np.array([[0], [250], [100]], np.uint8), n_neighbors=1)) == [
        (0, 2),
        (1, 2),
    ]


def test_duplicates_are_neighbors():
    samples = np.repeat(np.random.default_rng(6).normal(size=(2, 5)), 2, axis=0)
    assert as_list(neighbor_pairs(samples, n_neighbors=1)) == [(0, 1), (2, 3)]


def test_all_samples_may_be_equal():
    edges = neighbor_pairs(np.full((2 * BLOCK, 3), 7, np.uint8), n_neighbors=2)
    # Everybody's nearest are the first two; those of the first two are 0, 1 and 2.
    expected = [(0, j) for j in range(1, 2 * BLOCK)] + [(1, j) for j in range(2, 2 * BLOCK)]
    assert as_list(edges) == expected


def test_result_does_not_depend_on_threads():
    samples = np.random.default_rng(7).integers(0, 4, size=(400, 8)).astype(np.uint8)
    expected = neighbor_pairs(samples, n_threads=1)
    for n_threads in (2, 3):
        np.testing.assert_array_equal(neighbor_pairs(samples, n_threads=n_threads), expected)


def test_samples_need_not_be_contiguous():
    samples = np.random.default_rng(8).normal(size=(20, 6, 5))
    expected = neighbor_pairs(np.ascontiguousarray(samples[::2, :, ::-1]))
    np.testing.assert_array_equal(neighbor_pairs(samples[::2, :, ::-1]), expected)


def test_lists_of_samples_go_in():
    samples = list(np.random.default_rng(9).normal(size=(20, 6)))
    np.testing.assert_array_equal(neighbor_pairs(samples), neighbor_pairs(np.array(samples)))


# -- classes


@pytest.mark.parametrize("names", [[0, 1, 2], ["seven", "one", "two"]])
def test_neighbors_are_of_the_same_class(names):
    generator = np.random.default_rng(10)
    samples = generator.normal(size=(60, 4))
    labels = np.asarray(names)[generator.integers(0, 3, size=60)]
    expected = []
    for name in names:
        members = np.flatnonzero(labels == name)
        expected += [
            (members[i], members[j]) for i, j in oracle.neighbor_edges(samples[members], 3)
        ]
    assert as_list(neighbor_pairs(samples, labels, n_neighbors=3)) == sorted(expected)


def test_small_classes_give_all_pairs_and_lone_samples_are_named():
    samples = np.random.default_rng(11).normal(size=(13, 4))
    labels = ["lone"] + ["pair"] * 2 + ["three"] * 3 + ["many"] * 7
    with pytest.warns(
        UserWarning,
        match=r"1 of 4 classes have a single sample.*: 'lone'\.",
    ) as warnings:
        edges = neighbor_pairs(samples, labels)
    assert len(warnings) == 1
    assert warnings[0].filename == __file__
    assert as_list(edges)[:4] == [(1, 2), (3, 4), (3, 5), (4, 5)]
    assert edges[4:].min() == 6
    assert len(neighbor_pairs(samples[1:], labels[1:])) == len(edges)  # without a warning


def test_warnings_name_no_more_than_ten_classes():
    with pytest.warns(UserWarning, match=r"have a single sample.*: 0, 1, .* 9 and 2 more\."):
        assert neighbor_pairs(np.eye(12), np.arange(12)).shape == (0, 2)


def test_few_samples_without_classes_give_all_pairs():
    assert as_list(neighbor_pairs(np.eye(3))) == [(0, 1), (0, 2), (1, 2)]
    assert len(neighbor_pairs(np.eye(6))) == 15


# -- bad input


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros((1, 4)), "at least 2 samples to make a pair, got 1"),
        (np.zeros((0, 4)), r"must have shape \(n, \*shape\), a sample per row, got \(0, 4\)"),
        (np.zeros(4), r"must have shape \(n, \*shape\), a sample per row, got \(4,\)"),
        (np.zeros((4, 0)), r"must have shape \(n, \*shape\), a sample per row, got \(4, 0\)"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], r"samples of one shape, got \(2, 2\), \(2, 3\)\."),
        ([[1.0, 2.0], [1.0]], r"samples of one shape, got \(1,\), \(2,\)"),
        (np.array([[[0.0, 1.0]], [[0.0, np.nan]]]), r"finite .*, got NaN at index \(1, 0, 1\)"),
        (np.array([[0.0], [-np.inf]], np.float32), r"finite .*, got -inf at index \(1, 0\)"),
        (np.array([[0.0], [1e200]]), r"at most 1e\+100 in size, got 1e\+200 at index \(1, 0\)"),
    ],
)  # fmt: skip
def test_bad_samples_are_refused(samples, words):
    with pytest.raises(ValueError, match=words):
        neighbor_pairs(samples)


@pytest.mark.parametrize("samples", [np.array([["a"], ["b"]]), np.zeros((2, 3), complex)])
def test_samples_that_are_not_numbers_are_refused(samples):
    with pytest.raises(TypeError, match="`X` must be an array of booleans, integers or floating"):
        neighbor_pairs(samples)


@pytest.mark.parametrize("n_neighbors", [0, -1, 2.0, True, "5", None])
def test_bad_counts_are_refused(n_neighbors):
    with pytest.raises(ValueError, match="`n_neighbors` must be an integer of at least 1"):
        neighbor_pairs(np.eye(9), n_neighbors=n_neighbors)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(8), r"shape \(9,\).* got \(8,\)"),
        (np.zeros((9, 2)), r"shape \(9,\).* got \(9, 2\)"),
        ([0.0] * 8 + [np.nan], r"such as nan\. Leave out samples without a label"),
        ([0] * 8 + [None], "none may be missing"),
    ],
)  # fmt: skip
def test_bad_labels_are_refused(labels, words):
    with pytest.raises(ValueError, match=words):
        neighbor_pairs(np.eye(9), labels)


def test_bad_thread_counts_are_refused():
    with pytest.raises(ValueError, match="`n_threads` must be a positive integer, got 0"):
        neighbor_pairs(np.eye(9), n_threads=0)


# -- random pairs


def test_random_pairs_are_distinct_and_of_one_class():
    codes = np.array([0] * 7 + [1] * 2 + [2] + [3] * 40)
    edges = random_pairs(codes, 60)
    assert len(edges) == 60
    assert (codes[edges[:, 0]] == codes[edges[:, 1]]).all()
    assert len({frozenset(edge) for edge in as_list(edges)}) == len(edges)
    np.testing.assert_array_equal(np.bincount(codes[edges[:, 0]]), [21, 1, 0, 38])
    frequencies = np.bincount(edges.ravel(), minlength=len(codes))[codes == 3]
    assert np.ptp(frequencies) <= 2
    np.testing.assert_array_equal(edges, random_pairs(codes, 60))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10])
def test_small_classes_give_all_random_pairs(n):
    edges = np.sort(random_pairs(np.zeros(n, np.int64), 100), axis=1)
    assert sorted(as_list(edges)) == [(i, j) for i in range(n) for j in range(i + 1, n)]
