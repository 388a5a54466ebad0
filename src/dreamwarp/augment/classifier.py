"""AugmentedClassifier: a classifier that is trained on samples and warped ones.

A plain pipeline of scikit-learn can't do that: its steps must keep the number of samples.
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
    """Whether the estimator has a method, before or after it is fitted."""

    def check(self: AugmentedClassifier) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return available_if(check)


class AugmentedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a classifier on the samples and new ones; predicts from samples as they are.

    ``augmenter.wrap(estimator)`` makes one.

    Parameters
    ----------
    estimator : classifier
        Left as it is: a copy is fitted. Its samples are those that the augmenter takes; most
        classifiers want rows, for which the augmenter needs ``image_shape``.
    augmenter : estimator with ``fit_resample`` and ``sampling_strategy``
        Left as it is too.
    sampling_strategy : str, float, dict or callable
        How many samples to train on, as for ``Augmenter``; ``"10x"``: ten times as many.

    Attributes
    ----------
    estimator_, augmenter_ : estimators
        The copies that were fitted.
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
        """Learn warps, make new samples, and train the classifier on all."""
        if np.asarray(y).ndim == 2:  # a column, of which scikit-learn wants to hear
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
        """Classes of samples, which are not warped."""
        return self._call("predict", X)

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities of classes (n, n_classes)."""
        return self._call("predict_proba", X)

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """What the classifier decides by."""
        return self._call("decision_function", X)

    def _call(self, name: str, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        result: NDArray[Any] = getattr(self.estimator_, name)(X)
        return result
