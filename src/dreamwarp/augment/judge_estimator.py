"""Choose the strength of warps by cross-validation of a given classifier.

Folds are made by ``dreamwarp.augment.folds``. The classifier is trained on the other
samples and warped copies of them, once per strength and fold, and predicts the held-out samples.
All strengths use the same draws, scaled. After each fold, strengths that are worse than the best by
two standard errors are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dreamwarp.augment.folds import choose_some, fit_folds
from dreamwarp.augment.race import Errors, are_as_good, run_race
from dreamwarp.augment.source import SampleSource
from dreamwarp.augment.training_pairs import TrainingPairs
from dreamwarp.augment.verdict import Judgement, Setup, conclude
from dreamwarp.core.progress import ProgressOption
from dreamwarp.core.validation import check_integer

Array = NDArray[Any]
# (X_train, y_train, X_test) -> predictions.
Predictor = Callable[[Array, Array, Array], Any]

# Used unless `copies` is given: largest number of training samples, and approximate number of rows
# to train on.
MOST_OTHERS, N_ROWS = 2000, 8000
# Likewise: smallest and largest number of copies per sample.
MIN_COPIES, MAX_COPIES = 3, 10
# A strength is dropped if it is worse by more standard errors than this.
HOPELESS = 2.0


def judge_estimator(
    estimator: Any,
    pairs: TrainingPairs,
    source: SampleSource,
    y: Array,
    sample_shape: tuple[int, ...],
    *,
    strengths: Sequence[float] | None = None,
    copies: int | None = None,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> Judgement:
    """Compare strengths by the errors of a classifier on held-out samples.

    ``source`` has the training samples; ``y`` (n,) and ``sample_shape`` are their labels and shape
    as given to ``Augmenter.fit``. Options as for :meth:`dreamwarp.Augmenter.judge`.
    """
    name, takes_rows, predictor = as_predictor(estimator)
    n_copies = None if copies is None else check_integer("copies", copies, 1)
    folds = _make_folds(pairs, source, n_copies, n_threads)
    shape = (-1,) if takes_rows else sample_shape
    judge = _EstimatorJudge(name, predictor, source, y, shape, folds, n_threads)
    race = run_race(judge.take_round, judge.may_win, len(folds), strengths, progress)
    n_others = max(len(np.unique(fold.templates)) for fold in folds)
    n_copies = len(folds[0].theta) // len(np.unique(folds[0].templates))
    return conclude(race, Setup((n_copies,), n_others, len(y), judge=name, is_smooth=False))


def as_predictor(estimator: Any) -> tuple[str, bool, Predictor]:
    """Name of an estimator, whether it takes rows, and a function that trains and predicts."""
    if isinstance(estimator, type):
        raise TypeError(
            f"`estimator` must be an estimator, got the class {estimator.__name__}. Use "
            f"`{estimator.__name__}()`."
        )
    if hasattr(estimator, "fit") and hasattr(estimator, "predict"):
        clone(estimator)  # raises TypeError if that is not possible

        def fit_and_predict(X_train: Array, y_train: Array, X_test: Array) -> Any:
            return clone(estimator).fit(X_train, y_train).predict(X_test)

        # A pipeline is named by the types of its steps.
        steps = getattr(estimator, "steps", None)
        named = [step for _, step in steps] if isinstance(steps, list) else [estimator]
        return " + ".join(type(each).__name__ for each in named), True, fit_and_predict
    if not callable(estimator):
        raise TypeError(
            "`estimator` must be a classifier of scikit-learn, or a callable (X_train, y_train, "
            f"X_test) -> predictions, got {type(estimator).__name__}."
        )
    return getattr(estimator, "__name__", type(estimator).__name__), False, estimator


class _Fold(NamedTuple):
    """Indices of the samples to warp (k,), their θ (k, d), and a mask (n,) of held-out samples."""

    templates: NDArray[np.int64]
    theta: NDArray[np.float64]
    held_out: NDArray[np.bool_]


def _make_folds(
    pairs: TrainingPairs, source: SampleSource, copies: int | None, n_threads: int | None
) -> list[_Fold]:
    codes, seed, classes = source.codes, source.key, np.array(list(pairs.pairs_by_class))
    if len(classes) < 2:
        raise ValueError(
            "judging an estimator needs at least two classes, got one. Fit the "
            "augmenter to samples of all classes."
        )
    folds = []
    for held_out, model in fit_folds(pairs, source.data.X, codes, seed):
        n_most = MOST_OTHERS if copies is None else len(codes)
        kept = choose_some(codes, ~held_out, n_most, seed)
        n_copies = copies or int(np.clip(N_ROWS // len(kept) - 1, MIN_COPIES, MAX_COPIES))
        templates = np.tile(kept, n_copies)
        theta = model.draw(
            classes[codes[templates]], np.arange(len(templates)), seed=seed,
            templates=templates, n_threads=n_threads,
        )  # fmt: skip
        folds.append(_Fold(templates, theta, held_out))
    if not folds:
        raise ValueError(
            "`X` must have enough samples to learn warps from after some are held out, got "
            f"{len(codes)} of {len(classes)} classes. Fit the augmenter to more samples."
        )
    return folds


@dataclass(frozen=True, eq=False)
class _EstimatorJudge:
    """Rounds are folds; ``wrong`` holds the 0-1 errors so far by strength."""

    name: str
    predictor: Predictor
    source: SampleSource
    y: Array
    shape: tuple[int, ...]
    folds: list[_Fold]
    n_threads: int | None
    wrong: dict[float, NDArray[np.float64]] = field(default_factory=dict)

    def take_round(self, number: int, strengths: Sequence[float]) -> Iterator[tuple[float, Errors]]:
        for strength in strengths:
            found = self._find_wrong(number, strength)
            wrong = np.append(self.wrong.get(strength, found[:0]), found)
            self.wrong[strength] = wrong
            yield strength, Errors(wrong, wrong)

    def may_win(self, errors: dict[float, Errors]) -> list[float]:
        """Strength 0, and strengths within ``HOPELESS`` standard errors of the best above 0."""
        above = [strength for strength in errors if strength > 0.0]
        wrong = np.stack([errors[strength].wrong for strength in above])
        near = are_as_good(wrong, int(wrong.mean(axis=1).argmin()), HOPELESS)
        good = {strength for strength, is_near in zip(above, near, strict=True) if is_near}
        return [strength for strength in errors if strength == 0.0 or strength in good]

    def _find_wrong(self, number: int, strength: float) -> NDArray[np.float64]:
        """0-1 error of each held-out sample of a fold (m,)."""
        fold, images, y = self.folds[number], self.source.data.X, self.y
        kept = np.unique(fold.templates)
        X_train, y_train = images[kept], y[kept]
        if strength > 0.0:
            warped = self.source.apply(
                strength * fold.theta, images[fold.templates], n_threads=self.n_threads
            )
            X_train = np.concatenate((X_train, warped))
            y_train = np.concatenate((y_train, y[fold.templates]))
        X_test, y_test = images[fold.held_out], y[fold.held_out]
        where = f"at strength {strength:g} in fold {number + 1} of {len(self.folds)}"
        try:
            predictions = self.predictor(
                X_train.reshape(len(X_train), *self.shape), y_train,
                X_test.reshape(len(X_test), *self.shape),
            )  # fmt: skip
        except Exception as error:
            raise RuntimeError(
                f"{self.name} failed {where}, with {type(error).__name__}: {error}"
            ) from error
        return (self._check(predictions, len(y_test), where) != y_test).astype(np.float64)

    def _check(self, predictions: Any, n: int, where: str) -> Array:
        """Return predictions as an array of labels (n,); raise if any is not a known label."""
        labels, known = np.asarray(predictions), np.unique(self.y)
        if labels.shape != (n,):
            raise ValueError(
                f"{self.name} must predict a label for each of {n} samples, shape ({n},), got "
                f"{labels.shape} {where}. Turn probabilities into labels first."
            )
        # Strings never match numbers, but numpy would compare numbers as strings.
        are_words = labels.dtype.kind == "U", known.dtype.kind == "U"
        if labels.dtype.kind == "O" or are_words[0] == are_words[1]:
            strange = ~np.isin(labels, known)
        else:
            strange = np.ones(n, np.bool_)
        if strange.any():
            raise ValueError(
                f"{self.name} must predict labels of `y`, such as {known[0].item()!r}, got "
                f"{labels[strange][0]!r} {where}. Give a classifier, not a regressor."
            )
        return labels
