"""How values of a data set become shades in figures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

# Data is drawn as ink on paper if at least this fraction of its values is background.
BACKGROUND_SHARE = 0.25
# Values count as background up to this fraction of the range above the lowest.
BACKGROUND_DEPTH = 0.02


class Look(NamedTuple):
    """The range of shades, the same for all samples of a data set.

    Attributes
    ----------
    low, high : float
        Values at the two ends of the range of shades, or of the vertical axis for signals.
    is_ink : bool
        Whether high values are dark, like ink on paper.
    """

    low: float
    high: float
    is_ink: bool

    @classmethod
    def of(cls, X: Array, n_most: int = 512) -> Look:
        """The look of samples (n, ...), from about ``n_most`` of them."""
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
        """Scale values so that ``low`` becomes 0 and ``high`` becomes 1."""
        return (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
