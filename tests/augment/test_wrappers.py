"""AugmentedClassifier: trained on more, predicting from what comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import dreamwarp as dw
from dreamwarp.augment import AugmentedClassifier
from tests.augment.cases import QUICK, SIZE, warped_shapes


def rows() -> tuple[Any, Any]:
    X, y = warped_shapes()
    return X.reshape(len(X), -1), y


def make_augmenter() -> dw.Augmenter:
    return dw.Augmenter(strength=1.0, image_shape=(SIZE, SIZE), **QUICK)


def test_it_is_trained_on_samples_and_new_ones_and_predicts_plainly() -> None:
    X, y = rows()
    augmenter = make_augmenter()
    made = augmenter.wrap(KNeighborsClassifier(1)).fit(X, y)
    expected = clone(augmenter).set_params(sampling_strategy="10x").fit_resample(X, y)[0]
    assert len(expected) == 10 * len(X)
    np.testing.assert_array_equal(made.estimator_._fit_X, expected)
    np.testing.assert_array_equal(made.predict(X), y)  # samples as they are
    assert made.predict_proba(X).shape == (len(X), 3)
    assert made.classes_.tolist() == ["bar", "ring", "wedge"] and made.n_features_in_ == SIZE**2
    assert not hasattr(augmenter, "classes_") and augmenter.sampling_strategy == "auto"
    fewer = augmenter.wrap(KNeighborsClassifier(1), sampling_strategy="2x").fit(X, y)
    np.testing.assert_array_equal(fewer.estimator_._fit_X[: len(X)], X)
    assert len(fewer.estimator_._fit_X) == 2 * len(X)


def test_it_can_be_cross_validated_and_searched() -> None:
    X, y = rows()
    made = make_augmenter().wrap(KNeighborsClassifier(1), sampling_strategy="3x")
    assert cross_val_score(made, X, y, cv=2).shape == (2,)
    search = GridSearchCV(made, {"estimator__n_neighbors": [1, 3], "augmenter__strength": [0.5]})
    assert search.set_params(cv=2).fit(X, y).best_estimator_.augmenter_.strength_ == 0.5


def test_it_has_what_its_classifier_has() -> None:
    X, y = rows()
    made = make_augmenter().wrap(LinearSVC(max_iter=10_000), sampling_strategy="2x")
    assert not hasattr(made, "predict_proba")
    assert made.fit(X, y).decision_function(X).shape == (len(X), 3)
    assert not hasattr(make_augmenter().wrap(KNeighborsClassifier()), "decision_function")


def test_other_augmenters_can_be_used() -> None:
    class Doubler(BaseEstimator):
        def __init__(self, sampling_strategy: str = "auto") -> None:
            self.sampling_strategy = sampling_strategy

        def fit_resample(self, X: Any, y: Any) -> tuple[Any, Any]:
            assert self.sampling_strategy == "2x"
            self.classes_ = np.unique(y)
            return np.concatenate([X, X]), np.concatenate([y, y])

    X, y = rows()
    made = AugmentedClassifier(KNeighborsClassifier(1), Doubler(), sampling_strategy="2x").fit(X, y)
    assert len(made.estimator_._fit_X) == 2 * len(X)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_takes_it_for_one_of_its_own() -> None:
    # What is checked is the classifier: nothing to estimate, few steps.
    augmenter = dw.Augmenter(
        cells=(2,), sigma=0.5, displacement=0.05, max_steps=5, strength=1.0, progress=False
    )
    check_estimator(
        AugmentedClassifier(LogisticRegression(), augmenter, sampling_strategy="2x"), on_skip=None
    )
