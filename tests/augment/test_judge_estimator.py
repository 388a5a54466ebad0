"""Strengths judged by classifiers other than the nearest neighbour."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dreamwarp as dw
from tests.augment.cases import LABELS, heights, textures, warped_shapes

WORDS = np.array(["ash", "birch", "cedar", "date"])


@cache
def fitted(**options: Any) -> dw.Augmenter:
    X, y = textures(12, 0)
    return dw.Augmenter(cells=(3, 3), strength=1.0, progress=False, **options).fit(X, WORDS[y])


def nearest(X_train: Any, y_train: Any, X_test: Any) -> Any:
    rows, queries = X_train.reshape(len(X_train), -1), X_test.reshape(len(X_test), -1)
    return y_train[((queries[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)]


def test_a_classifier_and_a_callable_that_do_the_same_are_judged_alike() -> None:
    by_estimator = fitted().judge(KNeighborsClassifier(1), strengths=[0.5, 1.0])
    by_callable = fitted().judge(nearest, strengths=[0.5, 1.0])
    assert by_estimator.errors == by_callable.errors
    assert by_estimator.strength == by_callable.strength
    assert list(by_estimator.errors) == [0.0, 0.5, 1.0] == list(by_estimator.spreads)
    assert all(0.0 <= spread < 0.1 for spread in by_estimator.spreads.values())
    assert "error of KNeighborsClassifier on" in str(by_estimator.verdict)
    assert "error of nearest on" in str(by_callable.verdict)
    assert "10 warped copies of each of 39 others" in str(by_callable.verdict)
    assert "smoothed" not in str(by_callable).lower()


@pytest.mark.parametrize(
    "options",
    [{"method": "map", "model": "gaussian", "boundary": "zero", "displacement": 0.05}, {}],
)
def test_warps_help_a_classifier_that_lacks_data(options: Any) -> None:
    X, y = textures(25, 0)  # with 12, the interval of the gain is 29 points wide
    augmenter = dw.Augmenter(cells=(3, 3), strength=1.0, progress=False, **options)
    judgement = augmenter.fit(X, WORDS[y]).judge(nearest)
    assert judgement.verdict.helps and judgement.strength > 0.0
    assert judgement.errors[judgement.strength] < judgement.errors[0.0] - 0.1
    assert judgement.verdict.error_with < judgement.verdict.error_without


def test_warps_that_carry_the_class_are_left() -> None:
    X, y = heights(200, 0, n_bands=4)
    augmenter = dw.Augmenter(cells=(2, 2), sigma=0.1, strength=1.0, progress=False).fit(X, y)
    judgement = augmenter.judge(KNeighborsClassifier(3), strengths=[1.0, 2.0])
    assert judgement.strength == 0.0 and not judgement.verdict.helps


def test_samples_come_as_rows_or_as_they_were_fitted() -> None:
    shapes, labels = [], []

    def look(X_train: Any, y_train: Any, X_test: Any) -> Any:
        shapes.append((X_train.shape[1:], X_test.shape[1:], X_train.dtype))
        labels.append(set(y_train))
        assert len(X_train) == len(y_train)
        return np.full(len(X_test), y_train[0])

    X, y = warped_shapes(8)
    for given, options in ((X, {}), (X.reshape(len(X), -1), {"image_shape": X.shape[1:]})):
        augmenter = dw.Augmenter(cells=(2, 2), strength=1.0, progress=False, **options)
        augmenter.fit(given, y).judge(look, strengths=[1.0], copies=2)
        assert shapes.pop() == (given.shape[1:], given.shape[1:], np.dtype(np.uint8))
    assert labels[0] == set(LABELS)

    class Rows(KNeighborsClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            assert X.shape[1] == 144
            return super().fit(X, y)

    fitted().judge(Rows(1), strengths=[1.0], copies=1)


def test_no_held_out_sample_and_no_warp_of_one_is_trained_on() -> None:
    augmenter = fitted()
    originals = {sample.tobytes(): number for number, sample in enumerate(augmenter.source_.data.X)}
    held, sizes = [], []

    def look(X_train: Any, y_train: Any, X_test: Any) -> Any:
        kept = [originals[x.tobytes()] for x in X_train if x.tobytes() in originals]
        tested = [originals[x.tobytes()] for x in X_test]
        assert not set(kept) & set(tested)
        held.append(tested)
        sizes.append((len(kept), len(X_train)))
        return nearest(X_train, y_train, X_test)

    augmenter.judge(look, strengths=[0.7], copies=4)
    assert all(n_all in (n_kept, 5 * n_kept) for n_kept, n_all in sizes)
    assert sorted(np.concatenate(held[::2])) == list(range(len(augmenter.source_.data.X)))


def test_strengths_that_cannot_win_stop() -> None:
    calls: list[int] = []

    def hates_strong_warps(X_train: Any, y_train: Any, X_test: Any) -> Any:
        calls.append(len(X_train))
        right = nearest(X_train, y_train, X_test)
        spread = X_train[39:].std() if len(X_train) > 39 else 0.0
        return right if spread == 0.0 or len(calls) % 3 != 0 else np.full(len(X_test), right[0])

    judgement = fitted().judge(hates_strong_warps, strengths=[0.5, 1.0])
    assert len(calls) < 15
    assert judgement.errors[1.0] > judgement.errors[0.5] + 0.2
    assert judgement.strength in (0.0, 0.5)


def test_warping_uses_no_more_threads_than_allowed(monkeypatch: Any) -> None:
    asked: list[Any] = []
    augmenter, image = copy.copy(fitted()), dw.Warp.image
    augmenter.n_threads = 1

    def watch(self: Any, *args: Any, **options: Any) -> Any:
        asked.append(options.get("n_threads"))
        return image(self, *args, **options)

    monkeypatch.setattr(dw.Warp, "image", watch)
    augmenter.judge(nearest, strengths=[1.0], copies=1)
    assert asked and set(asked) == {1}


def test_pipelines_are_named_by_their_steps_and_left_as_they_are() -> None:
    pipeline = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis())
    verdict = fitted().judge(pipeline, strengths=[1.0]).verdict
    assert "StandardScaler + LinearDiscriminantAnalysis makes no error on 48" in str(verdict)
    assert not hasattr(pipeline[-1], "classes_")


def test_the_nearest_neighbour_stays_the_default() -> None:
    assert "error of a nearest-neighbour classifier on" in str(
        fitted().judge(strengths=[1.0]).verdict
    )
    with pytest.raises(ValueError, match="`copies` must be None"):
        fitted().judge(copies=3)


# -- what can't be judged


class Failing(KNeighborsClassifier):
    def predict(self, X: Any) -> Any:
        raise ZeroDivisionError("no luck")


def test_an_estimator_that_fails_says_where() -> None:
    with pytest.raises(RuntimeError, match=r"Failing failed at strength 0 in fold 1 of 5") as info:
        fitted().judge(Failing(1))
    assert isinstance(info.value.__cause__, ZeroDivisionError)
    assert "no luck" in str(info.value)


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda X, y, Z: y[: len(Z) - 1], r"shape \(10,\), got \(9,\) at strength 0"),
        (lambda X, y, Z: np.ones((len(Z), 4)), r"got \(10, 4\)"),
        (lambda X, y, Z: None, r"got \(\)"),
        (lambda X, y, Z: np.full(len(Z), "elm"), "labels of `y`, such as 'ash', got .*elm"),
        (lambda X, y, Z: np.zeros(len(Z)), "labels of `y`, such as 'ash', got .*0.0"),
    ],
)
def test_predictions_are_checked(predict: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fitted().judge(predict)


def test_a_regressor_is_no_classifier() -> None:
    X, y = textures(8, 0)
    augmenter = dw.Augmenter(cells=(3, 3), strength=1.0, progress=False).fit(X, y)
    with pytest.raises(ValueError, match="not a regressor"):
        augmenter.judge(Ridge())


@pytest.mark.parametrize("estimator", [KNeighborsClassifier, 3, "svm"])
def test_what_is_no_estimator_is_refused(estimator: Any) -> None:
    with pytest.raises(TypeError, match="`estimator` must be"):
        fitted().judge(estimator)


@pytest.mark.parametrize("copies", [0, -1, 1.5, True])
def test_copies_are_checked(copies: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="`copies`"):
        fitted().judge(nearest, copies=copies)


@pytest.mark.filterwarnings("ignore:1 of 2 classes have a single sample:UserWarning")
@pytest.mark.filterwarnings("ignore:classes with fewer than 5 pairs:RuntimeWarning")
def test_one_class_and_few_samples_are_refused() -> None:
    X, y = textures(8, 0)
    alone = dw.Augmenter(cells=(3, 3), strength=1.0, progress=False).fit(X[y == 0], y[y == 0])
    with pytest.raises(ValueError, match="at least two classes"):
        alone.judge(nearest)
    few = dw.Augmenter(cells=(3, 3), strength=1.0, progress=False).fit(X[:5], [0, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="enough samples to learn warps from"):
        few.judge(nearest)


def test_an_interrupted_judgement_leaves_the_augmenter_as_it_was() -> None:
    augmenter = fitted()
    before = dict(augmenter.__dict__)

    def interrupt(X_train: Any, y_train: Any, X_test: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        augmenter.judge(interrupt)
    assert augmenter.__dict__ == before
