"""Which kind of model fits best: the likelihood of pairs that were held out, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from dreamwarp.core.validation import check_whole, warn_user
from dreamwarp.model.fitting import Recipe, check_amounts, check_enough, fit_by
from dreamwarp.model.gaussian import Array
from dreamwarp.model.kinds import choose_amounts
from dreamwarp.model.labels import Label
from dreamwarp.model.moments import FORMULAS, check_pairs, check_share
from dreamwarp.model.selection import Fold, choose_rule, held_out_log_prob, make_folds
from dreamwarp.space import WarpSpace


@dataclass(frozen=True)
class HeldOut:
    """Held-out log-likelihood of kinds of model, in nats per pair.

    Attributes
    ----------
    by_class : dict of kind to dict of label to float
        NaN for a class of which no pair could be held out.
    mean : dict of kind to float
        Over the pairs of all classes.
    difference : dict of kind to (float, float)
        Mean and standard error, over the folds, of the difference to the first kind.
    n_pairs : dict of label to int
        Pairs that were tested.
    """

    by_class: dict[str, dict[Label, float]]
    mean: dict[str, float]
    difference: dict[str, tuple[float, float]]
    n_pairs: dict[Label, int]

    def __str__(self) -> str:
        kinds = list(self.mean)
        rows = [["class", "pairs", *kinds]]
        for label, n in self.n_pairs.items():
            values = (self.by_class[kind][label] for kind in kinds)
            rows.append([str(label), str(n), *(f"{value:.2f}" for value in values)])
        total = str(sum(self.n_pairs.values()))
        rows.append(["all", total, *(f"{self.mean[kind]:.2f}" for kind in kinds)])
        gains = (f"{gain:+.2f} ± {error:.2f}" for gain, error in self.difference.values())
        rows.append(["gain", "", *gains])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ([cell.rjust(w) for cell, w in zip(row, widths, strict=True)] for row in rows)
        return "\n".join("  ".join(line).rstrip() for line in lines)


def held_out_log_likelihood(
    space: WarpSpace,
    theta_by_class: Mapping[Any, ArrayLike],
    *,
    kinds: Sequence[str] = ("gaussian", "kde"),
    weights: Mapping[Any, ArrayLike] | None = None,
    edges: Mapping[Any, ArrayLike] | None = None,
    shrinkage: float | str = "auto",
    pooling: float | str = "auto",
    n_folds: int = 5,
) -> HeldOut:
    """Compare kinds of model on pairs that they were not fitted to.

    All amounts are chosen anew within each fold, on the pairs that it trains on.

    Parameters
    ----------
    space, theta_by_class, weights, edges, shrinkage, pooling
        As for :meth:`WarpModel.fit`.
    kinds : sequence of {"gaussian", "kde", "template"}
        ``"template"`` needs ``edges``. It can only be tested on samples of which it has seen other
        pairs, so with it among the kinds all are tested on single pairs held out. Without it, and
        with ``edges``, whole samples are.
    n_folds : int
    """
    if isinstance(kinds, str) or not len(kinds):
        raise ValueError(
            f'`kinds` must be a list of at least one kind, such as ["gaussian"], got {kinds!r}.'
        )
    for kind in kinds:
        check_amounts(kind, "auto", "auto", "auto")
    if "template" in kinds and edges is None:
        raise ValueError(
            'kind "template" needs `edges`, the samples that each pair joins. '
            "Give them, or leave it out."
        )
    n_folds = check_whole("n_folds", n_folds, 2)
    shrinkage = check_share("shrinkage", shrinkage, others=("auto", *FORMULAS))
    pooling = check_share("pooling", pooling, others=("auto",))
    classes = check_pairs(space, theta_by_class, weights, edges)
    by_sample = edges is not None and "template" not in kinds
    folds = make_folds(classes, by_sample=by_sample, n_folds=n_folds)
    with threadpool_limits(1):  # small matrices: threads would only wait for each other
        scores = [_score(fold, kinds, shrinkage, pooling, space.dim) for fold in folds]
    table = _tabulate(kinds, folds, scores)
    if not any(table.n_pairs.values()):
        warn_user(
            "no pair could be held out, so there is nothing to compare by. Give more pairs, or "
            "fewer `n_folds`; with `edges`, pairs whose samples are both held out are tested.",
            RuntimeWarning,
        )
    return table


def _score(
    fold: Fold, kinds: Sequence[str], shrinkage: float | str, pooling: float | str, dim: int
) -> dict[str, dict[Label, Array]]:
    """Log density of every pair that a fold tests, by kind and class."""
    check_enough(fold.train, 1)
    rule = choose_rule(fold.train, shrinkage, pooling, dim)
    scores = {}
    for kind in kinds:
        unsettled = check_amounts(kind, "auto", "auto", "auto")
        amounts = choose_amounts(fold.train, rule, unsettled, dim)
        fitted = fit_by(fold.train, Recipe(rule, amounts, 1))
        scores[kind] = {
            label: held_out_log_prob(fitted.distributions[label], test)
            for label, test in fold.test.items()
        }
    return scores


def _tabulate(
    kinds: Sequence[str], folds: Sequence[Fold], scores: Sequence[dict[str, dict[Label, Array]]]
) -> HeldOut:
    labels = list(folds[0].test)
    weights = {
        (f, label): pairs.weights
        for f, fold in enumerate(folds)
        for label, pairs in fold.test.items()
    }

    def mean(kind: str, some_folds: Sequence[int], some_labels: Sequence[Label]) -> float:
        cells = [(f, label) for f in some_folds for label in some_labels]
        every = np.concatenate([weights[cell] for cell in cells])
        values = np.concatenate([scores[f][kind][label] for f, label in cells])
        return float(every @ values / every.sum()) if len(every) else np.nan

    all_folds = range(len(folds))
    by_fold = {kind: np.array([mean(kind, [f], labels) for f in all_folds]) for kind in kinds}
    return HeldOut(
        {kind: {label: mean(kind, all_folds, [label]) for label in labels} for kind in kinds},
        {kind: mean(kind, all_folds, labels) for kind in kinds},
        {kind: _mean_and_error(by_fold[kind] - by_fold[kinds[0]]) for kind in kinds},
        {label: sum(len(weights[f, label]) for f in all_folds) for label in labels},
    )


def _mean_and_error(values: Array) -> tuple[float, float]:
    """Mean and standard error; folds that tested nothing left out."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return (float(known.mean()) if len(known) else np.nan), np.nan
    return float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known)))
