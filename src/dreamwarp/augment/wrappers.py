"""Augmentation in estimators: AugmentedClassifier, and Resampler for imbalanced-learn's pipelines.

A pipeline of scikit-learn can't add samples: its steps must keep their number. A pipeline of
imbalanced-learn can, but rejects a step that, like an augmenter, has both ``transform`` and
``fit_resample``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dreamwarp.augment.sampling_strategy import SamplingStrategy


def _has(name: str) -> Any:
    """Decorator: the method exists only if the wrapped estimator has one of this name."""

    def check(self: AugmentedClassifier) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return available_if(check)


class AugmentedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier trained on samples and new, warped ones; predicts from unwarped samples.

    ``augmenter.wrap(estimator)`` makes one.

    Parameters
    ----------
    estimator : classifier
        Cloned before it is fitted. It gets samples in the shape of ``X``; most classifiers need
        rows, for which the augmenter needs ``image_shape``.
    augmenter : estimator with ``fit_resample`` and ``sampling_strategy``
        Cloned too.
    sampling_strategy : str, float, dict or callable
        Number of samples to train on, as for ``Augmenter``; ``"10x"``: ten times as many.

    Attributes
    ----------
    estimator_, augmenter_ : estimators
        The fitted clones.
    classes_ : (n_classes,)
    n_features_in_ : int

    Examples
    --------
    >>> augmenter = Augmenter(cells=(4, 4), image_shape=(28, 28))
    >>> cross_val_score(augmenter.wrap(KNeighborsClassifier(1)), rows, y)
    """

    def __init__(
        self, estimator: Any, augmenter: Any, *, sampling_strategy: SamplingStrategy = "10x"
    ) -> None:
        self.estimator = estimator
        self.augmenter = augmenter
        self.sampling_strategy = sampling_strategy

    def fit(self, X: ArrayLike, y: ArrayLike) -> AugmentedClassifier:
        """Fit the augmenter, make new samples, and train the classifier on all samples."""
        if np.asarray(y).ndim == 2:  # scikit-learn requires a warning for a column
            y = column_or_1d(y, warn=True)
        augmenter = clone(self.augmenter).set_params(sampling_strategy=self.sampling_strategy)
        self.estimator_ = clone(self.estimator).fit(*augmenter.fit_resample(X, y))
        self.augmenter_ = augmenter
        self.classes_ = np.asarray(augmenter.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(augmenter, name):
                setattr(self, name, getattr(augmenter, name))
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the classes of samples, which are not warped."""
        return self._call("predict", X)

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Predict class probabilities (n, n_classes)."""
        return self._call("predict_proba", X)

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """The decision function of the classifier."""
        return self._call("decision_function", X)

    def _call(self, name: str, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return getattr(self.estimator_, name)(X)


class Resampler(BaseEstimator):  # type: ignore[misc]
    """An augmenter with ``fit_resample`` alone, for imbalanced-learn's pipelines.

    Parameters
    ----------
    augmenter : estimator with ``fit_resample``
        Cloned before it is fitted. Its options are set as ``augmenter__strength``.

    Attributes
    ----------
    augmenter_ : estimator
        The fitted clone.
    """

    def __init__(self, augmenter: Any) -> None:
        self.augmenter = augmenter

    def fit(self, X: ArrayLike, y: ArrayLike) -> Resampler:
        """Fit the augmenter."""
        self.augmenter_ = clone(self.augmenter).fit(X, y)
        return self

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples followed by new ones, and their labels; see the augmenter."""
        self.augmenter_ = clone(self.augmenter)
        return self.augmenter_.fit_resample(X, y)
