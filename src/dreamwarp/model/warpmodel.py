"""WarpModel: what warps the members of each class differ by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dreamwarp.core.draws import Seed, as_key, check_numbers
from dreamwarp.core.labels import Label, check_label
from dreamwarp.core.validation import as_finite_array, check_choice, check_factor, check_whole
from dreamwarp.model.fitting import ClassFit, fit_distributions
from dreamwarp.model.gaussian import Array, Components, Gaussian, Integers, components
from dreamwarp.model.kinds import Distribution
from dreamwarp.model.labels import USE_NONE, encode, label_key, refuse_unknown
from dreamwarp.space import WarpSpace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["gaussian", "kde", "template"]
Unknown = Literal["error", "pool"]

NO_TEMPLATE = -1


class WarpModel:
    """A distribution over warps for each class, p(T | y), in the tangent space at the identity.

    It describes warps as they were learned, at strength 1. Whoever warps data with it multiplies
    its draws by a strength; ``strength`` is the one it recommends.

    Made by :meth:`fit` or :meth:`load`; never changed afterwards.

    Attributes
    ----------
    space : WarpSpace
    classes : tuple of str, int or bool
        The labels, of the type they were given in.
    fits : dict of label to ClassFit
    settings : dict
        What it was fitted with: the kind, and every amount that was given or chosen. Those of an
        ``Augmenter`` say also how its pairs were aligned.
    pooled : Gaussian
        The distribution for all classes.
    strength : float
        Recommended factor on the learned warps for whoever applies them to data; 1 unless an
        ``Augmenter`` or :meth:`with_strength` set it. Densities and draws do not depend on it.

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
        distributions: Mapping[Label, Distribution],
        pooled: Gaussian,
        fits: Mapping[Label, ClassFit],
        settings: Mapping[str, Any],
        strength: float = 1.0,
    ) -> None:
        self.space = space
        self.classes = tuple(distributions)
        self.pooled = pooled
        self.fits = dict(fits)
        self.settings = dict(settings)
        self.strength = strength
        self._distributions = dict(distributions)

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
        bandwidth: float | Literal["auto"] = "auto",
        class_pairs: float | Literal["auto"] = "auto",
        drift: float | Literal["auto"] = "auto",
    ) -> WarpModel:
        """Learn the warps of each class from aligned pairs of its members.

        With ``shrinkage=0, pooling=0`` this is the paper's estimate, Σ_y = (1 / N_y) Σ θθᵀ. What is
        left at ``"auto"`` is chosen by the likelihood of held-out pairs.

        Parameters
        ----------
        space : WarpSpace
        theta_by_class : mapping of label to (n_pairs, d)
            Each pair once, in either direction; the other is -θ and understood. Labels are strings,
            whole numbers or booleans, all of one type. Float labels are refused.
        kind : {"gaussian", "kde", "template"}
            ``"gaussian"``: zero mean, full covariance. ``"kde"``: a kernel density around the warps
            seen. ``"template"``: the warps of a sample toward its own neighbours, mixed at random,
            plus class noise; needs ``edges``.
        shrinkage : float, "auto", "oas" or "ledoit-wolf"
            Share of the isotropic covariance in that of a class.
        pooling : float or "auto"
            Share of the covariance of all classes in that of a class. ``"auto"``: more for classes
            of fewer pairs, as if all classes stood for a number of pairs of each, which is chosen.
        weights : mapping of label to (n_pairs,), optional
            How much each pair counts; see :func:`alignment_weights`.
        edges : mapping of label to (n_pairs, 2) int, optional
            Indices of the samples that each pair joins: θ aligns the first to the second. Keeps
            pairs that share a sample together when some are held out.
        min_pairs : int
            A class of fewer gets the warps of all classes, with a warning.
        bandwidth : float or "auto"
            For ``"kde"``: width of kernels relative to the class, above 0, at most 1.
        class_pairs : float or "auto"
            For ``"template"``: how many neighbours the class counts as, against a sample's own.
        drift : float or "auto"
            For ``"template"``: how far, from 0 to 1, the mean is that of a sample's own warps.
        """
        fitted = fit_distributions(
            space, theta_by_class, kind=kind, shrinkage=shrinkage, pooling=pooling,
            weights=weights, edges=edges, min_pairs=min_pairs, bandwidth=bandwidth,
            class_pairs=class_pairs, drift=drift,
        )  # fmt: skip
        return cls(space, *fitted)

    # -- what it is

    @property
    def kind(self) -> str:
        """The kind of model."""
        return str(self.settings["kind"])

    @property
    def fallbacks(self) -> tuple[Label, ...]:
        """Classes that had too few pairs, and have the warps of all classes."""
        return tuple(label for label, fit in self.fits.items() if fit.fell_back)

    def covariance(self, label: Label | None) -> Array:
        """Covariance (d, d) of the warps of a class; None: of all classes."""
        return self.distribution(label).covariance.copy()

    def components(self, label: Label | None) -> Components:
        """Principal directions of the warps of a class, largest first; None: of all classes."""
        return components(self.distribution(label).covariance)

    def log_prob(
        self, theta: ArrayLike, label: Label | None, *, templates: ArrayLike | None = None
    ) -> Array:
        """Log density of θ (n, d) in a class: (n,), or a number for a single θ (d,).

        ``templates`` (n,) are the samples that the warps are for, where the kind is ``"template"``;
        without them the density is that of the class. Other kinds make no use of them.
        """
        values = as_finite_array("theta", theta)
        if values.ndim not in (1, 2) or values.shape[-1] != self.space.dim:
            raise ValueError(
                f"`theta` must have shape (n, {self.space.dim}) for {self.space!r}, got "
                f"{values.shape}. Use the space the model was fitted with."
            )
        rows = np.atleast_2d(values)
        of = None if templates is None else check_templates(templates, len(rows))
        out = self.distribution(label).log_prob(rows, of)
        return out[0] if values.ndim == 1 else out

    def distribution(self, label: Label | None) -> Distribution:
        """The distribution of a class; None: of all classes."""
        if label is None:
            return self.pooled
        code = int(encode([check_label(label)], self.classes)[0])
        if code < 0:
            refuse_unknown(label, self.classes, USE_NONE)
        return self._distributions[self.classes[code]]

    def with_strength(self, strength: float) -> WarpModel:
        """The same distributions, with another strength recommended."""
        return WarpModel(
            self.space, self._distributions, self.pooled, self.fits, self.settings,
            check_factor("strength", strength),
        )  # fmt: skip

    def with_settings(self, **more: str | float) -> WarpModel:
        """The same model, with more said about how it came about."""
        return WarpModel(
            self.space, self._distributions, self.pooled, self.fits, self.settings | more,
            self.strength,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"WarpModel({self.space!r}, kind={self.kind!r}, {len(self.classes)} classes, "
            f"recommended strength {self.strength:g})"
        )

    # -- pictures

    def plot(self, name: Literal["spectrum", "similarity"] = "spectrum") -> Figure:
        """A figure: the spectrum of each class, or how alike the warps of classes are.

        See :func:`dreamwarp.report.draw_spectrum` and ``draw_class_similarity``.
        """
        from dreamwarp.report.notebooks import plot_model

        return plot_model(self, name)

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_model

        return summarize_model(self)

    # -- draws

    def sample(self, n: int, label: Label | None, *, seed: Seed = 0) -> Array:
        """Warps of a class: θ (n, d); label None: of all classes.

        The first are the same whatever ``n``. Draws of different labels are independent.
        """
        self.distribution(label)  # refuses labels of no class
        return self.draw(label, np.arange(check_whole("n", n, 0)), seed=seed)

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
        """Warps for samples by number: row i depends on (seed, numbers[i], labels[i]) alone.

        Bit for bit, whatever the batch, the threads and the machine; and on templates[i], if the
        kind is ``"template"``. Rows that differ in number or label are independent; all labels of
        no class count as one.

        Parameters
        ----------
        labels : (n,) labels, one label for all, or None
            None: the warps of all classes.
        numbers : (n,) int
            Sample numbers, not negative.
        seed : int, numpy.random.Generator or None
        templates : (n,) int, optional
            Indices of the samples to be warped, as in the ``edges`` of the fit. -1, and samples
            that no pair joins, get warps of their class. Only kind ``"template"`` looks at them.
        unknown : {"error", "pool"}
            What labels of no class get: an error, or the warps of all classes.
        n_threads : int, optional

        Returns
        -------
        (n, d), float64
        """
        key, rows = as_key(seed), check_numbers(numbers)
        check_choice("unknown", unknown, ("error", "pool"))
        codes = self._codes(labels, len(rows), unknown)
        absent = np.full(len(rows), NO_TEMPLATE)
        of = absent if templates is None else check_templates(templates, len(rows))
        out = np.empty((len(rows), self.space.dim))
        order = np.argsort(codes, kind="stable")
        present, starts = np.unique(codes[order], return_index=True)
        for code, start, end in zip(present, starts, [*starts[1:], len(rows)], strict=False):
            chosen = order[start:end]
            label = None if code < 0 else self.classes[code]
            part = self.pooled if label is None else self._distributions[label]
            part.draw(label_key(key, label), rows[chosen], chosen, of[chosen], out, n_threads)
        return out

    def _codes(self, labels: Any, n: int, unknown: Unknown) -> Integers:
        """Place of the class of each sample, -1 for the pool, as the smallest integers that do."""
        small = np.min_scalar_type(-len(self.classes))
        if labels is None:
            return np.full(n, -1, small)
        one = isinstance(labels, str) or np.ndim(labels) == 0
        codes = encode([labels] if one else labels, self.classes)
        if unknown == "error" and (codes < 0).any():
            first = int(np.argmax(codes < 0))
            refuse_unknown(labels if one else _plain(labels[first]), self.classes)
        if not one and len(codes) != n:
            raise ValueError(
                f"`labels` must be one label or as many as `numbers`, got {len(codes)} and {n}."
            )
        return np.full(n, codes[0], small) if one else codes.astype(small)

    # -- files

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that a file holds but the version of the library."""
        from dreamwarp.model.files import arrays_of, describe, fingerprint

        return fingerprint(describe(self), arrays_of(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file: safetensors, with a description in its header.

        Missing folders are made. A file that is there is replaced, once the new one is whole.
        """
        from dreamwarp.model.files import save_model

        save_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WarpModel:
        """The model that :meth:`save` wrote; a ValueError says what is wrong with a file."""
        from dreamwarp.model.files import load_model

        return load_model(path)


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def check_templates(templates: ArrayLike, n: int) -> Integers:
    """Sample indices (n,), -1 for none."""
    values = np.asarray(templates)
    if values.shape != (n,) or (n and values.dtype.kind not in "iu"):
        raise ValueError(
            f"`templates` must be {n} sample indices, one for each row, got {values.dtype} of "
            f"shape {values.shape}."
        )
    return values.astype(np.int64)
