"""Samples by class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Members:
    """The members of every class: of class c, ``order[starts[c]:][:counts[c]]``."""

    order: Integers
    starts: Integers
    counts: Integers

    @classmethod
    def of(cls, codes: Integers) -> Members:
        """Of samples whose classes are ``codes`` (n,), counted from 0."""
        counts = np.bincount(codes)
        return cls(np.argsort(codes, kind="stable"), np.cumsum(counts) - counts, counts)

    def pick(self, codes: Integers, places: Integers) -> Integers:
        """Samples (n,): of each class (n,) the member at a place (n,), below its count."""
        return self.order[self.starts[codes] + places]
