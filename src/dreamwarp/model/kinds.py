"""The kinds of model, their amounts, and how a class is fitted by each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from dreamwarp.model.gaussian import Array, Gaussian, Integers, Shapes
from dreamwarp.model.kde import KernelDensity
from dreamwarp.model.labels import Label
from dreamwarp.model.moments import Pairs, Rule
from dreamwarp.model.selection import choose, make_folds, thin_out
from dreamwarp.model.template import TemplateMixture

KINDS = ("gaussian", "kde", "template")
DISTRIBUTIONS: dict[str, type[Any]] = {
    cls.kind: cls for cls in (Gaussian, KernelDensity, TemplateMixture)
}

# What "auto" tries, the first where nothing can be held out.
BANDWIDTHS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
CLASS_PAIRS = (7.0, 1.0, 2.0, 4.0, 12.0, 25.0, 100.0)
DRIFTS = (0.0, 0.25, 0.5, 0.75, 1.0)


class Distribution(Protocol):
    """A distribution of θ for one class."""

    @property
    def kind(self) -> str:
        """Which of ``DISTRIBUTIONS``."""

    shapes: ClassVar[Shapes]
    scalars: ClassVar[tuple[str, ...]]

    @property
    def covariance(self) -> Array:
        """(d, d)."""

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d), each for its template (n,), where those matter: (n,)."""

    def draw(
        self,
        key: int,
        numbers: Integers,
        rows: Integers,
        templates: Integers,
        out: Array,
        n_threads: int | None,
    ) -> None:
        """Put θ of sample ``numbers[t]``, for ``templates[t]``, into ``out[rows[t]]``."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds of it, with the shapes of ``shapes``."""

    def parameters(self) -> dict[str, float]:
        """Single numbers that go with the arrays."""


@dataclass(frozen=True)
class Amounts:
    """What a kind of model is to be fitted with; None: to be chosen.

    Attributes
    ----------
    kind : {"gaussian", "kde", "template"}
    bandwidth : float, for "kde"
    class_pairs, drift : float, for "template"
    """

    kind: str
    bandwidth: float | None = None
    class_pairs: float | None = None
    drift: float | None = None


def fit_class(pairs: Pairs, covariance: Array, amounts: Amounts) -> Distribution:
    """The distribution of a class, from its pairs and the covariance estimated for it."""
    if amounts.kind == "kde":
        assert amounts.bandwidth is not None
        return KernelDensity.fit(pairs.theta, pairs.weights, covariance, amounts.bandwidth)
    if amounts.kind == "gaussian":
        return Gaussian.from_covariance(covariance)
    assert pairs.edges is not None
    assert amounts.class_pairs is not None and amounts.drift is not None
    noise = Gaussian.from_covariance(covariance)
    return TemplateMixture(
        noise, noise, pairs.theta, pairs.edges, pairs.weights,
        amounts.class_pairs, amounts.drift,
    )  # fmt: skip


def choose_amounts(
    classes: Mapping[Label, Pairs], rule: Rule, amounts: Amounts, dim: int
) -> Amounts:
    """The amounts that were left to be chosen, by held-out likelihood."""
    few = thin_out(classes, dim)
    by_sample = amounts.kind != "template" and all(p.edges is not None for p in few.values())
    for given in _grids(amounts):
        if len(given) > 1:
            folds = make_folds(few, by_sample=by_sample)
            candidates = [replace(amounts, **values) for values in given]
            amounts = choose(folds, rule, candidates, fit_class)
        elif given:
            amounts = replace(amounts, **given[0])
    return amounts


def _grids(amounts: Amounts) -> list[list[dict[str, Any]]]:
    """Values to try, one list after the other."""
    if amounts.kind == "kde" and amounts.bandwidth is None:
        return [[{"bandwidth": bandwidth} for bandwidth in BANDWIDTHS]]
    if amounts.kind == "template":
        # The share first, without drift; then the drift.
        drift = 0.0 if amounts.drift is None else amounts.drift
        pairs = CLASS_PAIRS if amounts.class_pairs is None else (amounts.class_pairs,)
        drifts = DRIFTS if amounts.drift is None else (drift,)
        return [
            [{"class_pairs": n, "drift": drift} for n in pairs],
            [{"drift": value} for value in drifts],
        ]
    return []
