"""WarpModel: per-class distributions over warps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dreamwarp.align.prior import mass_matrix
from dreamwarp.core.compiled import limit_algebra
from dreamwarp.core.draws import Seed, as_key, check_numbers
from dreamwarp.core.labels import Label, check_label
from dreamwarp.core.validation import (
    check_choice,
    check_factor,
    check_fraction,
    check_integer,
    check_positive,
    none_if_auto,
)
from dreamwarp.model.fitting import (
    FORMULAS,
    KINDS,
    ClassFit,
    HyperParameters,
    check_enough,
    fit_classes,
    warn_of_fallbacks,
)
from dreamwarp.model.gaussian import (
    Array,
    Batch,
    Components,
    Gaussian,
    Integers,
    triangular_factor,
)
from dreamwarp.model.labels import USE_NONE, encode, label_key, refuse_unknown
from dreamwarp.model.pairs import check_pairs
from dreamwarp.model.selection import choose_hyperparameters
from dreamwarp.model.settings import check_settings
from dreamwarp.model.strength import NETWORK_STRENGTH
from dreamwarp.space import WarpSpace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["gaussian", "template"]
Unknown = Literal["error", "pool"]

NO_TEMPLATE = -1


class WarpModel:
    """A distribution over warps for each class, p(T | y), in the tangent space at the identity.

    Made by :meth:`fit` or :meth:`load`; immutable. Densities and draws do not include ``strength``,
    which is the recommended factor on draws when warping data.

    Attributes
    ----------
    space : WarpSpace
    classes : tuple of str, int or bool
        The labels, of the type in which they were given.
    fits : dict of label to ClassFit
    settings : dict
        The hyper-parameters that apply, as given or chosen. ``kind``, ``shrinkage``, ``pooling``,
        ``class_pairs``, ``drift``, ``min_pairs``: as in :meth:`fit`. ``pool_pairs``: weight of the
        covariance of all classes (the pool) in that of a class, as a number of pairs; replaces
        ``pooling``. ``smooth_pairs``: weight of the smooth prior in the pool, as a number of pairs.
        ``power``: the product of those given to :meth:`flattened`. A model from an ``Augmenter``
        also has its options ``n_neighbors``, ``method``, ``similarity``, ``sigma``,
        ``displacement``, ``length``, ``max_steps``, ``max_draws``, ``max_pairs``,
        ``pixels_per_cell``, ``strength`` and ``seed``; ``samples``, a fingerprint of the fitted
        samples; ``network_strength``; and ``judgement``, errors by strength and verdict. A model
        that ``dreamwarp fit`` learned from volumes has their ``orientation``. A model from
        a ``ShapeAugmenter`` has its options ``n_neighbors``, ``match``, ``sigma``,
        ``displacement``, ``length`` and ``normalize``, and what it chose, ``learned_sigma`` and
        ``learned_displacement``.
    distributions : tuple of Gaussian
        One per class, in the order of ``classes``.
    pooled : Gaussian
        The distribution for all classes.
    strength : float
        1 unless an ``Augmenter`` or :meth:`with_strength` set it.

    Examples
    --------
    >>> space = WarpSpace((4, 4))
    >>> theta = np.random.default_rng(0).normal(size=(200, space.dim))
    >>> model = WarpModel.fit(space, {"a": theta, "b": 0.1 * theta})
    >>> model.sample(3, "b", seed=0).shape
    (3, 50)
    """

    def __init__(
        self,
        space: WarpSpace,
        distributions: Mapping[Label, Gaussian],
        pooled: Gaussian,
        fits: Mapping[Label, ClassFit],
        settings: Mapping[str, Any],
        strength: float = 1.0,
    ) -> None:
        self.space = space
        self.classes = tuple(distributions)
        self.pooled = pooled
        self.fits = dict(fits)
        self.settings = check_settings(settings)
        self.strength = strength
        self.distributions = tuple(distributions.values())

    @classmethod
    def fit(
        cls,
        space: WarpSpace,
        theta_by_class: Mapping[Any, ArrayLike],
        *,
        kind: Kind = "gaussian",
        shrinkage: float | Literal["auto", "oas", "ledoit-wolf"] = "auto",
        pooling: float | Literal["auto"] = "auto",
        weights: Mapping[Any, ArrayLike] | None = None,
        edges: Mapping[Any, ArrayLike] | None = None,
        min_pairs: int = 5,
        class_pairs: float | Literal["auto"] = "auto",
        drift: float | Literal["auto"] = "auto",
    ) -> WarpModel:
        """Fit a distribution to the aligned pairs of each class.

        ``shrinkage=0, pooling=0`` gives the paper's estimate, Σ_y = (1 / N_y) Σ θθᵀ. ``"auto"``
        values maximise the likelihood of held-out pairs.

        Parameters
        ----------
        space : WarpSpace
        theta_by_class : mapping of label to (n_pairs, d)
            Each pair once, in either direction: the other is -θ. Labels are strings, integers or
            booleans, all of one type.
        kind : {"gaussian", "template"}
            ``"gaussian"``: zero mean, full covariance. ``"template"``: random combinations of a
            sample's warps toward its own neighbours, plus class noise; needs ``edges``.
        shrinkage : float, "auto", "oas" or "ledoit-wolf"
            Weight of the isotropic covariance in that of a class.
        pooling : float or "auto"
            Weight of the covariance of all classes in that of a class. ``"auto"``: larger for
            classes with fewer pairs.
        weights : mapping of label to (n_pairs,), optional
            Weight of each pair; see :func:`alignment_weights`.
        edges : mapping of label to (n_pairs, 2) int, optional
            Sample indices: θ aligns the first to the second. With them, samples are held out
            instead of pairs.
        min_pairs : int
            A class with fewer pairs gets the distribution of all classes, with a warning.
        class_pairs : float or "auto"
            For ``"template"``: number of neighbours that the class noise counts as.
        drift : float or "auto"
            For ``"template"``: weight, from 0 to 1, of the mean of a sample's own warps.

        Examples
        --------
        From aligned pairs to a file:

        >>> edges = dw.neighbor_pairs(X, y, n_neighbors=2)
        >>> pairs = dw.align_pairs(space, X, X, edges=edges)
        >>> labels = y[edges[:, 0]]
        >>> theta = {k: pairs.theta[pairs.usable & (labels == k)] for k in np.unique(y).tolist()}
        >>> WarpModel.fit(space, theta).save("digits.dwm")
        """
        check_choice("kind", kind, KINDS)
        if kind != "template":
            class_pairs = drift = "auto"
        elif edges is None:
            raise ValueError(
                'kind="template" needs `edges`, the two samples of each pair. '
                'Give them, or use kind="gaussian".'
            )
        given = HyperParameters(
            kind,
            shrinkage=none_if_auto(check_fraction, "shrinkage", shrinkage, FORMULAS),
            pooling=none_if_auto(check_fraction, "pooling", pooling),
            class_pairs=none_if_auto(check_positive, "class_pairs", class_pairs),
            drift=none_if_auto(check_fraction, "drift", drift),
            min_pairs=check_integer("min_pairs", min_pairs, 1),
        )
        pairs_by_class = check_pairs(space, theta_by_class, weights, edges)
        check_enough(pairs_by_class, given.min_pairs)
        hyper = choose_hyperparameters(pairs_by_class, given, space.dim)
        fitted = fit_classes(pairs_by_class, hyper)
        warn_of_fallbacks(fitted)
        return cls(space, *fitted)

    # -- properties

    @property
    def kind(self) -> str:
        """The kind of model."""
        return str(self.settings["kind"])

    @property
    def fallbacks(self) -> tuple[Label, ...]:
        """Classes with too few pairs, which have the distribution of all classes."""
        return tuple(label for label, fit in self.fits.items() if fit.fell_back)

    def covariance(self, label: Label | None) -> Array:
        """Covariance (d, d) of the warps of a class; None: of all classes."""
        return self.distribution(label).covariance.copy()

    def components(self, label: Label | None) -> Components:
        """Principal components of the warps of a class; None: of all classes."""
        return self.distribution(label).components

    def log_prob(
        self, theta: ArrayLike, label: Label | None, *, templates: ArrayLike | None = None
    ) -> Array:
        """Log density of θ (n, d) in a class: (n,), or a number for a single θ (d,).

        For kind ``"template"``, ``templates`` (n,) are the samples to be warped; without them the
        density is that of the class. Kind ``"gaussian"`` ignores them.
        """
        rows, is_single = self.space.check_theta(theta)
        known = None if templates is None else check_templates(templates, len(rows))
        out = self.distribution(label).log_prob(rows, known)
        return out[0] if is_single else out

    def distribution(self, label: Label | None) -> Gaussian:
        """The distribution of a class; None: of all classes."""
        if label is None:
            return self.pooled
        code = int(encode([check_label(label)], self.classes)[0])
        if code < 0:
            refuse_unknown(label, self.classes, USE_NONE)
        return self.distributions[code]

    @property
    def network_strength(self) -> float:
        """Default strength for networks: the one stored by ``Augmenter``, else 1.25."""
        return float(self.settings.get("network_strength", NETWORK_STRENGTH))

    def with_strength(self, strength: float) -> WarpModel:
        """A copy that recommends another strength; networks keep theirs."""
        return self._copy(self.settings, check_factor("strength", strength))

    def with_settings(self, **more: str | float) -> WarpModel:
        """A copy with more settings, which are words or numbers."""
        return self._copy(self.settings | more, self.strength)

    def flattened(self, power: float) -> WarpModel:
        """A copy whose warps vary more evenly, as networks prefer.

        Learned warps vary mostly along a few components, such as width and slant. Here the
        variance λ of the displacement along each component of a class becomes λ^power, scaled so
        that the mean square displacement of the class stays the same.

        Parameters
        ----------
        power : float
            From 0 to 1. 1 changes nothing; 0 makes all components with any variance equal.

        Returns
        -------
        WarpModel
            For kind ``"template"``, samples of the fit keep their own warps.
        """
        power = check_fraction("power", power)
        if power == 1.0:
            return self
        with limit_algebra():
            factor = triangular_factor(mass_matrix(self.space))
            parts = [part.flattened(factor, power) for part in self.distributions]
            pooled = self.pooled.flattened(factor, power)
        settings = self.settings | {"power": power * float(self.settings.get("power", 1.0))}
        by_class = dict(zip(self.classes, parts, strict=True))
        return WarpModel(self.space, by_class, pooled, self.fits, settings, self.strength)

    def _copy(self, settings: Mapping[str, Any], strength: float) -> WarpModel:
        by_class = dict(zip(self.classes, self.distributions, strict=True))
        return WarpModel(self.space, by_class, self.pooled, self.fits, settings, strength)

    def __repr__(self) -> str:
        return (
            f"WarpModel({self.space!r}, kind={self.kind!r}, {len(self.classes)} classes, "
            f"recommended strength {self.strength:g})"
        )

    # -- plots

    def plot(self, name: Literal["spectrum", "similarity"] = "spectrum") -> Figure:
        """Plot the spectrum of each class, or the similarity of the classes' warps.

        See :func:`dreamwarp.report.draw_spectrum` and ``draw_class_similarity``.
        """
        from dreamwarp.report.notebooks import plot_model

        return plot_model(self, name)

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_model

        return summarize_model(self)

    # -- draws

    def sample(self, n: int, label: Label | None, *, seed: Seed = 0) -> Array:
        """Draw warps θ (n, d) of a class; label None: of all classes.

        The first draws do not depend on ``n``. Draws of different labels are independent.
        """
        self.distribution(label)  # raises if the label is unknown
        return self.draw(label, np.arange(check_integer("n", n, 0)), seed=seed)

    def draw(
        self,
        labels: Any,
        numbers: ArrayLike,
        *,
        seed: Seed = 0,
        templates: ArrayLike | None = None,
        unknown: Unknown = "error",
        n_threads: int | None = None,
    ) -> Array:
        """Draw warps by sample number: row i depends on (seed, numbers[i], labels[i]) alone.

        For kind ``"template"`` it also depends on templates[i]. Rows are bit-identical for any
        batch, number of threads and machine. Rows that differ in number or label are independent.
        All unknown labels get the same draw for the same number.

        Parameters
        ----------
        labels : (n,) labels, one label for all, or None
            None: the distribution of all classes.
        numbers : (n,) int
            Sample numbers, at least 0.
        seed : int, numpy.random.Generator or None
        templates : (n,) int, optional
            For kind ``"template"``: indices of the samples to be warped, as in the ``edges`` of the
            fit. -1, and samples in no pair, get warps of their class.
        unknown : {"error", "pool"}
            For unknown labels: raise, or use the distribution of all classes.
        n_threads : int, optional

        Returns
        -------
        (n, d), float64
        """
        key, numbers = as_key(seed), check_numbers(numbers)
        n = len(numbers)
        check_choice("unknown", unknown, ("error", "pool"))
        codes = self._codes(labels, n, unknown)
        known = np.full(n, NO_TEMPLATE) if templates is None else check_templates(templates, n)
        out = np.empty((n, self.space.dim))
        order = np.argsort(codes, kind="stable")
        present, starts = np.unique(codes[order], return_index=True)
        for code, start, end in zip(present, starts, [*starts[1:], n], strict=False):
            chosen = order[start:end]
            label = None if code < 0 else self.classes[code]
            part = self.pooled if code < 0 else self.distributions[code]
            batch = Batch(
                numbers=numbers[chosen], rows=chosen, templates=known[chosen], out=out,
                n_threads=n_threads,
            )  # fmt: skip
            part.draw(label_key(key, label), batch)
        return out

    def _codes(self, labels: Any, n: int, unknown: Unknown) -> Integers:
        """Index of the class of each sample, -1 for the pool, in the smallest integer type."""
        small = np.min_scalar_type(-len(self.classes))
        if labels is None:
            return np.full(n, -1, small)
        is_one = isinstance(labels, str) or np.ndim(labels) == 0
        given = [labels] if is_one else labels
        codes = encode(given, self.classes).astype(small)
        if unknown == "error" and (codes < 0).any():
            label = given[int(np.argmax(codes < 0))]
            refuse_unknown(label.item() if hasattr(label, "item") else label, self.classes)
        if not is_one and len(codes) != n:
            raise ValueError(
                f"`labels` must be one label or as many as `numbers`, got {len(codes)} and {n}."
            )
        return np.broadcast_to(codes, n)

    # -- files

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal SHA-256 of the contents of a model file, without the versions."""
        from dreamwarp.model.files import arrays_of, describe, hash_contents

        return hash_contents(describe(self), arrays_of(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a safetensors file with a JSON description in its header.

        Missing folders are created. An existing file is replaced once the new one is complete.
        """
        from dreamwarp.model.files import save_model

        save_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WarpModel:
        """Read a model that :meth:`save` wrote; raises ValueError for a bad file."""
        from dreamwarp.model.files import load_model

        return load_model(path)


def check_templates(templates: ArrayLike, n: int) -> Integers:
    """Return sample indices (n,), -1 for none; raise if they are invalid."""
    values = np.asarray(templates)
    if values.shape != (n,) or (n and values.dtype.kind not in "iu"):
        raise ValueError(
            f"`templates` must be {n} sample indices, one for each row, got {values.dtype} of "
            f"shape {values.shape}."
        )
    return values.astype(np.int64)
