"""Augmenter: learns how the members of each class deform into one another, and makes more."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_array, estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from dreamwarp.augment.classifier import AugmentedClassifier
from dreamwarp.augment.estimators import Samples, judge_estimator
from dreamwarp.augment.fingerprint import fingerprint
from dreamwarp.augment.learning import Settings, fit_model, learn_pairs
from dreamwarp.augment.precompile import ensure_compiled
from dreamwarp.augment.resampler import Resampler
from dreamwarp.augment.samples import (
    as_images,
    check_sizes,
    count_axes,
    count_samples,
    in_given_type,
    model_labels,
    require_labels,
)
from dreamwarp.augment.sampling_strategy import (
    SamplingStrategy,
    count_new,
    number_new,
    warn_of_replacement,
)
from dreamwarp.augment.source import Balance, SampleSource
from dreamwarp.augment.strength import judge_strengths
from dreamwarp.augment.verdict import Judgement, check_strength, not_judged
from dreamwarp.core.defaults import LENGTH, MAX_DRAWS, MAX_STEPS, N_NEIGHBORS
from dreamwarp.core.draws import Seed, as_key
from dreamwarp.core.labels import as_labels, encode_labels
from dreamwarp.core.progress import ProgressOption, check_progress, silenced
from dreamwarp.core.samples import as_array, check_finite
from dreamwarp.core.validation import check_choice, check_whole, warn_user
from dreamwarp.model.labels import refuse_unknown
from dreamwarp.model.strength import resolve_strength
from dreamwarp.model.warpmodel import NO_TEMPLATE, check_templates
from dreamwarp.space import WarpSpace
from dreamwarp.space.resample import INTERPOLATIONS

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.figure import Figure

Array = NDArray[Any]
Integers = NDArray[np.int64]


class Augmenter(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """More samples of each class, by warps learned from its members.

    Fitting aligns every sample with its nearest neighbours in its class, learns the distribution of
    the warps between them, and chooses how strong new warps should be.

    Parameters
    ----------
    cells : tuple of int
        Cells per spatial axis, one number for signals, two for images, three for volumes. This says
        how ``X`` is read: its last axes, as many as there are numbers, are spatial.
    boundary : {"zero", "slip", "free", "periodic"}
        What warps do at the border; see :class:`~dreamwarp.WarpSpace`. ``"zero"``, the paper's,
        holds it, and hampers warps near it.
    n_neighbors : int
        Neighbours of each sample to align with.
    method : {"eb", "map", "laplace", "metropolis", "hmc"}
        How the distribution of warps of a class is learned from pairs. ``"eb"``, empirical Bayes:
        the covariance under which the pairs are likeliest, whatever part of its warp a pair shows;
        see ``dreamwarp.model.empirical_bayes``. Others: the second moment of posterior modes or
        draws (the paper's way); see :func:`~dreamwarp.align_pairs`.
    similarity : {"ssd", "ncc", "mi"}, object or callable
        By which aligned samples are compared; see :func:`~dreamwarp.align_pairs`.
    sigma : float or "auto"
        Noise of a pixel, for ``"ssd"``; on the [0, 1] scale for integers.
    displacement, length : float
        What alignments may look like: root mean square displacement and correlation length, as
        shares of the domain; see :class:`~dreamwarp.SmoothPrior`. Displacement ``"auto"``: for
        ``method="eb"`` the one under which held-out pairs are likeliest, else 0.08.
    max_steps, max_draws : int
        How long alignments may search or sample; see :func:`~dreamwarp.align_pairs`.
    max_pairs : int or None
        Of more pairs so many are used, as many of every class. None: all, and 1,000 or 50 per class
        for empirical Bayes. ``model="template"`` aligns all pairs in any case.
    model : {"template", "gaussian", "kde"}
        Kind of distribution; see :meth:`~dreamwarp.WarpModel.fit`. ``"template"``: each fitted
        sample is warped as it differs from its neighbours, and other samples by the Gaussian of
        their class, as ``"gaussian"`` does all. ``"gaussian"`` with ``method="map"`` or
        ``"metropolis"`` is the paper's. ``"kde"`` is always of modes or draws: ``"eb"`` means
        modes.
    strength : float or "auto"
        Factor on the learned warps. ``"auto"``: chosen by :meth:`judge`, from 0.5 to 1.4 or, if
        that is best, up to 4, by how a nearest neighbour among samples and warped samples does on
        held-out samples of ``X``; 0, no warps, unless some clearly do better. A number is taken as
        it is and nothing is judged. Other classifiers may be best with others, and networks with
        stronger ones: :meth:`with_strength` changes it without learning anew.
    keep_unusable : bool
        Whether to learn also from pairs that could not be aligned.
    discount_poor : bool
        Whether pairs count less whose alignment left much unexplained.
    image_shape : tuple of int, optional
        (*spatial) or (channels, *spatial): ``X`` then has rows, (n, features).
    sampling_strategy : str, float, dict or callable
        How many samples of a class ``fit_resample`` returns, as in imbalanced-learn: ``"auto"``, as
        many as the largest class has; ``"minority"``, ``"not minority"``, ``"not majority"``,
        ``"all"``; the ratio of two classes; a dict of label: number, or a function that makes one
        of ``y``. And ``"10x"``: ten times as many of every class.
    interpolation : {"linear", "nearest", "cubic"}
        How warped samples are read off.
    seed : int, numpy.random.Generator or None
        Sample k depends on the seed and k alone.
    random_state : int, numpy.random.RandomState or None
        The name that scikit-learn has for ``seed``. Where it is given, ``seed`` is not looked at.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.
    progress : bool or callable, optional
        False: none. A function of (pairs aligned, pairs in all) is called. Default: a bar on a
        terminal or in a notebook, now and then a line in a log.

    Attributes
    ----------
    classes_ : (n_classes,)
        Labels, once each, in order.
    space_ : WarpSpace
    edges_ : (e, 2)
        Samples that were aligned: the first to the second.
    alignments_ : Alignments
        What came of it, in the same order.
    model_ : WarpModel
        The warps of each class as they were learned; it recommends ``strength_``. ``model_.save``
        keeps it.
    strength_ : float
        Factor on the learned warps that new samples get unless told otherwise.
    strength_errors_ : dict of float to float
        Share of held-out samples mistaken at each strength that was compared, smoothed; empty if
        ``strength`` was a number, or there were too few samples to hold some out.
    verdict_ : Verdict
        Whether augmentation helps, by how much, with an interval, and how many samples to make; or
        that this was not judged. ``print(aug.verdict_)``.
    n_features_in_ : int
        Numbers per sample.

    Notes
    -----
    ``X`` may be of integers, booleans or floating-point numbers; new samples have its type, and
    keep within the range of the sample they are warped from. Its shapes, for cells=(4, 4):

    =========================  ======================================================
    (n, rows, columns)         images of one channel
    (n, channels, rows, ...)   images of several channels, which move together
    (n, features)              rows, with ``image_shape=(rows, columns)`` or with channels
    =========================  ======================================================

    For cells=(8,), (n, length) are signals and (n, channels, length) signals of several channels.
    Warps know no pixels: ``transform`` takes samples of another size than those fitted, unless
    they come as rows, whose number of features scikit-learn wants to stay the same.

    To train a classifier of scikit-learn on more samples, :meth:`wrap` it, or use :meth:`resampler`
    as a step of imbalanced-learn's pipelines. As a step of a pipeline of scikit-learn, which must
    keep the number of samples, an augmenter *replaces* each training sample by one warped copy, and
    warns of it; ``predict`` calls ``transform`` without labels, which leaves samples as they are.

    The strength and the verdict are explained in ``dreamwarp.augment.strength``. They come from the
    training samples alone.

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
        model: Literal["gaussian", "kde", "template"] = "template",
        strength: float | Literal["auto"] = "auto",
        keep_unusable: bool = False,
        discount_poor: bool = False,
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
        self.model = model
        self.strength = strength
        self.keep_unusable = keep_unusable
        self.discount_poor = discount_poor
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
            Labels: whole numbers, words or booleans.
        client : distributed.Client, optional
            A cluster whose workers align the pairs. Default: threads of this process. Results do
            not depend on it.
        """
        fitted = copy.copy(self)
        with silenced(self.progress):
            fitted._fit(X, y, client)
        # All at once: what can't be fitted leaves an augmenter as it was.
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, client: Client | None) -> None:
        strength = check_strength(self.strength)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_progress(self.progress)
        settings = Settings(
            self.n_neighbors, self.method, self.similarity, self.sigma, self.displacement,
            self.length, self.model, self.keep_unusable, self.discount_poor, self.max_steps,
            self.max_draws, self.max_pairs,
        )  # fmt: skip
        self.space_ = WarpSpace(self.cells, boundary=self.boundary)
        values = self._read(X, reset=True).copy()  # which its owner may change
        self._images = as_images(self.space_, values, self.image_shape)
        self._sample_shape = values.shape[1:]
        check_sizes(self.space_, self._images, self.image_shape)
        labels = as_labels(require_labels(self, y), len(values))
        self._y = in_given_type(y, labels)
        self.classes_, self._codes = np.unique(self._y, return_inverse=True)
        self._labels = model_labels(self.classes_)
        self._key = as_key(self.seed if self.random_state is None else self.random_state)
        with silenced(self.progress):
            ensure_compiled(self.space_)
        self._learn(settings, client)
        self._source = SampleSource(
            self.model_, (self._images, labels), seed=self._key, strength=1.0,
            interpolation=self.interpolation,
        )  # fmt: skip
        self._set_strength(strength)

    def _learn(self, settings: Settings, client: Client | None) -> None:
        self.edges_, self.alignments_, pairs = learn_pairs(
            self.space_, self._images, self._codes, self._labels, settings, seed=self._key,
            progress=self.progress, n_threads=self.n_threads, client=client,
        )  # fmt: skip
        self.model_, self._pairs = fit_model(self.space_, pairs, settings, seed=self._key)
        if settings.model == "template":  # which knows samples by their numbers
            self.model_ = self.model_.with_settings(samples=fingerprint(self._images))

    def _set_strength(self, strength: float | None) -> None:
        """Take a strength, or judge which to take, and let the model recommend it."""
        judgement = self._judge(None) if strength is None else not_judged(strength)
        self.strength_, self.verdict_ = judgement.strength, judgement.verdict
        self.strength_errors_ = judgement.errors
        asked = "auto" if strength is None else strength
        self.model_ = self.model_.with_strength(self.strength_).with_settings(strength=asked)
        self._source = self._source.with_options(model=self.model_)
        if strength is None and self.strength_ == 0.0:
            warn_user(
                "on held-out samples no warps do better than none by a standard error, so "
                "strength 0 is chosen and samples come back as they are: see `verdict_`. Use "
                "`strength=1` to have them warped all the same.",
                RuntimeWarning,
            )

    def with_strength(self, strength: float | Literal["auto"]) -> Augmenter:
        """A copy with another strength; ``"auto"`` judges. What was learned is shared."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.strength = strength
        other._set_strength(check_strength(strength))
        return other

    def judge(
        self,
        estimator: Any = None,
        *,
        strengths: Sequence[float] | None = None,
        copies: int | None = None,
    ) -> Judgement:
        """Whether warps help a classifier, and at which strength, by held-out training samples.

        Changes nothing: ``with_strength(judgement.strength)`` takes the strength.

        Parameters
        ----------
        estimator : classifier of scikit-learn, or callable, optional
            Whom warps should help. A classifier is cloned for every fit, and gets samples as rows
            (n, features). A callable ``(X_train, y_train, X_test) -> predictions`` gets them in the
            shape in which they were fitted. Default: a nearest neighbour, whose near misses count
            in part. For networks: :func:`dreamwarp.torch.choose_strength`.
        strengths : sequence of float, optional
            What to compare with no warps. Default: as for ``strength="auto"``.
        copies : int, optional
            Warped copies of each sample to train ``estimator`` on, besides the samples. Default: 3
            to 10, for about 8,000 training samples, and of more than 2,000 samples as many.

        Returns
        -------
        Judgement
            ``.verdict``, ``.errors`` by strength with their ``.spreads``, and ``.strength``, the
            one to take.

        Raises
        ------
        RuntimeError
            If the estimator fails; the error it raised is the cause.
        ValueError
            If its predictions are not labels of the classes, one for each sample; if there is one
            class, or too few samples to hold some out. Without an estimator, the verdict says so.

        Notes
        -----
        How it is done is explained in ``dreamwarp.augment.strength`` and ``.estimators``. An
        estimator is fitted about 20 times: three folds or more, at each strength.

        Examples
        --------
        >>> judgement = augmenter.judge(RandomForestClassifier(random_state=0))
        >>> print(judgement.verdict)
        >>> augmenter = augmenter.with_strength(judgement.strength)
        """
        check_is_fitted(self)
        if estimator is None:
            if copies is not None:
                raise ValueError(
                    "`copies` must be None without `estimator`: the nearest neighbour is judged "
                    f"with growing numbers of copies, got {copies!r}."
                )
            return self._judge(strengths)
        samples = Samples(
            self._images, self._codes, self._y, self._sample_shape, self._source.apply
        )
        return judge_estimator(
            estimator, self.model_, self._pairs, samples, strengths=strengths, copies=copies,
            seed=self._key, progress=self.progress, n_threads=self.n_threads,
        )  # fmt: skip

    def _judge(self, strengths: Sequence[float] | None) -> Judgement:
        return judge_strengths(
            self.model_, self._pairs, self._images, self._codes, strengths=strengths,
            seed=self._key, progress=self.progress, n_threads=self.n_threads,
        )  # fmt: skip

    # -- pictures

    def plot(self, name: str = "samples", **options: Any) -> Figure:
        """A figure of what was learned, by its name; see ``dreamwarp figure --help``.

        Parameters
        ----------
        name : str
            "samples", "warp", "alignments", "components", "spectrum", "similarity", "strength" or
            "traces".
        label : optional
            A class. Default: all.
        component : int, optional
            For ``"components"``: 1 is the largest.
        strength : float, optional
            For ``"samples"``.
        seed : int, optional
        """
        from dreamwarp.report.notebooks import plot_augmenter

        check_is_fitted(self)
        return plot_augmenter(self, name, options)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What notebooks show: once fitted, a picture and the verdict."""
        if not hasattr(self, "model_"):
            return super()._repr_mimebundle_(**kwargs)
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        from dreamwarp.report.notebooks import summarize_augmenter

        if not hasattr(self, "model_"):
            return estimator_html_repr(self)
        return summarize_augmenter(self)

    # -- making

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
        """New samples and their labels.

        Sample k is a random member of its class, by a random warp of that class.

        Parameters
        ----------
        n : int
        label : optional
            The class of all samples. Default: all classes.
        balance : {"classes", "data"}
            Whether classes take turns, or come at random as often as they were fitted.
        seed : int, numpy.random.Generator or None
            Default: the one fitted with.
        first : int
            Number of the first sample: ``sample(5, first=10)`` gives samples 10 to 14.
        strength : float, optional
            Factor on the learned warps. Default: ``strength_``.
        return_templates : bool
            Whether to return also which samples of the fit were warped.

        Returns
        -------
        X_new : (n, ...)
            In shape, type and range like the samples fitted.
        y_new : (n,)
        templates : (n,) of int, if asked for
        """
        check_is_fitted(self)
        start, n = check_whole("first", first, 0), check_whole("n", n, 0)
        code = None if label is None else self._encode_one(label)
        source = self._source_by(seed, strength).with_options(balance=balance)
        numbers = np.arange(start, start + n)
        templates = source.choose(numbers, code=code, n_threads=self.n_threads)
        X_new = self._warp_fitted(source, numbers, templates)
        y_new = self._y[templates]
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
        """One random warp of each sample; without labels, samples as they are.

        Parameters
        ----------
        X : (n, ...)
            As in ``fit``, but of any size, unless in rows.
        y : (n,), optional
            Labels: each sample gets a warp of its class. Without them nothing is warped, since
            pipelines pass samples to predict so, unless ``unknown="pool"``.
        unknown : {"error", "pool"}
            What labels get that were not fitted: an error, or warps of all classes. So do samples
            without labels if it is ``"pool"``.
        templates : (n,) of int, optional
            For model="template": which samples of the fit these are, -1 for none of them. Those
            get warps of their class, and so do all by default.
        seed : int, numpy.random.Generator or None
            Default: the one fitted with.
        first : int
            Number of the first warp: the next epoch is ``first=len(X)``.
        strength : float, optional
            Factor on the learned warps. Default: ``strength_``.

        Returns
        -------
        (n, ...)
            In shape and type like X.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        images, n = as_images(self.space_, values, self.image_shape), len(values)
        check_choice("unknown", unknown, ("error", "pool"))
        start = check_whole("first", first, 0)
        of = np.full(n, NO_TEMPLATE) if templates is None else check_templates(templates, n)
        if y is None and unknown == "error":
            return values.copy()
        warped = self._source_by(seed, strength).warp_others(
            images, np.arange(n), None if y is None else as_labels(y, n),
            np.arange(start, start + n), of, unknown=unknown, n_threads=self.n_threads,
        )  # fmt: skip
        return warped.reshape(values.shape)

    def fit_transform(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Learn, and one random warp of each sample by its class, in its place: warns of that."""
        warn_of_replacement()
        return self.fit(X, y).transform(X, y, templates=np.arange(len(self._y)))

    def fit_resample(
        self, X: ArrayLike, y: ArrayLike, *, strength: float | None = None
    ) -> tuple[Array, Array]:
        """Learn; then the samples and, after them, new ones as ``sampling_strategy`` asks.

        New samples are those that ``sample`` gives, at its default strength or another.

        Returns
        -------
        X_resampled : (n + n_new, ...)
        y_resampled : (n + n_new,)
        """
        labels = as_labels(require_labels(self, y), count_samples(X))
        n_new = count_new(self.sampling_strategy, labels)
        self.fit(X, y)
        used = self.strength_ if strength is None else strength
        source, numbers = self._source_by(None, used), number_new(n_new)
        templates = source.choose(numbers, n_threads=self.n_threads)
        X_new = self._warp_fitted(source, numbers, templates)
        X_old = self._images.reshape(-1, *self._sample_shape)
        return np.concatenate((X_old, X_new)), np.concatenate((self._y, self._y[templates]))

    def resampler(self) -> Resampler:
        """The same as a step of imbalanced-learn's pipeline: ``fit_resample`` and no transform."""
        return Resampler(self)

    def wrap(
        self, estimator: Any, *, sampling_strategy: SamplingStrategy = "10x"
    ) -> AugmentedClassifier:
        """A classifier that is trained on the samples and new ones, and predicts from what comes.

        Parameters
        ----------
        estimator : classifier of scikit-learn
        sampling_strategy : str, float, dict or callable
            How many samples to train on; default: ten times as many.
        """
        return AugmentedClassifier(estimator, self, sampling_strategy=sampling_strategy)

    # -- parts of the above

    def _source_by(self, seed: Seed, strength: float | None) -> SampleSource:
        """The source of new samples; None: the seed of the fit, the strength recommended."""
        return self._source.with_options(
            key=None if seed is None else as_key(seed),
            strength=resolve_strength(self.model_, strength),
        )

    def _warp_fitted(self, source: SampleSource, numbers: Integers, templates: Integers) -> Array:
        new = source.warp(numbers, templates, n_threads=self.n_threads)
        return new.reshape(len(new), *self._sample_shape)

    def _encode_one(self, label: Any) -> int:
        """Number of the class that has a label."""
        (code,) = encode_labels(as_labels([label], 1), self.classes_)
        if code < 0:
            remedy = "Leave out `label` for samples of all classes."
            refuse_unknown(label, self._labels, remedy)
        return int(code)

    def _read(self, X: Any, *, reset: bool) -> Array:
        """Samples as an array of finite numbers, in the byte order of the machine."""
        n_least = 2 if reset else 1
        n_axes = count_axes(X)
        if n_axes <= 2 and (reset or len(self._sample_shape) == 1):
            values = validate_data(
                self, X, reset=reset, dtype="numeric", ensure_min_samples=n_least,
                ensure_all_finite=False,
            )  # fmt: skip
        else:  # scikit-learn counts the features of rows only
            values = check_array(
                X, dtype="numeric", allow_nd=True, ensure_min_samples=n_least, estimator=self,
                input_name="X", ensure_all_finite=False,
            )  # fmt: skip
            if reset:
                self.n_features_in_ = math.prod(values.shape[1:])
        check_finite("X", as_array("X", values))
        return values.astype(values.dtype.newbyteorder("="), copy=False)
