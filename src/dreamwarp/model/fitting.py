"""From aligned pairs to the distributions of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from dreamwarp.core.validation import check_choice, check_whole, warn_user
from dreamwarp.model.gaussian import Gaussian
from dreamwarp.model.kinds import (
    KINDS,
    Amounts,
    Distribution,
    choose_amounts,
    fit_class,
)
from dreamwarp.model.labels import Label
from dreamwarp.model.moments import (
    FORMULAS,
    Pairs,
    Rule,
    check_pairs,
    check_share,
    class_covariance,
    pool_covariance,
)
from dreamwarp.model.selection import choose_rule
from dreamwarp.model.template import TemplateMixture
from dreamwarp.space import WarpSpace


@dataclass(frozen=True)
class ClassFit:
    """How the distribution of a class came about.

    Attributes
    ----------
    n_pairs : int
        Pairs of weight above 0.
    shrinkage : float
        Share of the isotropic covariance in that of the class.
    pooling : float
        Share of the covariance of all classes; 1 for a class that fell back to it.
    fell_back : bool
        Whether there were too few pairs, so that the class has the warps of all classes.
    """

    n_pairs: int
    shrinkage: float
    pooling: float
    fell_back: bool


class Fitted(NamedTuple):
    """Parts of a model; see there."""

    distributions: dict[Label, Distribution]
    pooled: Gaussian
    fits: dict[Label, ClassFit]
    settings: dict[str, Any]

    def with_general(self, other: Fitted) -> Fitted:
        """With the Gaussians of other pairs for samples that are no templates."""
        distributions: dict[Label, Distribution] = {}
        for label, own in self.distributions.items():
            general = other.distributions[label]
            assert isinstance(general, Gaussian)
            distributions[label] = (
                replace(own, general=general) if isinstance(own, TemplateMixture) else other.pooled
            )
        return self._replace(distributions=distributions, pooled=other.pooled)


@dataclass(frozen=True)
class Recipe:
    """How distributions are made of pairs, with every amount settled.

    Attributes
    ----------
    rule : Rule
    amounts : Amounts
    min_pairs : int
        A class of fewer gets the distribution of all classes.
    """

    rule: Rule
    amounts: Amounts
    min_pairs: int


def fit_distributions(
    space: WarpSpace,
    theta_by_class: Mapping[Any, ArrayLike],
    *,
    kind: str,
    shrinkage: float | str,
    pooling: float | str,
    weights: Mapping[Any, ArrayLike] | None,
    edges: Mapping[Any, ArrayLike] | None,
    min_pairs: int,
    bandwidth: float | str,
    class_pairs: float | str,
    drift: float | str,
) -> Fitted:
    """What :meth:`WarpModel.fit` does; see there."""
    shrinkage = check_share("shrinkage", shrinkage, others=("auto", *FORMULAS))
    pooling = check_share("pooling", pooling, others=("auto",))
    amounts = check_amounts(kind, bandwidth, class_pairs, drift)
    if kind == "template" and edges is None:
        raise ValueError(
            'kind="template" needs `edges`, the samples that each pair joins. '
            "Give them, or choose another kind."
        )
    classes = check_pairs(space, theta_by_class, weights, edges)
    min_pairs = check_whole("min_pairs", min_pairs, 1)
    check_enough(classes, min_pairs)
    recipe = choose_recipe(classes, shrinkage, pooling, amounts, min_pairs, space.dim)
    fitted = fit_by(classes, recipe)
    warn_of_fallbacks(fitted, min_pairs)
    return fitted


def choose_recipe(
    classes: Mapping[Label, Pairs],
    shrinkage: float | str,
    pooling: float | str,
    amounts: Amounts,
    min_pairs: int,
    dim: int,
) -> Recipe:
    """The recipe under which held-out pairs are likeliest."""
    with threadpool_limits(1):  # small matrices: threads would only wait for each other
        rule = choose_rule(classes, shrinkage, pooling, dim)
        return Recipe(rule, choose_amounts(classes, rule, amounts, dim), min_pairs)


def fit_by(classes: Mapping[Label, Pairs], recipe: Recipe) -> Fitted:
    """Every class and the pool, by a recipe."""
    with threadpool_limits(1):
        return _fit_by(classes, recipe.rule, recipe.amounts, recipe.min_pairs)


def _fit_by(classes: Mapping[Label, Pairs], rule: Rule, amounts: Amounts, min_pairs: int) -> Fitted:
    pool = pool_covariance(classes, rule)
    pooled = Gaussian.from_covariance(pool)
    distributions: dict[Label, Distribution] = {}
    fits = {}
    for label, pairs in classes.items():
        if len(pairs) < min_pairs:
            distributions[label] = pooled
            fits[label] = ClassFit(len(pairs), 0.0, 1.0, fell_back=True)
        else:
            covariance, share, pooling = class_covariance(pairs, pool, rule)
            distributions[label] = fit_class(pairs, covariance, amounts)
            fits[label] = ClassFit(len(pairs), share, pooling, fell_back=False)
    return Fitted(distributions, pooled, fits, describe(rule, amounts, min_pairs))


def describe(rule: Rule, amounts: Amounts, min_pairs: int) -> dict[str, Any]:
    """The settings of a model: what does not apply is left out."""
    settings: dict[str, Any] = {"kind": amounts.kind, "shrinkage": rule.shrinkage}
    if rule.pooling is not None:
        settings["pooling"] = rule.pooling
    elif np.isinf(rule.prior_pairs):
        settings["pooling"] = 1.0
    else:
        settings["prior_pairs"] = rule.prior_pairs
    if rule.smooth is not None:
        settings["smooth_pairs"] = rule.smooth_pairs
    for name in ("bandwidth", "class_pairs", "drift"):
        if getattr(amounts, name) is not None:
            settings[name] = getattr(amounts, name)
    settings["min_pairs"] = min_pairs
    return settings


# -- checks


def check_amounts(
    kind: str, bandwidth: float | str, class_pairs: float | str, drift: float | str
) -> Amounts:
    """The amounts of a kind; "auto" becomes None, and so does what the kind has no use for."""
    check_choice("kind", kind, KINDS)
    if kind == "kde":
        return Amounts(kind, bandwidth=_check_positive("bandwidth", bandwidth, 1.0))
    if kind == "template":
        share = check_share("drift", drift, others=("auto",))
        return Amounts(
            kind,
            class_pairs=_check_positive("class_pairs", class_pairs, np.inf),
            drift=None if isinstance(share, str) else share,
        )
    return Amounts(kind)


def _check_positive(name: str, value: float | str, largest: float) -> float | None:
    if isinstance(value, str) and value == "auto":
        return None
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 0.0 < float(value) <= largest or not np.isfinite(float(value)):
        most = f", at most {largest:g}" if np.isfinite(largest) else ""
        raise ValueError(f'`{name}` must be a number above 0{most}, or "auto", got {value!r}.')
    return float(value)


def check_enough(classes: Mapping[Label, Pairs], min_pairs: int) -> None:
    """Raise if there are too few pairs to learn from, or all θ are 0."""
    n_pairs = sum(len(pairs) for pairs in classes.values())
    if n_pairs < min_pairs:
        raise ValueError(
            f"there must be at least {min_pairs} pairs of weight above 0 over all classes, got "
            f"{n_pairs}. Align more pairs, or lower `min_pairs`."
        )
    if not any(pairs.theta.any() for pairs in classes.values()):
        raise ValueError(
            "every θ is zero, so there is no warp to learn. Are the samples of each class alike?"
        )


def warn_of_fallbacks(fitted: Fitted, min_pairs: int) -> None:
    """Name the classes that had too few pairs."""
    fallen = [f"{label!r} ({fit.n_pairs})" for label, fit in fitted.fits.items() if fit.fell_back]
    if fallen:
        warn_user(
            f"classes with fewer than {min_pairs} pairs get the warps of all classes: "
            f"{', '.join(fallen)}.",
            RuntimeWarning,
        )
