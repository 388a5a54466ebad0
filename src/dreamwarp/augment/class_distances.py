"""How near queries are to each class, over more samples than fit into memory at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Samples compared at a time: their distances to 10,000 queries take 160 MB.
BLOCK = 4000


@dataclass(frozen=True, eq=False)
class ClassDistances:
    """Squared distances of queries to the nearest sample of each class that they have met so far.

    In float32. Let samples be about zero if their mean is large: its square takes digits away.

    Attributes
    ----------
    queries : (m, size)
    squares : (m,)
        Squared distances of the queries from zero.
    values : (m, n_classes)
        Squared distances; infinite where no sample of a class was met.
    """

    queries: NDArray[np.float32]
    squares: NDArray[np.float32]
    values: NDArray[np.float32]

    @classmethod
    def among(
        cls, queries: NDArray[Any], samples: NDArray[Any], codes: NDArray[np.int64], n_classes: int
    ) -> ClassDistances:
        """Of queries (m, ...) to samples (n, ...) of classes (n,), counted from 0."""
        flat = _flatten(queries)
        nothing = np.full((len(flat), n_classes), np.inf, np.float32)
        found = cls(flat, _squares(flat), nothing)
        for first in range(0, len(samples), BLOCK):
            block = slice(first, first + BLOCK)
            found = found.improve(samples[block], codes[block])
        return found

    def improve(self, samples: NDArray[Any], codes: NDArray[np.int64]) -> ClassDistances:
        """Let the queries meet more samples (n, ...): a block of them, at least one."""
        order = np.argsort(codes, kind="stable")
        others, present = _flatten(samples[order]), codes[order]
        distances = self.queries @ others.T
        distances *= -2.0
        distances += _squares(others)
        starts = np.flatnonzero(np.diff(present, prepend=-1))
        nearest = np.minimum.reduceat(distances, starts, axis=1) + self.squares[:, None]
        values = self.values.copy()
        values[:, present[starts]] = np.minimum(values[:, present[starts]], nearest)
        return ClassDistances(self.queries, self.squares, values)

    def errors(self, truth: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the nearest sample is of another class than the query (m,): (m,)."""
        return np.asarray(self.values.argmin(axis=1) != truth)


def _flatten(samples: NDArray[Any]) -> NDArray[np.float32]:
    return samples.reshape(len(samples), -1).astype(np.float32)


def _squares(flat: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.einsum("nk,nk->n", flat, flat)
