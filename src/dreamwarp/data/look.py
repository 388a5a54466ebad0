"""Look: which values of a data set are drawn light and which dark."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

# Data with at least this share of values at its lowest is ink on paper: a background, and a figure.
BACKGROUND_SHARE = 0.25
# Shades between the lowest and the highest value that count as the background.
BACKGROUND_DEPTH = 0.02


class Look(NamedTuple):
    """How values become shades, the same for all samples of a data set.

    Attributes
    ----------
    low, high : float
        Values at both ends of the shades or, for signals, at the bottom and the top.
    is_ink : bool
        Whether high values are dark, as ink on paper.
    """

    low: float
    high: float
    is_ink: bool

    @classmethod
    def of(cls, X: Array, n_most: int = 512) -> Look:
        """The look of samples (n, ...), by up to ``n_most`` of them."""
        some = X[:: max(1, len(X) // n_most)]
        if X.dtype == np.bool_:
            low, high = 0.0, 1.0
        elif X.dtype == np.uint8:
            low, high = 0.0, 255.0
        else:
            low, high = float(some.min()), float(some.max())
        if high <= low:
            high = low + 1.0
        depth = low + BACKGROUND_DEPTH * (high - low)
        return cls(low, high, bool(np.mean(some <= depth) >= BACKGROUND_SHARE))

    def scale(self, values: ArrayLike) -> NDArray[np.float64]:
        """Values from 0, the lowest, to 1, the highest."""
        return (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
