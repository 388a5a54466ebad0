"""Resampler: an augmenter as a step of imbalanced-learn's pipelines.

Those refuse a step that has both ``transform`` and ``fit_resample``, for they could not know which
to call. An augmenter has both.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone


class Resampler(BaseEstimator):  # type: ignore[misc]
    """``fit_resample`` of an augmenter, and nothing else of it.

    Parameters
    ----------
    augmenter : estimator with ``fit_resample``
        Left as it is: a copy is fitted. Its options are reached as ``augmenter__strength``.

    Attributes
    ----------
    augmenter_ : estimator
        The copy that was fitted.
    """

    def __init__(self, augmenter: Any) -> None:
        self.augmenter = augmenter

    def fit(self, X: ArrayLike, y: ArrayLike) -> Resampler:
        """Fit the augmenter."""
        self.augmenter_ = clone(self.augmenter).fit(X, y)
        return self

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Samples and, after them, new ones, with their labels; see the augmenter."""
        self.augmenter_ = clone(self.augmenter)
        resampled: tuple[NDArray[Any], NDArray[Any]] = self.augmenter_.fit_resample(X, y)
        return resampled
