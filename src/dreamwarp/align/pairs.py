"""Which samples to align: nearest neighbours, or random pairs of a class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align.nearest import find_nearest
from dreamwarp.core.compiled import thread_count
from dreamwarp.core.defaults import N_NEIGHBORS
from dreamwarp.core.labels import as_labels, list_labels
from dreamwarp.core.samples import as_array, check_finite
from dreamwarp.core.validation import check_integer, warn_user

# Beyond this, squares of differences overflow float64.
MAX_VALUE = 1e100


def neighbor_pairs(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    n_neighbors: int = N_NEIGHBORS,
    n_threads: int | None = None,
) -> NDArray[np.int64]:
    """Pairs of samples of which one is among the nearest neighbours of the other.

    An edge stands for both directions: if θ aligns i to j, then -θ aligns j to i.

    Parameters
    ----------
    X : (n, *shape)
        Images, signals or volumes, with or without channels, compared by Euclidean distance.
    y : (n,), optional
        Labels. Neighbours are then searched within each class only.
    n_neighbors : int
        K in the paper. A class of at most K samples gives all its pairs. A class of one sample
        gives none, and a warning names it.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.

    Returns
    -------
    (e, 2) of int64
        Indices i < j of samples, each pair once, in ascending order.

    Notes
    -----
    The search is exact, with ties broken by the lower index. It takes O(n²) time per class, and
    memory for one or two floating-point copies of ``X``. Distances are float64 sums, so those of
    integers are exact. For millions of samples, pass the edges of an approximate search to
    :func:`align_pairs`.

    Examples
    --------
    >>> neighbor_pairs([[0.0], [1.0], [3.0], [7.0]], n_neighbors=1)
    array([[0, 1],
           [1, 2],
           [2, 3]])
    """
    samples = _check_samples(X)
    n_neighbors = check_integer("n_neighbors", n_neighbors, 1)
    thread_count(n_threads)
    labels = np.zeros(len(samples), int) if y is None else as_labels(y, len(samples))
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    lone = names[counts == 1]
    if len(lone):
        warn_user(
            f"{len(lone)} of {len(names)} classes have a single sample, which makes no pair: "
            f"{list_labels(lone)}.",
            UserWarning,
        )
    edges = [
        rows[_class_edges(samples[rows], n_neighbors, n_threads)]
        for rows in members
        if len(rows) > 1
    ]
    both = np.concatenate([np.empty((0, 2), np.int64), *edges])
    # One number per edge, because rows are much slower to sort.
    return np.stack(np.divmod(np.unique(both @ [len(samples), 1]), len(samples)), axis=1)


def random_pairs(codes: NDArray[np.int64], n_pairs: int) -> NDArray[np.int64]:
    """Random pairs of samples of the same class, spread evenly over classes and samples.

    Sample k of a random order is paired with sample k + 1, then with k + 2, and so on, cyclically.
    The same ``codes`` (n,), the classes of samples, always give the same pairs (e, 2): at most
    ``n_pairs``, each once, in ascending order of classes. A class with too few pairs gives all of
    them, and the other classes give more.
    """
    rng = np.random.default_rng(0)
    edges, ranks = [np.empty((0, 2), np.int64)], [np.empty(0, np.int64)]
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        n = len(members)
        rank = np.arange(min(n_pairs, n * (n - 1) // 2))
        shift, first = np.divmod(rank, n)
        edges.append(members[np.stack([first, (first + shift + 1) % n], axis=1)])
        ranks.append(rank)
    # The first pair of every class, then the second of every class, and so on.
    chosen = np.argsort(np.concatenate(ranks), kind="stable")[:n_pairs]
    return np.concatenate(edges)[np.sort(chosen)]


def _class_edges(
    samples: NDArray[Any], n_neighbors: int, n_threads: int | None
) -> NDArray[np.int64]:
    """Edges (e, 2), with i < j, between samples (n, size) of one class; may have duplicates."""
    n = len(samples)
    if n <= n_neighbors:
        return np.stack(np.triu_indices(n, 1), axis=1)
    # float32, in half the memory of float64, if it represents the dtype exactly.
    numbers = np.ascontiguousarray(samples, np.result_type(samples.dtype, np.float32))
    nearest = find_nearest(numbers, n_neighbors, n_threads)
    edges = np.stack([np.repeat(np.arange(n), n_neighbors), nearest.ravel()], axis=1)
    return np.sort(edges, axis=1)


# -- checks


def _check_samples(X: ArrayLike) -> NDArray[Any]:
    """Return samples as (n, size) with n > 1; raise if any value is not finite."""
    array = as_array("X", X)
    if array.ndim < 2 or array[:1].size == 0:
        raise ValueError(f"`X` must have shape (n, *shape), a sample per row, got {array.shape}.")
    if len(array) < 2:
        raise ValueError(f"`X` must hold at least 2 samples to make a pair, got {len(array)}.")
    check_finite("X", array, at_most=MAX_VALUE)
    return array.reshape(len(array), -1)
