"""Aligned pairs of samples, as models are fitted to them.

A pair is given once, as θ; in the other direction it is -θ. Over both directions the mean is zero
(the paper's lemma: the identity is an intrinsic mean), so Σ_y = (1 / N_y) Σ θθᵀ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.labels import Label, check_label
from dreamwarp.core.validation import as_finite_array
from dreamwarp.model.gaussian import Array, Integers
from dreamwarp.model.labels import check_classes
from dreamwarp.space import WarpSpace


@dataclass(frozen=True, eq=False)
class PosteriorCovariances:
    """Posterior covariances of θ for n pairs: F V Fᵀ + C."""

    covariances: NDArray[np.float32]  # (n_pairs, r, r), V
    matrix: Array  # (d, r), F of the frame
    rest: Array  # (d, d), C, the same for all pairs

    def only(self, chosen: Any) -> PosteriorCovariances:
        """Those of some pairs."""
        return PosteriorCovariances(self.covariances[chosen], self.matrix, self.rest)

    def mean(self, weights: Array) -> Array:
        """Weighted mean (d, d)."""
        total = np.einsum("n,nij->ij", weights, self.covariances, dtype=np.float64)
        return self.matrix @ (total / weights.sum()) @ self.matrix.T + self.rest


@dataclass(frozen=True, eq=False)
class Pairs:
    """The aligned pairs of a class."""

    theta: Array  # (n_pairs, d), one direction each
    weights: Array  # (n_pairs,), positive
    edges: Integers | None = None  # (n_pairs, 2): θ aligns the first sample to the second
    posterior: PosteriorCovariances | None = None  # if θ are posterior means

    def __len__(self) -> int:
        return len(self.theta)

    def only(self, chosen: Any) -> Pairs:
        """Some of the pairs."""
        edges = None if self.edges is None else self.edges[chosen]
        posterior = None if self.posterior is None else self.posterior.only(chosen)
        return Pairs(self.theta[chosen], self.weights[chosen], edges, posterior)

    @property
    def effective_number(self) -> float:
        """Kish's effective sample size: the number of pairs if weights are equal."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum()) if len(self) else 0.0

    @cached_property
    def scaled_theta(self) -> Array:
        """θ scaled so that its plain second moment is the weighted one."""
        return self.theta * np.sqrt(self.weights / self.weights.mean())[:, None]

    @cached_property
    def second_moment(self) -> Array:
        """Weighted mean of θθᵀ, or of its posterior expectation: (d, d)."""
        theta = self.scaled_theta
        moment = theta.T @ theta / len(theta)
        if self.posterior is not None:
            moment += self.posterior.mean(self.weights)
        return (moment + moment.T) / 2.0


def join(pairs_by_class: Mapping[Label, Pairs]) -> Pairs:
    """The pairs of all classes, without edges and posterior covariances."""
    parts = list(pairs_by_class.values())
    return Pairs(
        np.concatenate([part.theta for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )


def alignment_weights(loss_before: ArrayLike, loss_after: ArrayLike) -> Array:
    """Weights (n,) that discount poorly aligned pairs.

    w = 1 / (1 + (r / (2 m))²), where r = loss after / loss before and m is the median of r: 0.8 for
    the median pair, less for pairs that no warp aligns, such as those of different topology. A pair
    with no loss before has r = 0.

    Parameters
    ----------
    loss_before, loss_after : (n,)
        From the result of ``align_pairs`` with ``similarity="ssd"``: other losses may be negative.
    """
    before = as_finite_array("loss_before", loss_before)
    after = as_finite_array("loss_after", loss_after)
    if before.ndim != 1 or before.shape != after.shape:
        raise ValueError(
            "`loss_before` and `loss_after` must both have shape (n,), got "
            f"{before.shape} and {after.shape}."
        )
    if np.min([before, after], initial=0.0) < 0.0:
        raise ValueError(
            '`loss_before` and `loss_after` must not be negative. Use those of similarity="ssd".'
        )
    ratio = np.divide(after, before, out=np.zeros_like(after), where=before > 0.0)
    median = float(np.median(ratio)) if len(ratio) else 0.0
    if median == 0.0:
        return np.ones_like(ratio)
    return 1.0 / (1.0 + (ratio / (2.0 * median)) ** 2)


# -- checks


def check_pairs(
    space: WarpSpace,
    theta_by_class: Mapping[Any, ArrayLike],
    weights: Mapping[Any, ArrayLike] | None,
    edges: Mapping[Any, ArrayLike] | None,
) -> dict[Label, Pairs]:
    """Check the input of :meth:`WarpModel.fit`, and drop pairs of weight 0."""
    if not isinstance(theta_by_class, Mapping):
        raise TypeError(
            "`theta_by_class` must be a mapping from labels to arrays of θ, got "
            f"{type(theta_by_class).__name__}."
        )
    classes = check_classes(theta_by_class)
    weights_of = _check_keys("weights", weights, classes)
    edges_of = _check_keys("edges", edges, classes)
    return {
        label: _check_class(space, label, theta, weights_of.get(label), edges_of.get(label))
        for label, theta in zip(classes, theta_by_class.values(), strict=True)
    }


def _check_keys(
    name: str, given: Mapping[Any, ArrayLike] | None, classes: tuple[Label, ...]
) -> dict[Label, ArrayLike]:
    if given is None:
        return {}
    values = {check_label(key): value for key, value in given.items()}
    if set(values) != set(classes):
        odd = sorted(map(repr, set(values) ^ set(classes)))
        raise ValueError(
            f"`{name}` must have the same labels as `theta_by_class`. Labels in only one of them: "
            f"{', '.join(odd)}."
        )
    return values


def _check_class(
    space: WarpSpace,
    label: Label,
    theta: ArrayLike,
    weights: ArrayLike | None,
    edges: ArrayLike | None,
) -> Pairs:
    values = as_finite_array(f"theta_by_class[{label!r}]", theta)
    if values.ndim != 2 or values.shape[1] != space.dim:
        raise ValueError(
            f"`theta_by_class[{label!r}]` must have shape (n_pairs, {space.dim}) for {space!r}, "
            f"got {values.shape}. Use the space the pairs were aligned in."
        )
    n_pairs = len(values)
    w = np.ones(n_pairs) if weights is None else as_finite_array("weights", weights)
    if w.shape != (n_pairs,) or w.min(initial=0.0) < 0.0:
        raise ValueError(
            f"`weights[{label!r}]` must be {n_pairs} numbers of at least 0, one per pair, got "
            f"shape {w.shape} and smallest {w.min(initial=0.0):g}."
        )
    if edges is None:
        return Pairs(values, w).only(w > 0.0)
    ends = np.asarray(edges)
    if ends.shape != (n_pairs, 2) or (ends.size and ends.dtype.kind not in "iu"):
        raise ValueError(
            f"`edges[{label!r}]` must be integers of shape ({n_pairs}, 2), the two samples of "
            f"each pair, got {ends.dtype} of shape {ends.shape}."
        )
    if ends.min(initial=0) < 0:
        raise ValueError(f"`edges[{label!r}]` must be indices of at least 0, got {ends.min()}.")
    return Pairs(values, w, ends.astype(np.int64)).only(w > 0.0)
