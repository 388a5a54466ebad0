"""Augmenter: learned data augmentation with the interface of scikit-learn."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_array, estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from dreamwarp.augment.judge_estimator import judge_estimator
from dreamwarp.augment.judge_nearest import judge_nearest
from dreamwarp.augment.learning import Learner, Settings
from dreamwarp.augment.precompile import ensure_compiled
from dreamwarp.augment.race import check_strengths
from dreamwarp.augment.sampling_strategy import SamplingStrategy, count_new, number_new
from dreamwarp.augment.source import SampleSource
from dreamwarp.augment.verdict import Judgement, network_strength, not_judged
from dreamwarp.augment.wrappers import AugmentedClassifier, Resampler
from dreamwarp.core.defaults import LENGTH, MAX_DRAWS, MAX_STEPS, N_NEIGHBORS, Balance
from dreamwarp.core.draws import Seed, as_key
from dreamwarp.core.labels import as_labels, check_label
from dreamwarp.core.progress import ProgressOption, check_progress, silenced
from dreamwarp.core.samples import (
    as_array,
    check_finite,
    check_image_shape,
    check_layout,
    unflatten,
)
from dreamwarp.core.validation import (
    check_choice,
    check_factor,
    check_integer,
    check_parameters,
    check_resolution,
    none_if_auto,
    warn_user,
)
from dreamwarp.data.dataset import DataSet
from dreamwarp.model.labels import encode, refuse_unknown
from dreamwarp.model.strength import resolve_strength
from dreamwarp.model.warpmodel import check_templates
from dreamwarp.space import WarpSpace
from dreamwarp.space.resample import INTERPOLATIONS

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.figure import Figure

Array = NDArray[Any]

BAD_LAYOUT = (
    "Flattened samples need `image_shape`; signals need `cells` of one number, such as (8,); one "
    "sample is passed as `X[None]`."
)


class Augmenter(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Makes new samples of each class, by warps learned from its samples.

    ``fit`` aligns samples of the same class, fits a distribution to the warps between them, and
    chooses the strength of new warps.

    Parameters
    ----------
    cells : tuple of int
        Cells per spatial axis: one number for signals, two for images, three for volumes. The last
        ``len(cells)`` axes of ``X`` are spatial.
    boundary : {"zero", "slip", "free", "periodic"}
        Boundary condition; see :class:`~dreamwarp.WarpSpace`. ``"zero"``, the paper's, fixes the
        border and restricts warps near it.
    n_neighbors : int
        Neighbours of each sample to align with.
    method : {"eb", "map", "laplace", "metropolis", "hmc"}
        How the warps of a class are estimated. ``"eb"``: empirical Bayes, the Gaussian of highest
        marginal likelihood given random pairs of the class; see ``model.empirical_bayes``. Warps
        are drawn with half of its covariance, because warps between two samples have twice the
        covariance of warps from the centre of the class. Other methods use posterior modes or draws
        of warps between neighbours, as in the paper; see :func:`~dreamwarp.align_pairs`.
    similarity : {"ssd", "ncc", "mi"}, object or callable
        Similarity of aligned samples; see :func:`~dreamwarp.align_pairs`.
    sigma : float or "auto"
        Noise standard deviation per pixel, for ``"ssd"``, after reduction to ``pixels_per_cell``.
        For integer data, on the [0, 1] scale.
    displacement, length : float
        Smooth prior of alignments: root mean square displacement and correlation length, as
        fractions of the domain; see :class:`~dreamwarp.SmoothPrior`. ``displacement="auto"``: 0.08
        for warps between neighbours; for the Gaussians of ``method="eb"``, the value of highest
        likelihood on held-out pairs.
    max_steps, max_draws : int
        Limits of search and sampling; see :func:`~dreamwarp.align_pairs`.
    max_pairs : int or None
        Largest number of pairs to use, balanced over classes. None: all neighbours; for the
        Gaussians of ``method="eb"``, 1,000 random pairs, or 50 per class if that is more.
        With another ``model`` than ``"gaussian"``, all neighbours are aligned in any case.
    pixels_per_cell : int, "auto" or None
        Samples are smoothed and reduced to at most this many pixels per cell and axis, but no fewer
        than 12 per axis, before they are aligned. Finer detail, such as the thickness of strokes,
        differs in ways that no warp of the cells explains. So does brightness: it is equalized if
        that makes samples of a class more alike. None: samples are aligned as they are. ``"auto"``:
        4 for ``method="eb"``, else None.
    model : {"auto", "template", "gaussian"}
        Kind of distribution, the ``kind`` of :meth:`~dreamwarp.WarpModel.fit`. ``"template"``:
        samples of the fit get warps toward their own neighbours (posterior modes) plus noise of
        their class. Other samples, and networks unless given ``templates``, get draws from the
        Gaussian of their class. ``"gaussian"``: all samples get draws from the Gaussian of their
        class; with ``method="map"`` or ``"metropolis"`` this is the paper's model. ``"auto"``:
        ``"template"``, unless ``"gaussian"`` explains held-out pairs better; see ``model.kinds``.
    strength : float or "auto"
        Factor on the learned warps. ``"auto"``: chosen by :meth:`judge`, from 0.5 to 1.4, or up to
        4 if 1.4 is best; 0 (no warps) unless warps help a nearest-neighbour classifier; 1 if there
        are too few samples or classes to test it. A number is used as it is. :meth:`with_strength`
        changes it without a new fit. Networks have their own, ``model_.network_strength``.
    image_shape : tuple of int, optional
        (*spatial) or (channels, *spatial), if ``X`` has rows (n, features).
    sampling_strategy : str, float, dict or callable
        Number of samples that ``fit_resample`` returns, as in imbalanced-learn: ``"auto"``, as many
        as the largest class has; ``"minority"``, ``"not minority"``, ``"not majority"``,
        ``"all"``; the ratio of two classes; a dict of label to number, or a function of ``y`` that
        returns one. Also ``"10x"``: ten times as many of every class.
    interpolation : {"linear", "nearest", "cubic"}
        How values between pixels are computed.
    seed : int, numpy.random.Generator or None
        Sample k depends on the seed and k alone.
    random_state : int, numpy.random.RandomState or None
        scikit-learn's name for ``seed``; overrides it if given.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.
    progress : bool or callable, optional
        False: none. A callable gets (pairs aligned, all pairs). Default: a bar on a terminal or in
        a notebook, occasional lines in a log.

    Attributes
    ----------
    classes_ : (n_classes,)
        Sorted labels.
    space_ : WarpSpace
    edges_ : (e, 2)
        Indices of aligned samples: the first is aligned to the second. They are neighbours or, for
        ``model="gaussian"`` with ``method="eb"``, random pairs. If ``model="auto"`` chose
        Gaussians, these are neighbours, and the model is fitted to random pairs.
    alignments_ : Alignments
        One per edge.
    model_ : WarpModel
        The learned distributions; recommends ``strength_``. ``model_.save`` writes it to a file.
    pairs_ : TrainingPairs
        Pairs that the model is fitted to. :meth:`judge` fits it again for each fold.
    source_ : SampleSource
        Makes new samples by number.
    strength_ : float
        Default factor on the learned warps.
    strength_errors_ : dict of float to float
        Smoothed error rate on held-out samples by strength; empty if ``strength`` was a number or
        nothing could be held out.
    verdict_ : Verdict
        Whether augmentation helps, by how much, and how many samples to make.
        ``print(aug.verdict_)``.
    n_features_in_ : int
        Numbers per sample.

    Notes
    -----
    ``X`` may be of integers, booleans or floating-point numbers. New samples have its dtype, and
    stay within the range of values of the sample they are made from. For cells=(4, 4), samples are
    images (n, rows, columns), images whose channels move together (n, channels, rows, columns), or
    rows (n, features) with ``image_shape``; for cells=(8,), signals (n, length) or
    (n, channels, length). Warps do not depend on the number of pixels: ``transform`` takes samples
    of any size, unless they are rows.

    To train a scikit-learn classifier on more samples, :meth:`wrap` it, or use :meth:`resampler` in
    a pipeline of imbalanced-learn. A pipeline of scikit-learn must keep the number of samples:
    there an augmenter *replaces* each training sample by one warped copy, with a warning. Its
    ``predict`` calls ``transform`` without labels, which does not warp.

    Strength and verdict use training samples only; see ``dreamwarp.augment.judge_nearest``.

    Examples
    --------
    >>> augmenter = Augmenter(cells=(4, 4), n_neighbors=5, seed=0).fit(X, y)
    >>> X_new, y_new = augmenter.sample(100_000)
    """

    def __init__(
        self,
        *,
        cells: int | Sequence[int] = (4, 4),
        boundary: Literal["zero", "slip", "free", "periodic"] = "free",
        n_neighbors: int = N_NEIGHBORS,
        method: Literal["eb", "map", "laplace", "metropolis", "hmc"] = "eb",
        similarity: Any = "ssd",
        sigma: float | Literal["auto"] = "auto",
        displacement: float | Literal["auto"] = "auto",
        length: float = LENGTH,
        max_steps: int = MAX_STEPS,
        max_draws: int = MAX_DRAWS,
        max_pairs: int | None = None,
        pixels_per_cell: int | Literal["auto"] | None = "auto",
        model: Literal["auto", "template", "gaussian"] = "auto",
        strength: float | Literal["auto"] = "auto",
        image_shape: Sequence[int] | None = None,
        sampling_strategy: SamplingStrategy = "auto",
        interpolation: Literal["linear", "nearest", "cubic"] = "linear",
        seed: Seed = 0,
        random_state: Seed = None,
        n_threads: int | None = None,
        progress: ProgressOption = None,
    ) -> None:
        self.cells = cells
        self.boundary = boundary
        self.n_neighbors = n_neighbors
        self.method = method
        self.similarity = similarity
        self.sigma = sigma
        self.displacement = displacement
        self.length = length
        self.max_steps = max_steps
        self.max_draws = max_draws
        self.max_pairs = max_pairs
        self.pixels_per_cell = pixels_per_cell
        self.model = model
        self.strength = strength
        self.image_shape = image_shape
        self.sampling_strategy = sampling_strategy
        self.interpolation = interpolation
        self.seed = seed
        self.random_state = random_state
        self.n_threads = n_threads
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # -- learning

    def fit(self, X: ArrayLike, y: ArrayLike, *, client: Client | None = None) -> Augmenter:
        """Learn the warps of each class.

        Parameters
        ----------
        X : (n, *spatial), (n, channels, *spatial), or rows with ``image_shape``
        y : (n,)
            Labels: integers, strings or booleans.
        client : distributed.Client, optional
            A cluster to align the pairs on. Default: threads. Results do not depend on it.
        """
        fitted = copy.copy(self)
        with silenced(self.progress):
            fitted._fit(X, y, client)
        # Copy all attributes at once: a failed fit leaves the augmenter unchanged.
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, client: Client | None) -> None:
        strength = none_if_auto(check_factor, "strength", self.strength)  # None: choose it
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_progress(self.progress)
        # Other settings have the names of the augmenter's options.
        names = [each.name for each in fields(Settings) if each.name != "kind"]
        settings = Settings(kind=self.model, **{name: getattr(self, name) for name in names})
        self.space_ = WarpSpace(self.cells, boundary=self.boundary)
        values = self._read(X, reset=True).copy()  # the caller may change X later
        images = self._as_images(values)
        self._check_sizes(images)
        labels = as_labels(self._require_labels(y), len(values))
        # Labels are returned as given; models convert integral floats to integers.
        given = np.asarray(y)
        self._y = given.reshape(-1) if given.dtype.kind == "f" else labels
        self._sample_shape = values.shape[1:]
        data = DataSet("data", images, labels)
        self.classes_ = data.classes.astype(self._y.dtype)
        classes = [check_label(label) for label in data.classes.astype(labels.dtype)]
        key = as_key(self.seed if self.random_state is None else self.random_state)
        ensure_compiled(self.space_)
        learner = Learner(
            self.space_, images, data.codes, classes, settings, key, self.progress,
            self.n_threads, client,
        )  # fmt: skip
        self.edges_, self.alignments_, self.pairs_ = learner.learn()
        model = self.pairs_.fit(checked=True)
        # Strength 1 for now: judging needs the source. ``_set_strength`` replaces its model.
        self.source_ = SampleSource(
            model, data, seed=key, strength=1.0, interpolation=self.interpolation
        )
        # The fingerprint tells other sources whether their data are the fitted samples.
        self.model_ = model.with_settings(
            **settings.describe(), seed=key, samples=self.source_.samples_fingerprint
        )
        self._set_strength(strength)

    def _set_strength(self, strength: float | None) -> None:
        """Set the strength, or choose it if None, and recommend it in the model."""
        judgement = self._judge(None) if strength is None else not_judged(strength)
        self.strength_, self.verdict_ = judgement.strength, judgement.verdict
        self.strength_errors_ = judgement.errors
        asked = "auto" if strength is None else strength
        found: dict[str, str | float] = {"judgement": judgement.to_text()}
        # A given strength does not replace one that was derived from held-out samples.
        if strength is None or "network_strength" not in self.model_.settings:
            found["network_strength"] = network_strength(
                judgement.lowest, len(self._y), len(self.classes_)
            )
        self.model_ = self.model_.with_strength(self.strength_).with_settings(
            strength=asked, **found
        )
        self.source_ = self.source_.with_options(model=self.model_)
        if strength is None and self.strength_ == 0.0:
            warn_user(
                "warps do not reduce the error on held-out samples by more than one standard "
                "error, so strength 0 is chosen and samples are not warped: see `verdict_`. Use "
                "`strength=1` to warp them anyway.",
                RuntimeWarning,
            )

    def with_strength(self, strength: float | Literal["auto"]) -> Augmenter:
        """A copy with another strength; ``"auto"`` chooses it. The fit is shared."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.strength = strength
        other._set_strength(none_if_auto(check_factor, "strength", strength))
        return other

    def judge(
        self,
        estimator: Any = None,
        *,
        strengths: Sequence[float] | None = None,
        copies: int | None = None,
    ) -> Judgement:
        """Test on held-out training samples whether warps help a classifier, and at which strength.

        Changes nothing: use ``with_strength(judgement.strength)`` for the result.

        Parameters
        ----------
        estimator : classifier of scikit-learn, or callable, optional
            A classifier is cloned for every fit, and gets rows (n, features). A callable
            ``(X_train, y_train, X_test) -> predictions`` gets samples in their original shape.
            Default: a nearest-neighbour classifier, with smoothed errors. For networks:
            :func:`dreamwarp.torch.choose_strength`.
        strengths : sequence of float, optional
            Strengths to compare with 0. Default: as for ``strength="auto"``.
        copies : int, optional
            Warped copies per sample to train ``estimator`` on, besides the samples. Default: 3 to
            10, chosen to give about 8,000 rows from at most 2,000 samples.

        Returns
        -------
        Judgement
            ``.strength``, the best; ``.errors`` by strength and their standard errors
            ``.spreads``; ``.verdict``.

        Raises
        ------
        RuntimeError
            If the estimator fails; its own error is the cause.
        ValueError
            If predictions are not one known label per sample; with an estimator also if there is
            only one class, or too few samples to hold some out.

        Notes
        -----
        Explained in ``dreamwarp.augment.judge_nearest`` and ``.judge_estimator``. An estimator is
        fitted about 20 times: at least three folds at each strength.

        Examples
        --------
        >>> judgement = augmenter.judge(RandomForestClassifier(random_state=0))
        >>> print(judgement.verdict)
        >>> augmenter = augmenter.with_strength(judgement.strength)
        """
        check_is_fitted(self)
        tried = None if strengths is None else check_strengths(strengths)
        if estimator is None:
            if copies is not None:
                raise ValueError(
                    f"`copies` must be None without `estimator`, got {copies!r}. The nearest "
                    "neighbour is tested with several numbers of copies."
                )
            return self._judge(tried)
        return judge_estimator(
            estimator, self.pairs_, self.source_, self._y, self._sample_shape,
            strengths=tried, copies=copies, progress=self.progress, n_threads=self.n_threads,
        )  # fmt: skip

    def _judge(self, strengths: Sequence[float] | None) -> Judgement:
        return judge_nearest(
            self.pairs_, self.source_, strengths=strengths, progress=self.progress,
            n_threads=self.n_threads,
        )  # fmt: skip

    # -- plots

    def plot(self, name: str = "samples", **options: Any) -> Figure:
        """Plot a figure by its name; see ``dreamwarp figure --help``.

        Parameters
        ----------
        name : str
            "samples", "warp", "alignments", "components", "spectrum", "similarity", "strength" or
            "traces".
        label : optional
            A class. Default: all.
        component : int, optional
            For ``"components"``: 1 is the one of largest variance.
        strength : float, optional
            For ``"samples"``.
        seed : int, optional
        """
        from dreamwarp.report.notebooks import plot_augmenter

        check_is_fitted(self)
        return plot_augmenter(self, name, options)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """For notebooks: once fitted, a picture and the verdict."""
        if not hasattr(self, "model_"):
            return super()._repr_mimebundle_(**kwargs)
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_augmenter

        if not hasattr(self, "model_"):
            return estimator_html_repr(self)
        return summarize_augmenter(self)

    # -- new samples

    def sample(
        self,
        n: int,
        *,
        label: Any = None,
        balance: Balance = "classes",
        seed: Seed = None,
        first: int = 0,
        strength: float | None = None,
        return_templates: bool = False,
    ) -> tuple[Array, ...]:
        """Make new samples by applying random warps of each class to random fitted samples of it.

        Parameters
        ----------
        n : int
        label : optional
            The class of all samples. Default: all classes.
        balance : {"classes", "data"}
            Whether classes take turns, or are random with the frequencies of the fitted data.
        seed : int, numpy.random.Generator or None
            Default: the one fitted with.
        first : int
            Index of the first sample: ``sample(5, first=10)`` gives samples 10 to 14.
        strength : float, optional
            Factor on the learned warps. Default: ``strength_``.
        return_templates : bool
            Whether to also return the indices of the fitted samples that were warped.

        Returns
        -------
        X_new : (n, ...)
            In the shape and dtype of the fitted samples.
        y_new : (n,)
        templates : (n,) of int, if ``return_templates``
        """
        check_is_fitted(self)
        start, n = check_integer("first", first, 0), check_integer("n", n, 0)
        code = None
        if label is not None:
            (code,) = encode(as_labels([label], 1), self.model_.classes)
            if code < 0:
                remedy = "Omit `label` for samples of all classes."
                refuse_unknown(label, self.model_.classes, remedy)
        source = self._source_by(seed, strength).with_options(balance=balance)
        X_new, templates = source.make_numbered(
            np.arange(start, start + n), code=code, n_threads=self.n_threads
        )
        X_new, y_new = X_new.reshape(n, *self._sample_shape), self._y[templates]
        return (X_new, y_new, templates) if return_templates else (X_new, y_new)

    def transform(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        unknown: Literal["error", "pool"] = "error",
        templates: ArrayLike | None = None,
        seed: Seed = None,
        first: int = 0,
        strength: float | None = None,
    ) -> Array:
        """Warp each sample at random; without labels, return samples unchanged.

        Parameters
        ----------
        X : (n, ...)
            As in ``fit``, but of any size, unless in rows.
        y : (n,), optional
            Labels: each sample gets a warp of its class. Without labels, as when a pipeline
            predicts, samples are returned unchanged unless ``unknown="pool"``.
        unknown : {"error", "pool"}
            For labels that were not fitted: raise, or use warps of all classes.
        templates : (n,) of int, optional
            For model="template": indices of the samples in the fit, -1 for new ones, which get
            warps of their class. Default: all are new.
        seed : int, numpy.random.Generator or None
            Default: the one fitted with.
        first : int
            Index of the first warp: use ``first=len(X)`` for the next epoch.
        strength : float, optional
            Factor on the learned warps. Default: ``strength_``.

        Returns
        -------
        (n, ...)
            In the shape and dtype of X.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        images, n = self._as_images(values), len(values)
        start = check_integer("first", first, 0)
        known = None if templates is None else check_templates(templates, n)
        if y is None and unknown == "error":
            return values.copy()
        warped = self._source_by(seed, strength).warp_samples(
            images, None if y is None else as_labels(y, n), np.arange(start, start + n),
            indices=np.arange(n), templates=known, unknown=unknown, n_threads=self.n_threads,
        )  # fmt: skip
        return warped.reshape(values.shape)

    def fit_transform(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Fit, then return one warped copy of each sample; warns that the samples are replaced."""
        warn_user(
            "`fit_transform`, as in a pipeline of scikit-learn, replaces every training sample by "
            "one warped copy. To train on the samples and more, use `augmenter.wrap(classifier)`, "
            "or `augmenter.resampler()` in a pipeline of imbalanced-learn. If you want one copy "
            "each, call `fit` and `transform`.",
            UserWarning,
        )
        return self.fit(X, y).transform(X, y, templates=np.arange(len(self._y)))

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        """Fit, and return the samples followed by new ones, as ``sampling_strategy`` asks.

        Returns
        -------
        X_resampled : (n + n_new, ...)
        y_resampled : (n + n_new,)
        """
        n_samples = (*_shape_of(X), 0)[0]
        n_new = count_new(self.sampling_strategy, as_labels(self._require_labels(y), n_samples))
        self.fit(X, y)
        X_new, templates = self.source_.make_numbered(number_new(n_new), n_threads=self.n_threads)
        X_all = np.concatenate((self.source_.data.X, X_new)).reshape(-1, *self._sample_shape)
        return X_all, np.concatenate((self._y, self._y[templates]))

    def resampler(self) -> Resampler:
        """A step for pipelines of imbalanced-learn: ``fit_resample`` without ``transform``."""
        return Resampler(self)

    def wrap(
        self, estimator: Any, *, sampling_strategy: SamplingStrategy = "10x"
    ) -> AugmentedClassifier:
        """A classifier that is trained on the samples and new ones.

        Parameters
        ----------
        estimator : classifier of scikit-learn
        sampling_strategy : str, float, dict or callable
            Number of samples to train on; default: ten times as many.
        """
        return AugmentedClassifier(estimator, self, sampling_strategy=sampling_strategy)

    # -- helpers

    def _source_by(self, seed: Seed, strength: float | None) -> SampleSource:
        """The source of new samples. None: use the seed of the fit, or the recommended strength."""
        return self.source_.with_options(
            key=None if seed is None else as_key(seed),
            strength=resolve_strength(self.model_, strength),
        )

    def _require_labels(self, y: Any) -> Any:
        """Raise if there are no labels, in words that scikit-learn expects."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Warps "
                "are learned per class; give all samples one label if they have none."
            )
        return y

    def _read(self, X: Any, *, reset: bool) -> Array:
        """Samples as an array of finite numbers in native byte order."""
        options: dict[str, Any] = {
            "dtype": "numeric", "ensure_min_samples": 2 if reset else 1, "ensure_all_finite": False,
        }  # fmt: skip
        if len(_shape_of(X)) <= 2 and (reset or len(self._sample_shape) == 1):
            values = validate_data(self, X, reset=reset, **options)
        else:  # scikit-learn counts the features of rows only
            values = check_array(X, allow_nd=True, estimator=self, input_name="X", **options)
            if reset:
                self.n_features_in_ = math.prod(values.shape[1:])
        check_finite("X", as_array("X", values))
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def _as_images(self, values: Array) -> Array:
        """Samples as (n, *spatial) or (n, channels, *spatial)."""
        ndim = self.space_.ndim
        if self.image_shape is not None and values.ndim == 2:
            return unflatten("X", values, check_image_shape(self.image_shape, ndim))
        check_layout("X", values.shape, ndim, BAD_LAYOUT)
        return values

    def _check_sizes(self, images: Array) -> None:
        """Raise if samples are too small for warps, or not of shape ``image_shape``."""
        shape, ndim = images.shape, self.space_.ndim
        if self.image_shape is not None and shape[1:] != check_image_shape(self.image_shape, ndim):
            raise ValueError(
                f"`X` must have flat rows, or samples of shape {tuple(self.image_shape)}, the "
                f"`image_shape`, got samples of shape {shape[1:]}. Leave out `image_shape` unless "
                "samples are flat rows."
            )
        spatial = shape[len(shape) - ndim :]
        if max(spatial) < 2:
            raise ValueError(
                f"`X` must have samples of at least 2 pixels along an axis, got "
                f"{math.prod(spatial)} feature(s) per sample and channel."
            )
        check_resolution("X", shape, self.space_.cells)
        check_parameters(self.space_.cells, self.space_.dim)


def _shape_of(X: Any) -> tuple[int, ...]:
    return tuple(X.shape) if hasattr(X, "shape") else as_array("X", X).shape
