"""InfiMNIST-style deformations as an augmenter, and the choice of their strength.

The deformations are those of ``dreamwarp.augment.rivals.infimnist``, the same for every class.
Nothing is learned but the range of the images' values.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dreamwarp.augment.class_distances import BLOCK, ClassDistances
from dreamwarp.augment.members import Members
from dreamwarp.augment.rivals.infimnist import AMPLITUDE, LOW_32_BITS, WIDTH, deform, smooth_fields
from dreamwarp.augment.sampling_strategy import (
    SamplingStrategy,
    count_new,
    number_new,
    warn_of_replacement,
)
from dreamwarp.core.draws import Seed, Stream, as_key, integers
from dreamwarp.core.progress import Meter
from dreamwarp.core.validation import check_choice, check_factor, check_whole
from dreamwarp.data.dataset import check_part

if TYPE_CHECKING:
    from dreamwarp.augment.classifier import AugmentedClassifier
    from dreamwarp.augment.resampler import Resampler

# What `choose_strength` compares, in pixels.
WIDTHS, AMPLITUDES = (2.0, 3.0, 4.0, 6.0, 8.0), (0.25, 0.5, 0.75, 1.0)


class InfiMNISTAugmenter(BaseEstimator):  # type: ignore[misc]
    """More samples by hand-made deformations, behind the interface of ``dreamwarp.Augmenter``.

    Parameters
    ----------
    width, amplitude : float
        Smoothness and strength of the fields that move pixels, in pixels. The defaults are what
        :func:`choose_strength` chose on MNIST.
    strength : float
        Factor on the amplitude.
    sampling_strategy : str, float, dict or callable
        How many samples of a class ``fit_resample`` returns, as in imbalanced-learn: ``"auto"``, as
        many as the largest class has; or what a dict says for its label; ``"10x"``, ten times as
        many of all. For more see
        :func:`dreamwarp.augment.sampling_strategy.count_new`.
    image_shape : (rows, columns) or (channels, rows, columns), optional
        For images that come as flat rows (n, features).
    seed : int, numpy.random.Generator or None
        Fixes fields and samples. Sample k depends on the seed and k alone.
    n_threads : int, optional
        Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.

    Attributes
    ----------
    classes_ : (n_classes,)
        Labels, once each, in order.
    value_range_ : (low, high)
        What new values are clipped to: 0 to 255 for uint8, else the range of the images fitted.
    fields_ : (1522, rows, columns)

    Examples
    --------
    >>> augmenter = InfiMNISTAugmenter(seed=0).fit(X, y)
    >>> X_new, y_new = augmenter.sample(100_000)
    """

    def __init__(
        self,
        *,
        width: float = WIDTH,
        amplitude: float = AMPLITUDE,
        strength: float = 1.0,
        sampling_strategy: SamplingStrategy = "auto",
        image_shape: tuple[int, ...] | None = None,
        seed: Seed = 0,
        n_threads: int | None = None,
    ) -> None:
        self.width = width
        self.amplitude = amplitude
        self.strength = strength
        self.sampling_strategy = sampling_strategy
        self.image_shape = image_shape
        self.seed = seed
        self.n_threads = n_threads

    def fit(self, X: ArrayLike, y: ArrayLike) -> InfiMNISTAugmenter:
        """Keep samples to deform.

        Parameters
        ----------
        X : (n, rows, columns), (n, channels, rows, columns), or flat rows with ``image_shape``
            Integers, float32 or float64; finite.
        y : (n,)
            Labels: integers or strings.
        """
        samples = _as_samples(X)
        self._y = check_part("X", samples, y)
        self._images = _as_images(samples, self.image_shape)
        self._sample_shape = samples.shape[1:]
        self.value_range_ = _find_range(samples)
        self.classes_, codes = np.unique(self._y, return_inverse=True)
        self._members = Members.of(codes)
        self._key = as_key(self.seed)
        self._set_strength()
        return self

    def _set_strength(self) -> None:
        amplitude = check_factor("strength", self.strength) * self.amplitude
        self.fields_ = smooth_fields(
            self._images.shape[2:], width=self.width, amplitude=amplitude, seed=self._key
        )

    def with_strength(self, strength: float) -> InfiMNISTAugmenter:
        """A copy with another strength, a factor on the amplitude. Samples are shared."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.strength = strength
        other._set_strength()
        return other

    def sample(
        self,
        n: int,
        *,
        label: Any = None,
        balanced: bool = True,
        seed: Seed = None,
        first: int = 0,
        strength: float | None = None,
        return_templates: bool = False,
    ) -> tuple[NDArray[Any], ...]:
        """New samples and their labels.

        Parameters
        ----------
        n : int
        label : optional
            The class of all samples. Default: all classes.
        balanced : bool
            Whether classes take turns. If not, they come as often as they were fitted. Either way
            the members of a class take turns.
        seed : int, numpy.random.Generator or None
            Default: the one fitted with, which the fields keep in any case.
        first : int
            Number of the first sample: ``sample(5, first=10)`` gives samples 10 to 14.
        strength : float, optional
            Factor on the amplitude. Default: the one fitted with.
        return_templates : bool
            Whether to return also which samples of the fit were deformed.

        Returns
        -------
        X_new : (n, ...)
            In shape, type and range like the samples fitted.
        y_new : (n,)
        templates : (n,) of int, if asked for
        """
        check_is_fitted(self)
        numbers = _count_from(first, n)
        templates = self._choose_templates(numbers, label, balanced)
        X_new = self._at(strength)._deform(self._images, templates, numbers, seed)
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
    ) -> NDArray[Any]:
        """One random deformation of each sample.

        Parameters
        ----------
        X : (n, ...)
            In shape and type like the samples fitted.
        y : (n,), optional
            Labels. All classes are deformed alike, so they are only checked.
        unknown : {"error", "pool"}
            What labels get that were not fitted: an error, or the deformations of all classes.
        templates : (n,) of int, optional
            Of the interface, and not looked at: deformations do not depend on the sample.
        seed : int, numpy.random.Generator or None
            Default: the one fitted with, which the fields keep in any case.
        first : int
            Number of the first deformation: the next epoch is ``first=len(X)``.
        strength : float, optional
            Factor on the amplitude. Default: the one fitted with.

        Returns
        -------
        (n, ...)
        """
        check_is_fitted(self)
        samples = _as_samples(X)
        if samples.shape[1:] != self._sample_shape or samples.dtype != self._images.dtype:
            raise ValueError(
                f"`X` must be {self._images.dtype} of shape (n, "
                f"{', '.join(map(str, self._sample_shape))}) like the samples fitted, got "
                f"{samples.dtype} of shape {samples.shape}. Convert it, or fit anew."
            )
        if check_choice("unknown", unknown, ("error", "pool")) == "error" and y is not None:
            for label in np.unique(check_part("X", samples, y)):
                self._code(label)
        numbers = _count_from(first, len(samples))
        images = _as_images(samples, self.image_shape)
        return self._at(strength)._deform(images, np.arange(len(samples)), numbers, seed)

    def fit_transform(self, X: ArrayLike, y: ArrayLike) -> NDArray[Any]:
        """Keep samples, and one random deformation of each, in their place: warns of that."""
        warn_of_replacement()
        return self.fit(X, y).transform(X, y)

    def fit_resample(
        self, X: ArrayLike, y: ArrayLike, *, strength: float | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples and, after them, new ones of the classes that have too few.

        New samples are those that ``sample`` gives, at its default strength or another.

        Returns
        -------
        X_resampled : (n + n_new, ...)
        y_resampled : (n + n_new,)
        """
        self.fit(X, y)
        numbers = number_new(count_new(self.sampling_strategy, self._y))
        templates = self._choose_templates(numbers, None, True)
        X_new = self._at(strength)._deform(self._images, templates, numbers, None)
        X_all = np.concatenate((_as_samples(X), X_new))
        return X_all, np.concatenate((self._y, self._y[templates]))

    def resampler(self) -> Resampler:
        """The same as a step of imbalanced-learn's pipeline: ``fit_resample`` and no transform."""
        # The folder of augmenters imports from this one.
        from dreamwarp.augment.resampler import Resampler

        return Resampler(self)

    def wrap(
        self, estimator: Any, *, sampling_strategy: SamplingStrategy = "10x"
    ) -> AugmentedClassifier:
        """A classifier that is trained on samples and new ones; see ``dreamwarp.Augmenter``."""
        from dreamwarp.augment.classifier import AugmentedClassifier

        return AugmentedClassifier(estimator, self, sampling_strategy=sampling_strategy)

    def _choose_templates(
        self, numbers: NDArray[np.int64], label: Any, balanced: bool
    ) -> NDArray[np.int64]:
        """Samples of the fit (n,) that become samples ``numbers`` (n,)."""
        if label is None and not balanced:
            return numbers % len(self._y)
        if label is None:
            turns, codes = np.divmod(numbers, len(self.classes_))
        else:
            turns, codes = numbers, np.full(len(numbers), self._code(label))
        return self._members.pick(codes, turns % self._members.counts[codes])

    def _code(self, label: Any) -> int:
        """Place of a label among the classes."""
        classes = self.classes_.tolist()
        plain = label.item() if isinstance(label, np.generic) else label
        if plain not in classes:
            listed = ", ".join(map(repr, classes))
            raise ValueError(f"label {plain!r} is not one of the classes fitted, {listed}.")
        return classes.index(plain)

    def _at(self, strength: float | None) -> InfiMNISTAugmenter:
        return self if strength is None else self.with_strength(strength)

    def _deform(
        self,
        images: NDArray[Any],
        templates: NDArray[np.int64],
        numbers: NDArray[np.int64],
        seed: Seed,
    ) -> NDArray[Any]:
        # Deformations are drawn, not counted up as in InfiMNIST: were the number of images a
        # multiple of 39, an image would meet few of them again and again.
        key = self._key if seed is None else as_key(seed)
        deformations = integers(
            key, numbers, LOW_32_BITS, stream=Stream.WARP, n_threads=self.n_threads
        )
        new = deform(
            images,
            templates,
            deformations,
            self.fields_,
            value_range=self.value_range_,
            n_threads=self.n_threads,
        )
        return new.reshape(len(new), *self._sample_shape)


# -- checks


def _as_samples(X: ArrayLike) -> NDArray[Any]:
    samples = np.asarray(X)
    native = samples.dtype.newbyteorder("=")
    if native.kind not in "iu" and native not in (np.float32, np.float64):
        raise TypeError(
            f"`X` must be integers, float32 or float64, got {samples.dtype}. Use `X.astype(...)`."
        )
    if native.kind == "f" and not np.isfinite(samples).all():
        raise ValueError("`X` must be finite, got NaN or infinity in it.")
    return samples.astype(native, copy=False)


def _as_images(samples: NDArray[Any], image_shape: tuple[int, ...] | None) -> NDArray[Any]:
    """Samples as (n, channels, rows, columns)."""
    shape = samples.shape[1:] if image_shape is None else tuple(image_shape)
    if len(shape) not in (2, 3) or math.prod(shape) != math.prod(samples.shape[1:]):
        raise ValueError(
            "`X` must be images of shape (n, rows, columns) or (n, channels, rows, columns), or "
            f"flat rows of `image_shape`, got shape {samples.shape} and image_shape={image_shape}."
        )
    return samples.reshape(len(samples), *shape[-3:-2] or (1,), *shape[-2:])


def _find_range(samples: NDArray[Any]) -> tuple[float, float]:
    if samples.dtype == np.uint8:
        return 0.0, 255.0
    return float(samples.min()), float(samples.max())


def _count_from(first: int, n: int) -> NDArray[np.int64]:
    start = check_whole("first", first, 0)
    return np.arange(start, start + check_whole("n", n, 0))


# -- strength


class Strength(NamedTuple):
    """What ``choose_strength`` found.

    Attributes
    ----------
    width, amplitude : float
        The best setting.
    errors : (n_widths, n_amplitudes)
        Validation error of each setting, from 0 to 1.
    error_without : float
        Validation error without deformed samples.
    """

    width: float
    amplitude: float
    errors: NDArray[np.float64]
    error_without: float


def choose_strength(
    X: ArrayLike,
    y: ArrayLike,
    X_validation: ArrayLike,
    y_validation: ArrayLike,
    *,
    widths: Sequence[float] = WIDTHS,
    amplitudes: Sequence[float] = AMPLITUDES,
    n_samples: int = 100_000,
    image_shape: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Strength:
    """Compare widths and amplitudes by the error of the nearest neighbour on validation data.

    For every setting, validation samples get the label of their nearest neighbour among the samples
    and ``n_samples`` deformed ones, class-balanced. The setting with the least error wins; among
    equals, the first. Keep test data out of this: what is chosen on it looks better than it is.

    Parameters
    ----------
    X, y : (n, ...), (n,)
        Samples to deform, and their labels.
    X_validation, y_validation : (m, ...), (m,)
        Samples to judge by: none of X.
    widths, amplitudes : sequences of float
        Settings to compare, each with each, in pixels.
    n_samples : int
        Deformed samples per setting.
    image_shape : tuple, optional
        As for ``InfiMNISTAugmenter``.
    seed : int

    Notes
    -----
    The defaults of ``InfiMNISTAugmenter`` come from such a comparison on MNIST, with the settings
    that are the defaults here: X and y the ``few`` of ``paper_split``, 500 images per class from
    the first 50,000 training images, judged by the last 10,000. Errors hardly differ between widths
    of 3 to 8 and amplitudes of 0.5 to 1. Amplitudes of 0, which leaves the shifts, 1.5 and 2 were
    compared on half of the validation images, and were worse than 0.75 at every width.
    """
    samples, queries = _as_samples(X), _as_samples(X_validation)
    labels, truth = check_part("X", samples, y), check_part("X_validation", queries, y_validation)
    _check_comparison(samples, queries, widths, amplitudes)
    classes, codes = np.unique(np.concatenate([labels, truth]), return_inverse=True)
    codes, truth = codes[: len(labels)], codes[len(labels) :]
    start = ClassDistances.among(queries, samples, codes, len(classes))
    errors = np.empty((len(widths), len(amplitudes)))
    with Meter(
        "comparing strengths", errors.size * check_whole("n_samples", n_samples, 0)
    ) as meter:
        for place in np.ndindex(errors.shape):
            nearest, (row, column) = start, place
            augmenter = InfiMNISTAugmenter(
                width=widths[row], amplitude=amplitudes[column], image_shape=image_shape, seed=seed
            )
            for block in _sample_blocks(augmenter.fit(samples, labels), n_samples):
                nearest = nearest.improve(block[0], np.searchsorted(classes, block[1]))
                meter.advance(len(block[1]))
            errors[place] = nearest.errors(truth).mean()
    row, column = divmod(int(errors.argmin()), len(amplitudes))
    return Strength(widths[row], amplitudes[column], errors, float(start.errors(truth).mean()))


def _check_comparison(
    samples: NDArray[Any],
    queries: NDArray[Any],
    widths: Sequence[float],
    amplitudes: Sequence[float],
) -> None:
    if samples.shape[1:] != queries.shape[1:]:
        raise ValueError(
            f"`X_validation` must have samples of shape {samples.shape[1:]} like `X`, got "
            f"{queries.shape[1:]}."
        )
    if len(widths) == 0 or len(amplitudes) == 0:
        raise ValueError(
            "`widths` and `amplitudes` must have at least one value each, got "
            f"{len(widths)} and {len(amplitudes)}."
        )


def _sample_blocks(augmenter: InfiMNISTAugmenter, n: int) -> Iterator[tuple[NDArray[Any], ...]]:
    for first in range(0, n, BLOCK):
        yield augmenter.sample(min(BLOCK, n - first), first=first)
