"""Distances of queries to the nearest sample of each class, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Samples compared at a time: their distances to 10,000 queries take 160 MB.
BLOCK = 4000


@dataclass(frozen=True, eq=False)
class ClassDistances:
    """Squared distances of queries to the nearest sample of each class so far.

    Computed in float32. Subtract a large common mean first; otherwise cancellation loses precision.
    """

    queries: NDArray[np.float32]  # (m, size)
    squares: NDArray[np.float32]  # (m,), squared norms of the queries
    values: NDArray[np.float32]  # (m, n_classes); infinite for classes without samples

    @classmethod
    def among(
        cls, queries: NDArray[Any], samples: NDArray[Any], codes: NDArray[np.int64], n_classes: int
    ) -> ClassDistances:
        """Distances of queries (m, ...) to samples (n, ...) of classes (n,), counted from 0."""
        flat = _flatten(queries)
        nothing = np.full((len(flat), n_classes), np.inf, np.float32)
        found = cls(flat, _squares(flat), nothing)
        for first in range(0, len(samples), BLOCK):
            block = slice(first, first + BLOCK)
            found = found.improve(samples[block], codes[block])
        return found

    def improve(self, samples: NDArray[Any], codes: NDArray[np.int64]) -> ClassDistances:
        """Distances after one more block of samples (n, ...), n > 0."""
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            samples, codes = samples[order], codes[order]
        others = _flatten(samples)
        # |q - x|² = |q|² - 2 (q x - |x|² / 2): the nearest x has the largest term in brackets.
        closeness = self.queries @ others.T
        closeness -= _squares(others) / 2
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        nearest = self.squares[:, None] - 2 * np.maximum.reduceat(closeness, starts, axis=1)
        values = self.values.copy()
        values[:, codes[starts]] = np.minimum(values[:, codes[starts]], nearest)
        return ClassDistances(self.queries, self.squares, values)

    def errors(self, truth: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the nearest sample is of another class than ``truth`` (m,): (m,)."""
        return np.asarray(self.values.argmin(axis=1) != truth)


def standardize(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale to mean 0 and standard deviation 1: a large mean makes float32 distances inexact."""
    centered = images - images.mean(dtype=np.float64).astype(np.float32)
    return centered / np.float32(max(float(centered.std(dtype=np.float64)), 1e-30))


def _flatten(samples: NDArray[Any]) -> NDArray[np.float32]:
    return samples.reshape(len(samples), -1).astype(np.float32, copy=False)


def _squares(flat: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.einsum("nk,nk->n", flat, flat)
