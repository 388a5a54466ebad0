"""Second moments of warps: of a class, shrunk, and drawn toward those of all classes.

Each pair is given once, as θ; seen from its other end it is -θ. Over both directions the mean is
therefore zero (the lemma of the paper: the identity is an intrinsic mean), and the covariance
Σ_y = (1 / N_y) Σ θθᵀ is the same over either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.labels import Label, check_label
from dreamwarp.core.validation import as_finite_array
from dreamwarp.model.gaussian import Array, Integers
from dreamwarp.model.labels import check_classes
from dreamwarp.space import WarpSpace

FORMULAS = ("oas", "ledoit-wolf")


@dataclass(frozen=True, eq=False)
class Spread:
    """How uncertain the θ of pairs are: posterior covariances F V Fᵀ + C.

    Attributes
    ----------
    covariances : (n_pairs, r, r), float32
        V.
    frame : (d, r)
        F.
    rest : (d, d)
        C, the same for all pairs.
    """

    covariances: NDArray[np.float32]
    frame: Array
    rest: Array

    def only(self, chosen: Any) -> Spread:
        """That of some of the pairs."""
        return Spread(self.covariances[chosen], self.frame, self.rest)

    def mean(self, weights: Array) -> Array:
        """Weighted mean of the covariances of θ: (d, d)."""
        total = np.einsum("n,nij->ij", weights, self.covariances, dtype=np.float64)
        return self.frame @ (total / weights.sum()) @ self.frame.T + self.rest


@dataclass(frozen=True, eq=False)
class Pairs:
    """The aligned pairs of a class.

    Attributes
    ----------
    theta : (n_pairs, d)
        In one direction each.
    weights : (n_pairs,)
        Positive.
    edges : (n_pairs, 2) int64 or None
        The samples that each joins: from the first to the second.
    spread : Spread or None
        Where θ are posterior means: their covariances.
    """

    theta: Array
    weights: Array
    edges: Integers | None = None
    spread: Spread | None = None

    def __len__(self) -> int:
        return len(self.theta)

    def only(self, chosen: Any) -> Pairs:
        """Some of the pairs."""
        edges = None if self.edges is None else self.edges[chosen]
        spread = None if self.spread is None else self.spread.only(chosen)
        return Pairs(self.theta[chosen], self.weights[chosen], edges, spread)

    @property
    def effective_number(self) -> float:
        """Kish's number of equal weights that would tell as much; the number of pairs if equal."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum()) if len(self) else 0.0

    @cached_property
    def even_theta(self) -> Array:
        """θ scaled so that plain means over pairs are weighted means."""
        return self.theta * np.sqrt(self.weights / self.weights.mean())[:, None]


@dataclass(frozen=True)
class Rule:
    """How a class covariance is made of second moments.

    Attributes
    ----------
    shrinkage : float, "oas" or "ledoit-wolf"
        Share of the isotropic covariance of the same trace, or the formula that sets it.
    pooling : float or None
        Share of the covariance of all classes, for every class alike.
    prior_pairs : float
        Where ``pooling`` is None: the covariance of all classes counts as this many pairs, so that
        its share is prior_pairs / (prior_pairs + n_pairs).
    smooth : (d, d) or None
        A covariance that the one of all classes is drawn toward.
    smooth_pairs : float
        The pairs that it counts as.
    """

    shrinkage: float | str
    pooling: float | None = None
    prior_pairs: float = 0.0
    smooth: Array | None = None
    smooth_pairs: float = 0.0

    def pooling_of(self, n_pairs: float) -> float:
        """Share of the covariance of all classes for a class of this many pairs."""
        if self.pooling is not None:
            return self.pooling if n_pairs > 0.0 else 1.0
        if n_pairs == 0.0 or np.isinf(self.prior_pairs):
            return 1.0
        return self.prior_pairs / (self.prior_pairs + n_pairs)


def second_moment(pairs: Pairs) -> Array:
    """Weighted mean of θθᵀ, or of its posterior mean: (d, d)."""
    theta = pairs.even_theta
    moment = theta.T @ theta / len(theta)
    if pairs.spread is not None:
        moment += pairs.spread.mean(pairs.weights)
    return (moment + moment.T) / 2.0


def shrinkage_of(pairs: Pairs, shrinkage: float | str) -> float:
    """The share of the isotropic covariance, from 0 to 1."""
    if not isinstance(shrinkage, str):
        return shrinkage
    if not pairs.theta.any():
        return 0.0
    from sklearn.covariance import ledoit_wolf_shrinkage, oas

    # One pair says nothing about how alike directions are; scikit-learn would divide by zero.
    if len(pairs) == 1:
        return 1.0
    if shrinkage == "oas":
        return float(oas(pairs.even_theta, assume_centered=True)[1])
    return float(ledoit_wolf_shrinkage(pairs.even_theta, assume_centered=True))


def shrink(moment: Array, share: float) -> Array:
    """(1 - share) moment + share (tr moment / d) I."""
    return (1.0 - share) * moment + share * np.trace(moment) / len(moment) * np.eye(len(moment))


def own_covariance(pairs: Pairs, shrinkage: float | str) -> tuple[Array, float]:
    """Shrunk second moment (d, d) of pairs, and the shrinkage that went into it."""
    share = shrinkage_of(pairs, shrinkage)
    return shrink(second_moment(pairs), share), share


def blend(own: Array, pool: Array, pooling: float) -> Array:
    """(1 - pooling) own + pooling pool."""
    return (1.0 - pooling) * own + pooling * pool


def pool_covariance(classes: Mapping[Label, Pairs], rule: Rule) -> Array:
    """Covariance (d, d) of the pairs of all classes."""
    if rule.smooth is None:
        return own_covariance(join(classes), rule.shrinkage)[0]
    n_pairs = [float(pairs.weights.sum()) for pairs in classes.values()]
    moments = [second_moment(pairs) for pairs in classes.values() if len(pairs)]
    pool = np.average(moments, axis=0, weights=[n for n in n_pairs if n > 0.0])
    return blend(pool, rule.smooth, rule.smooth_pairs / (rule.smooth_pairs + sum(n_pairs)))


def class_covariance(pairs: Pairs, pool: Array, rule: Rule) -> tuple[Array, float, float]:
    """Covariance (d, d) of a class, and the shrinkage and pooling that went into it."""
    pooling = rule.pooling_of(pairs.effective_number)
    if pooling == 1.0:
        return pool, 0.0, 1.0
    own, share = own_covariance(pairs, rule.shrinkage)
    return blend(own, pool, pooling), share, pooling


def join(classes: Mapping[Label, Pairs]) -> Pairs:
    """The pairs of all classes."""
    parts = list(classes.values())
    return Pairs(
        np.concatenate([part.theta for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )


def alignment_weights(loss_before: ArrayLike, loss_after: ArrayLike) -> Array:
    """Weights (n,) that discount pairs whose alignment left much unexplained.

    With r = loss after / loss before, w = 1 / (1 + (r / 2m)²), where m is the median of r: 0.8 for
    the middle pair, and ever less for pairs that no warp can align, such as those that differ in
    topology. A pair that was alike before has r = 0.

    Parameters
    ----------
    loss_before, loss_after : (n,)
        As in the result of ``align_pairs``.
    """
    before = as_finite_array("loss_before", loss_before)
    after = as_finite_array("loss_after", loss_after)
    if before.ndim != 1 or before.shape != after.shape:
        raise ValueError(
            "`loss_before` and `loss_after` must both have shape (n,), got "
            f"{before.shape} and {after.shape}."
        )
    if np.min([before, after], initial=0.0) < 0.0:
        raise ValueError("`loss_before` and `loss_after` must not be negative.")
    ratio = np.divide(after, before, out=np.zeros_like(after), where=before > 0.0)
    middle = float(np.median(ratio)) if len(ratio) else 0.0
    if middle == 0.0:
        return np.ones_like(ratio)
    return 1.0 / (1.0 + (ratio / (2.0 * middle)) ** 2)


# -- checks


def check_pairs(
    space: WarpSpace,
    theta_by_class: Mapping[Any, ArrayLike],
    weights: Mapping[Any, ArrayLike] | None,
    edges: Mapping[Any, ArrayLike] | None,
) -> dict[Label, Pairs]:
    """What :meth:`WarpModel.fit` is given, checked; pairs of weight 0 left out."""
    if not isinstance(theta_by_class, Mapping):
        raise TypeError(
            "`theta_by_class` must be a mapping from labels to arrays of θ, got "
            f"{type(theta_by_class).__name__}."
        )
    classes = check_classes(theta_by_class)
    own_weights = _check_keys("weights", weights, classes)
    own_edges = _check_keys("edges", edges, classes)
    return {
        label: _check_class(space, label, theta, own_weights.get(label), own_edges.get(label))
        for label, theta in zip(classes, theta_by_class.values(), strict=True)
    }


def _check_keys(
    name: str, given: Mapping[Any, ArrayLike] | None, classes: tuple[Label, ...]
) -> dict[Label, ArrayLike]:
    values = {} if given is None else {check_label(key): value for key, value in given.items()}
    if given is not None and set(values) != set(classes):
        odd = sorted(map(repr, set(values) ^ set(classes)))
        raise ValueError(
            f"`{name}` must have the labels of `theta_by_class`; {', '.join(odd)} is in one only."
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
    given = np.ones(len(values)) if weights is None else as_finite_array("weights", weights)
    if given.shape != (len(values),) or given.min(initial=0.0) < 0.0:
        raise ValueError(
            f"`weights[{label!r}]` must be {len(values)} numbers, none negative, one for each "
            f"pair, got shape {given.shape} and smallest {given.min(initial=0.0):g}."
        )
    joined = None if edges is None else _check_edges(label, edges, len(values))
    return Pairs(values, given, joined).only(given > 0.0)


def _check_edges(label: Label, edges: ArrayLike, n_pairs: int) -> Integers:
    values = np.asarray(edges)
    if values.shape != (n_pairs, 2) or (values.size and values.dtype.kind not in "iu"):
        raise ValueError(
            f"`edges[{label!r}]` must be whole numbers of shape ({n_pairs}, 2), the two samples of "
            f"each pair, got {values.dtype} of shape {values.shape}."
        )
    if values.min(initial=0) < 0:
        raise ValueError(
            f"`edges[{label!r}]` must hold sample indices, not negative, got {values.min()}."
        )
    return values.astype(np.int64)


def check_share(name: str, value: Any, *, others: tuple[str, ...]) -> float | str:
    """A number from 0 to 1, or one of the given words."""
    if isinstance(value, str) and value in others:
        return value
    if not isinstance(value, Real) or isinstance(value, bool) or not 0.0 <= float(value) <= 1.0:
        words = " or ".join(f'"{word}"' for word in others)
        raise ValueError(f"`{name}` must be a number from 0 to 1, or {words}, got {value!r}.")
    return float(value)
